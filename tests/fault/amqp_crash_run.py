#!/usr/bin/env python3
"""Kills the daemon at random points under AMQP load with confirms, and looks after each kill.

    amqp_crash_run.py --count 300 --seed 7

Three publishers send persistent messages to a fanout exchange, and publish again what was not confirmed. One
queue is consumed: most messages are acknowledged, some rejected and dead-lettered. Another is read after
each kill only. No message that was confirmed may be missing in either. None may be in a queue twice. One
that comes again has to be flagged as redelivered. Each that was rejected has to be among the dead letters,
once.

It can be ended with Ctrl-C and goes on where it was with the same command: finished cycles are in
out/amqp-crash/seed-N/state.json (`--fresh` begins again). Exit code: 0 nothing amiss, 1 something is, 130
interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from amqp_crash.episode import Episode
from resumable import run_lives

if __name__ == "__main__":
    sys.exit(run_lives(__doc__, "amqp-crash", Episode))
