"""A pipeline as it runs: one Spark session, rounds of all its queries, replay.

A round runs the queries one after the other, each up to the end of its input, so that an epoch has all that
had come when its round began. A query that fails is named, and goes on in the next round; the others do not
wait for it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.own_topics import OwnTopics
from treecast.middleware.model.logs import Log
from treecast.spark_connectors.workers import quick_start

from . import filters, queries
from . import tables as t
from .advising import REPLAY
from .epochs import Epochs, Outcome
from .measuring import Measures, MeasureSettings
from .planning import Plan, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = Log("treecast.pipeline")

EPOCHS: Final = "advice"  # the query that advises
MEASURES: Final = "measures"  # the query whose tables are by minute and window
FILTERS: Final = "(filters)"  # in place of a network, of advice on filters
QUERIES: Final = (*t.STREAMED, EPOCHS, MEASURES)
LOCAL: Final = "local[2]"
MEMORY: Final = "2g"
_BATCH: Final = 1000  # intervals that a Python worker holds at once: each has up to 256 sets

# Minutes are folders, and a local disk lists some hundred of them faster than tasks for it begin.
_HERE: Final = {"spark.sql.sources.parallelPartitionDiscovery.threshold": "10000"}
_IN_PROCESS: Final = re.compile(r"local(\[.*\])?")  # masters whose executor is the driver
_ERROR: Final = re.compile(r"[\w.]*(Error|Refused|NotReached|Unreadable)\b.*: ")

Told = Callable[[str], None]


class Ran(Struct, frozen=True):
    """One query in a round. `fault`: why it failed."""

    query: str
    rows: int
    seconds: float
    fault: str = ""


class Replayed(Struct, frozen=True):
    """An epoch's advice for a network, or on filters, as it was and as it was computed again; digests."""

    epoch: int
    network: str
    live: str
    again: str

    @property
    def equal(self) -> bool:
        return self.live == self.again


def session(master: str = LOCAL, parts: int = 2, memory: str = MEMORY) -> SparkSession:
    """Returns a Spark session. `parts`: tasks of a shuffle. `memory`: the driver's, as Spark writes it; what
    does not fit is on disk.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    here = master.startswith("local")  # also the workers of a `local-cluster`
    if here:
        quick_start()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("treecast pipeline").master(master)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(parts),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.driver.memory": memory,
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(_BATCH),
        **(_HERE if here else {}),
        **_packages(master),
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _packages(master: str) -> dict[str, str]:
    """Returns what executors in processes of their own need to import what this process does."""
    path = os.environ.get("PYTHONPATH", "")
    return {"spark.executorEnv.PYTHONPATH": path} if path and not _IN_PROCESS.fullmatch(master) else {}


class Pipeline:
    """The pipeline in a folder. Use it as a context: it holds the folder meanwhile."""

    def __init__(
        self,
        tables: t.Tables,
        address: str,
        settings: Settings,
        spark: SparkSession,
        say: Told = lambda line: None,
        measured: MeasureSettings | None = None,
    ) -> None:
        self._tables = tables
        self._address = address
        self._spark = spark
        self._say = say
        self.epochs = Epochs(spark, tables, address, settings, self._tell)
        self.measures = Measures(spark, tables, measured or MeasureSettings(), say)

    def prepare(self) -> None:
        """Makes the topics that do not exist. Raises NotReached."""
        own = OwnTopics(self._address)
        try:
            own.ensure((topics.SENDS, topics.TOPOLOGY, topics.ADVICE, topics.APPLIED))
        finally:
            own.close()

    def round(self, names: Sequence[str] = QUERIES) -> list[Ran]:
        """Runs these queries up to the end of what has come."""
        found = []
        for name in names:
            if name != t.BRONZE and not self._has_archive():
                continue  # nothing has ever come
            began = time.perf_counter()
            try:
                rows, fault = self._drain(name), ""
            except Exception as error:  # Spark raises several kinds, and the next round goes on from here
                rows, fault = 0, _reason(error)
                _log.warning("query failed", query=name, error=fault)
            found.append(Ran(name, rows, time.perf_counter() - began, fault))
        return found

    def _has_archive(self) -> bool:
        return any(Path(self._tables.path(t.BRONZE)).glob("topic=*"))

    def _drain(self, name: str) -> int:
        if self._tables.make_way(name):
            _log.info("query begins anew: it was killed before its first batch", query=name)
        writer: Any = self._frame(name).writeStream.queryName(name)
        writer = writer.option("checkpointLocation", self._tables.checkpoint(name)).trigger(availableNow=True)
        takers = {EPOCHS: self.epochs.take, MEASURES: self.measures.take}
        if name in takers:
            query = writer.foreachBatch(takers[name]).start()
        else:
            if name == t.BRONZE:
                writer = writer.partitionBy("topic", "date", "hour")
            query = writer.format("parquet").option("path", self._tables.path(name)).start()
        query.awaitTermination()
        return sum(one["numInputRows"] for one in query.recentProgress)

    def _frame(self, name: str) -> DataFrame:
        if name == t.BRONZE:
            return queries.bronze(self._spark, self._address)
        archive = self._tables.path(t.BRONZE)
        if name in (EPOCHS, MEASURES):
            return queries.bronze_stream(self._spark, archive).select("partition", "offset", "timestamp")
        return queries.silver_stream(self._spark, archive, name)

    def _tell(self, plan: Plan, outcomes: list[Outcome]) -> None:
        for one in outcomes:
            self._say(f"epoch {plan.epoch}  {one.network}: {_text(one)}")
        if not outcomes:
            self._say(f"epoch {plan.epoch}  no network is described: start a tree manager with `advice`")

    # --- replay

    def replay(self, epochs: Sequence[int] = ()) -> Iterator[Replayed]:
        """Computes epochs again from the archive, all by default; writes nothing."""
        for plan in self.epochs.plans():
            if epochs and plan.epoch not in epochs:
                continue
            live = self._digests(plan.epoch)
            again = {one.network: one.digest for one in self.epochs.compute(plan, REPLAY, keep=False)}
            for network in sorted(live.keys() | again.keys()):
                yield Replayed(plan.epoch, network, live.get(network, "none"), again.get(network, "none"))
            kept = self._tables.of_epoch(t.FILTER_ADVICE, plan.epoch)
            if Path(kept).exists():
                advised = self._spark.read.schema(t.SCHEMAS[t.FILTER_ADVICE]).parquet(kept)
                yield Replayed(plan.epoch, FILTERS, filters.digest(advised), self.epochs.filters_of(plan))

    def _digests(self, epoch: int) -> dict[str, str]:
        path = self._tables.of_epoch(t.ADVICE, epoch)
        if not Path(path).exists():
            return {}  # it was planned, and a kill came before its advice
        return {row["network"]: row["digest"] for row in self._spark.read.parquet(path).collect()}


def _text(one: Outcome) -> str:
    if one.advice is None:
        return one.problem
    advice = one.advice
    change = f"{advice.labels_now:.2f} -> {advice.labels_expected:.2f} {topics.measure_of(advice.kind)}"
    missing = f", without {', '.join(advice.hosts_missing[:5])}" if advice.hosts_missing else ""
    writes = f"{advice.rule_writes} rule writes"
    return f"{advice.strategy}, {change}, {writes}, from {advice.packets:,} packets{missing}"


def _reason(error: Exception) -> str:
    """Returns the line that says why: of a failed batch the innermost Python error, else the first one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    named = [line for line in lines if _ERROR.match(line)]
    return (named[-1] if named else lines[0])[:300]
