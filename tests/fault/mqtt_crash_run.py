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

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from mqtt_crash.episode import Episode
from resumable import run_lives

if __name__ == "__main__":
    sys.exit(run_lives(__doc__, "mqtt-crash", Episode))
