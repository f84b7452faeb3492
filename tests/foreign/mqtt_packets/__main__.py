"""Random sequences of MQTT packets at two brokers: what clients see of both has to be the same.

    python -m tests.foreign.mqtt_packets [--seeds FIRST:END] [--steps N] [--far] [--verbose]

One broker is a daemon. The other is the system's Mosquitto, or with `--far` a cluster of two hosts to which
the clients connect in turn. Each seed is one sequence of three clients, 3.1.1 and 5.0: sessions, wills,
subscriptions with their options, messages of all QoS, acknowledgements that are held back. It ends at its
first difference.

What is compared: session present and reasons, messages with QoS, retain and duplicate flags, subscription
identifiers and properties. The order of what one step causes is not compared.

Exit code 0: no difference. 2: Mosquitto is not installed.
"""

from __future__ import annotations

import sys

from bench.peers.mosquitto import INSTALL, program
from tests.foreign.sequences import command

from .comparison import run


def lacking() -> str | None:
    return None if program() else INSTALL


if __name__ == "__main__":
    sys.exit(
        command("tests.foreign.mqtt_packets", __doc__, peer="Mosquitto", steps=100, lacking=lacking, run=run)
    )
