"""Micro-batches of several connectors in turns, in one Spark session.

    python -m bench.workloads.spark_turns JSON

`asked`: cases (name, address, connector, reading: options of the source), jars, rounds, batches. Before the
rounds, each case has a turn in which the JVM compiles its code. Prints a line of JSON for each turn: the
case, the sink (nothing or its own), and the median ms of its batches' phases.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.floor.spark import BareSource
from bench.workloads.spark_job import Durations, micro_batches, session, warm
from treecast.spark_connectors.workers import quick_start

SINKS = ("noop", "connector")
PHASES = ("triggerExecution", "latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")


def turns(cases: Sequence[Any], rounds: int) -> Iterator[tuple[int, Any, str]]:
    """Round 0 warms up; the order alternates."""
    for number in range(rounds + 1):
        for sink in SINKS:
            for case in cases if number % 2 else reversed(cases):
                yield number, case, sink


def phases(batches: Sequence[Durations]) -> dict[str, float]:
    """Medians; each phase has one of its own, so they need not add up."""
    counted = warm(batches)
    return {name: statistics.median(one.get(name, 0) for one in counted) for name in PHASES}


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text())
    quick_start()
    spark = session(asked["jars"])
    spark.dataSource.register(BareSource)
    for number, case, sink in turns(asked["cases"], asked["rounds"]):
        options = {"kafka.bootstrap.servers": case["address"]}
        told: dict[str, Any] = {"name": case["name"], "round": number, "sink": sink}
        try:
            read = micro_batches(spark, case["connector"], options, sink, asked["batches"], case["reading"])
            told["phases"] = phases(read)
        except RuntimeError as error:
            told["failed"] = str(error)[:1000]
        print("TURN " + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
