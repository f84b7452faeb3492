#!/usr/bin/env python3
"""Kills the daemon at random points under MQTT load of QoS 1 and 2, and checks the sessions after each kill.

    mqtt_crash_run.py --count 300 --seed 7

Four publishers, a connected subscriber, and one that is away during the load, all with persistent sessions.
With QoS 1 no acknowledged message may be missing; with QoS 2 none may be missing or doubled.

It can be interrupted with Ctrl-C; the same command continues: finished cycles are in
out/mqtt-crash/seed-N/state.json (`--fresh` starts over). Exit code: 0 no problem, 1 a problem, 130
interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mqtt_crash.episode import Episode
from resumable import run_lives

if __name__ == "__main__":
    sys.exit(run_lives(__doc__, "mqtt-crash", Episode))
