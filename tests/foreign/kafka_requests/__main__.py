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

import sys

from bench.peers.kafka.jars import missing_tools
from tests.foreign.sequences import command

from .comparison import run


def lacking() -> str | None:
    missing = missing_tools()
    return f"Kafka needs {' and '.join(missing)} on the PATH" if missing else None


if __name__ == "__main__":
    sys.exit(
        command("tests.foreign.kafka_requests", __doc__, peer="Kafka", steps=200, lacking=lacking, run=run)
    )
