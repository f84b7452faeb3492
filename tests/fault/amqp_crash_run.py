#!/usr/bin/env python3
"""Kills the daemon at random points under AMQP load with confirms, and checks the queues after each kill.

    amqp_crash_run.py --count 300 --seed 7

Three publishers send persistent messages to a fanout exchange, and publish unconfirmed messages again. One
queue has a consumer, which acknowledges most messages and rejects some; rejected messages are dead-lettered.
Another queue is read only after each kill. Both queues must hold every confirmed message. Neither may hold an
attempt twice. A repeated delivery must be flagged as redelivered. Each rejected message must be among the
dead letters exactly once.

With `--hosts` there are two daemons: clients are beside one, and the other has the queues. The other is
killed, and sometimes both.

It can be interrupted with Ctrl-C; the same command continues: finished cycles are in
out/amqp-crash/seed-N/state.json (`--fresh` starts over). Exit code: 0 no problem, 1 a problem, 130
interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from amqp_crash.episode import Episode
from amqp_crash.hosts import HostsEpisode
from resumable import run_lives

if __name__ == "__main__":
    if "--hosts" in sys.argv:
        sys.argv.remove("--hosts")
        sys.exit(run_lives(__doc__, "amqp-crash-hosts", HostsEpisode))
    sys.exit(run_lives(__doc__, "amqp-crash", Episode))
