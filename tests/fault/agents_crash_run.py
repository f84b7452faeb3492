#!/usr/bin/env python3
"""Kills agents, RabbitMQ servers and the coordinator at random moments under load, and cuts links.

    agents_crash_run.py --count 100 --seed 7

Two sites in network namespaces (root): one publishes with confirms, the other consumes. Each round has a
fault of the next kind: a kill -9 of an agent, of a server, or of the coordinator, or a link that is down for
`--cut` seconds; some rounds have two. After each, all confirmed messages have to be consumed and all agents
to have settled everything.

It can be interrupted with Ctrl-C; the same command continues: finished rounds are in
out/agents-crash/seed-N/state.json (`--fresh` starts over). Exit code: 0 no problem, 1 a problem, 130
interrupted.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from agents_crash.episode import FAULTS, Episode
from resumable import INTERRUPTED, Lives, Session, live, options_of


def main() -> int:
    parser = options_of(__doc__, "agents-crash", life=len(FAULTS), kills="faults")
    parser.add_argument(
        "--damage",
        type=int,
        default=-1,
        metavar="ROUND",
        help="expect a message that nobody sent, in this round",
    )
    parser.add_argument("--patience", type=float, default=120.0, help="seconds without a new message")
    parser.add_argument("--cut", type=float, default=60.0, help="seconds for which a link is down")
    options = parser.parse_args()
    session = Session(options, Lives)
    kind = partial(Episode, cut=options.cut)
    code = session.repeat(options.count, partial(live, kind, session.state, options, session.folder))
    if code != INTERRUPTED:
        print(session.as_json(indent=not options.json))
    return code


if __name__ == "__main__":
    sys.exit(main())
