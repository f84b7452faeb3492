"""Random sequences of Kafka requests at two servers: what a client sees of both has to be the same.

    python -m tests.foreign.kafka_requests [--seeds FIRST:END] [--steps N] [--far] [--verbose]

One server is a daemon. The other is a real Kafka, which the first run fetches with Maven, or with `--far` the
second host of a cluster, while all topics are created at the first. Each seed is one sequence with topics,
producers and groups of its own; it ends at its first difference.

What is compared: every field of every response, with few exceptions (`view.py`). Ids are compared by what
they stand for. Of a request that is wrong in two ways, the servers may name different ones (`comparison.py`).
What differs by design is not tried; `steps` says where and why.

Exit code 0: no difference. 2: Java, or Maven for the first run, is missing.
"""

from __future__ import annotations

import argparse
import sys

from bench.peers.kafka.jars import missing_tools
from rich.console import Console

from .comparison import Comparison


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.foreign.kafka_requests", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--seeds", metavar="FIRST:END", default="0:50")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--far", action="store_true", help="compare with another host, not with Kafka")
    parser.add_argument("--verbose", action="store_true", help="print every step and what is seen of it")
    options = parser.parse_args()
    console = Console()
    begin, _, end = options.seeds.partition(":")
    seeds = range(int(begin), int(end or int(begin) + 1))
    if not options.far and (missing := missing_tools()):
        console.print(f"Kafka needs {' and '.join(missing)} on the PATH")
        return 2
    found = Comparison(options.far, options.steps, console, verbose=options.verbose).run(seeds)
    console.print(f"{len(seeds)} sequences of {options.steps} requests, {len(found)} differ", highlight=False)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
