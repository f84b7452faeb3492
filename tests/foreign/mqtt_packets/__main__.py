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

import argparse
import sys

from bench.peers.mosquitto import program
from rich.console import Console

from .comparison import Comparison


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.mqtt_packets", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seeds", metavar="FIRST:END", default="0:50")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--far", action="store_true", help="compare with two hosts, not with Mosquitto")
    parser.add_argument("--verbose", action="store_true", help="print every step and what is seen of it")
    options = parser.parse_args()
    console = Console()
    begin, _, end = options.seeds.partition(":")
    seeds = range(int(begin), int(end or int(begin) + 1))
    if not options.far and program() is None:
        console.print("mosquitto is not installed", markup=False)
        return 2
    found = Comparison(options.far, options.steps, console, verbose=options.verbose).run(seeds)
    console.print(f"{len(seeds)} sequences of {options.steps} steps, {len(found)} differ", highlight=False)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
