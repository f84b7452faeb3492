"""The comparison of Spark's connectors: ours on a daemon, Spark's own on the same daemon and on Apache Kafka.

All run in turns. Beside the ratios, the report shows a row's total cost on one core, and Python's part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.core.measure import Metric
from bench.core.rounds import Progress
from bench.core.versus import Versus
from bench.peers.kafka import KafkaBroker
from bench.peers.spark import Bare, Combination
from bench.peers.treecast import TreecastPeer
from bench.workloads.spark import (
    BATCH_ROWS,
    LATENCY,
    PARTITIONS,
    READ,
    READ_COST,
    THROUGH,
    WRITE,
    WRITE_COST,
    SparkJob,
)
from bench.workloads.spark_micro import MicroRounds

OURS = "treecast on a daemon"
SMALL = "treecast on a daemon, small batches read beside the driver"
SAME = "Spark's Kafka connector on a daemon"
THEIRS = "Spark's Kafka connector on Apache Kafka"
FLOOR = "floor: a bare Python source and sink"
NAMES = ("ours", "connector", "kafka")
MICRO_NAMES = ("ours", "small", "connector", "kafka", "floor")  # two are about micro-batches alone
OURS_ALL = (OURS, SMALL)
PANELS = (READ, WRITE, LATENCY, THROUGH)
MICRO = "micro"  # the part that can be run alone

_ASKED: dict[Metric, float | None] = {READ: 1.0, WRITE: 1.0, LATENCY: 1.0, THROUGH: 1.0}
_BESIDE: dict[Metric, float | None] = {READ_COST: None, WRITE_COST: None}
AGAINST = (
    Versus(OURS, SAME, _ASKED | _BESIDE, FLOOR),
    Versus(OURS, THEIRS, _ASKED | _BESIDE, FLOOR),
    Versus(SMALL, SAME, _ASKED, FLOOR),
    Versus(SMALL, THEIRS, _ASKED, FLOOR),
    Versus(FLOOR, SAME, dict.fromkeys((LATENCY, THROUGH))),
)


def combinations(
    names: Sequence[str], python: str, fsync: str, folder: Path, jars: Sequence[Path] | None = None
) -> list[Combination]:
    """Returns combinations by name. Raises KeyError for a name outside MICRO_NAMES. `jars`: of Spark's Kafka
    connector, otherwise from Maven.
    """
    given = jars or ()
    known = {
        "ours": Combination(OURS, TreecastPeer(python=python, fsync=fsync, parent=folder), "treecast"),
        "small": Combination(
            SMALL,
            TreecastPeer(python=python, fsync=fsync, parent=folder),
            "treecast",
            reading={"driverReadMaxRows": str(BATCH_ROWS)},
        ),
        "connector": Combination(
            SAME, TreecastPeer(python=python, fsync=fsync, parent=folder), "kafka", given
        ),
        "kafka": Combination(THEIRS, KafkaBroker(parent=folder), "kafka", given),
        "floor": Bare(FLOOR, BATCH_ROWS, PARTITIONS),
    }
    return [known[name] for name in names]


def workload(rows: int, size: int, batches: int, python: str) -> SparkJob:
    """Returns the workload. `python`: the interpreter whose treecast Spark's tasks import, compiled
    or not.
    """
    return SparkJob(rows, size, batches, _packages(python))


def micro(
    peers: Sequence[Combination], batches: int, rounds: int, python: str, progress: Progress
) -> MicroRounds:
    """Returns micro-batches alone: turns of `batches` in one warm session."""
    return MicroRounds(peers, batches, rounds, _packages(python), progress)


def _packages(python: str) -> str:
    """Returns the interpreter's site-packages if they contain a compiled treecast, else an empty string."""
    found = sorted(Path(python).parent.parent.glob("lib/python3*/site-packages/treecast_hot__mypyc*.so"))
    return str(found[0].parent) if found else ""
