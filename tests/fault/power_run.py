#!/usr/bin/env python3
"""Loses the power under load of all faces, and checks after each restart what the fsync policy promises.

    LAZYFS=/opt/lazyfs/lazyfs/build/lazyfs power_run.py --count 60 --seed 7

The data directory is on LazyFS, which loses what was not forced to the disk. Kafka: an idempotent producer,
transactions with offsets, commits, topics made and deleted, records deleted. AMQP: messages with confirms in
a durable queue, queues and bindings. MQTT: QoS 1 and 2 for a session that is away, retained messages,
sessions.
Lives alternate between `batch`, `interval` and `never`, and between a host alone and one with a coordinator.

    batch     everything that was answered is there, and nothing twice
    interval  everything that was answered more than the interval and 2 s for the sync before is there
    never     the daemon starts and serves, and has everything that the disk had at the last write-back

LazyFS: github.com/dsrhaslab/lazyfs, built with `build.sh` in libs/libpcache and then in lazyfs; it needs g++,
cmake, libfuse3-dev and fuse3. Without it the run says so, and does nothing.

It can be interrupted with Ctrl-C; the same command continues: finished cycles are in
out/power/seed-N/state.json (`--fresh` starts over). Exit code: 0 no problem, or no LazyFS here; 1 a problem,
130 interrupted.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from power.episode import Episode
from power.lazyfs import missing
from resumable import INTERRUPTED, Lives, Session, live, options_of

COUNT = 60  # 20 for each policy


def main() -> int:
    parser = options_of(__doc__, "power", life=10, kills="power losses")
    parser.set_defaults(count=COUNT)
    parser.add_argument(
        "--damage", type=int, default=-1, metavar="CYCLE", help="cut off stored data in this cycle"
    )
    parser.add_argument("--patience", type=float, default=90.0, help="seconds that an audit may take")
    options = parser.parse_args()
    reason = missing()
    if reason:
        print(json.dumps({"skipped": reason}))
        return 0
    session = Session(options, Lives)
    code = session.repeat(options.count, partial(live, Episode, session.state, options, session.folder))
    if code != INTERRUPTED:
        print(session.as_json(indent=not options.json))
    return code


if __name__ == "__main__":
    sys.exit(main())
