#!/usr/bin/env python3
"""Kills the daemon at random points under MQTT load of QoS 1 and 2, and looks after each kill.

    mqtt_crash_run.py --count 300 --seed 7

Four publishers, a subscriber that is connected and one that is away while the load runs, all with sessions
that last. Of QoS 1 nothing acknowledged may be missing; of QoS 2 nothing missing and nothing double, for
either.

It can be ended with Ctrl-C and goes on where it was with the same command: finished cycles are in
out/mqtt-crash/seed-N/state.json (`--fresh` begins again). Exit code: 0 nothing amiss, 1 something is, 130
interrupted.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mqtt_crash.episode import Episode
from resumable import INTERRUPTED, Session, options_of


@dataclasses.dataclass
class State:
    """What is done, over all sessions of one seed."""

    seed: int
    done: int = 0
    kills: int = 0
    lives: int = 0
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)


def live(state: State, options: argparse.Namespace, folder: Path) -> None:
    """One life of a data directory."""
    begun, known = time.monotonic(), len(state.problems)
    episode = Episode(folder / "life", state.seed, state.lives, options.python, options.patience)
    state.lives += 1
    try:
        episode.begin()
        for _ in range(min(options.life, options.count - state.done)):
            number = state.done
            episode.cycle(number, damage=number == options.damage)
            state.done += 1
            if not options.json:
                print(f"{state.done}/{options.count} kills looked at, {len(episode.problems)} problems")
            if episode.problems:
                break
    finally:
        episode.end()
        where = f"seed {state.seed}, life {state.lives - 1}, fsync {episode.fsync}"
        state.problems += [f"{where}: {problem}" for problem in episode.problems[:20]]
        state.kills += episode.kills
        state.seconds += round(time.monotonic() - begun, 1)
        for name, count in episode.counts.items():
            state.counts[name] = state.counts.get(name, 0) + count
        if len(state.problems) > known:
            print(episode.log[-3000:], file=sys.stderr)


def main() -> int:
    parser = options_of(__doc__, "mqtt-crash", life=10, kills="kills to look after")
    parser.add_argument("--damage", type=int, default=-1, metavar="CYCLE", help="cut the journal there")
    parser.add_argument(
        "--patience", type=float, default=90.0, help="seconds for clients to get what there is to get"
    )
    options = parser.parse_args()
    session = Session(options, State)
    code = session.repeat(options.count, partial(live, session.state, options, session.folder))
    if code != INTERRUPTED:
        print(session.as_json(indent=not options.json))
    return code


if __name__ == "__main__":
    sys.exit(main())
