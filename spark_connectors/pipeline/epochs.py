"""One epoch: a plan is stored, its tables are written, its advice is sent.

The order makes a kill at any step harmless. The plan comes first, so a repeated epoch computes the same; its
tables are written as a whole; the advice goes by the sink that writes a batch once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.whole_file import write_whole

from . import filters, minutes, planning, quality, queries
from . import tables as t
from .advising import LIVE, Bench, Problem, SentSet, advice_of, content_digest
from .planning import Plan, Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = Log("treecast.pipeline")

_QUERY_ID = "sql.streaming.queryId"  # a local property of Spark's threads


class Outcome(Struct, frozen=True):
    """The advice for a network, or why there is none."""

    network: str
    advice: pb.TreeAdvice | None = None
    problem: str = ""

    @property
    def digest(self) -> str:
        return content_digest(self.advice) if self.advice is not None else ""


class Epochs:
    """The epochs of one pipeline. `address`: the Kafka face that advice goes to."""

    def __init__(
        self,
        spark: SparkSession,
        tables: t.Tables,
        address: str,
        settings: planning.Settings,
        told: Callable[[Plan, list[Outcome]], None] = lambda plan, outcomes: None,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._address = address
        self._settings = settings
        self._told = told

    # --- plans

    def plans(self) -> Iterator[Plan]:
        """Yields the stored plans by epoch."""
        paths = sorted(self._tables.plans.glob("*.json"), key=lambda path: int(path.stem))
        yield from (planning.decode(path.read_bytes()) for path in paths)

    def plan(self, epoch: int) -> Plan | None:
        path = self._path(epoch)
        return planning.decode(path.read_bytes()) if path.exists() else None

    def _path(self, epoch: int) -> Path:
        return self._tables.plans / f"{epoch}.json"

    def _planned(self, new: DataFrame, query: str, batch: int) -> Plan | None:
        """Returns the plan of a batch: the stored one of a batch that is repeated, else a new one; None if
        nothing has come.
        """
        stored = next((plan for plan in self.plans() if (plan.query, plan.batch) == (query, batch)), None)
        if stored is not None:
            return stored
        from pyspark.sql import functions as f

        end = new.agg(f.max(f.unix_micros("timestamp"))).collect()[0][0]
        if end is None:
            return None
        start = end - int(self._settings.window * 1e6)
        archive = self._archive()
        last = max((plan.epoch for plan in self.plans()), default=0)
        plan = Plan(
            planning.epoch_after(last, end),
            start,
            end,
            planning.ranges_of(topics.SENDS, queries.bounds(archive, start, end)),
            tuple(sorted(Topology(*one) for one in queries.last_topologies(archive))),
            self._settings,
            query,
            batch,
            planning.RULES,
        )
        write_whole(self._path(plan.epoch), planning.encode(plan))
        return plan

    # --- a batch of the query `advice`

    def take(self, new: DataFrame, batch: int) -> None:
        """Advises once per batch of the query that has new intervals."""
        query = new.sparkSession.sparkContext.getLocalProperty(_QUERY_ID) or ""
        plan = self._planned(new, query, batch)
        if plan is None:
            return
        outcomes = self.compute(plan, LIVE, keep=True)
        self._send(plan, outcomes)
        self._told(plan, outcomes)

    def _send(self, plan: Plan, outcomes: list[Outcome]) -> None:
        values = [(one.network, topics.encode(one.advice)) for one in outcomes if one.advice is not None]
        if not values:
            return
        writer = self._spark.createDataFrame(values, "key string, value binary").coalesce(1).write
        writer = writer.format("treecast").option("kafka.bootstrap.servers", self._address)
        writer = writer.option("topic", topics.ADVICE).option("batchId", str(plan.epoch))
        writer.option("queryName", f"pipeline-{self._tables.id}").mode("append").save()

    def filters_of(self, plan: Plan) -> str:
        """Returns the digest of an epoch's advice on filters, computed again from the archive."""
        counted, _ = _in_time(plan, queries.within(self._archive(), plan.ranges))
        return filters.digest(filters.of_records(counted))

    def compute(self, plan: Plan, source: str, *, keep: bool) -> list[Outcome]:
        """Computes an epoch's advice for each network. `keep`: whether its tables are written."""
        archive = self._archive()
        records = queries.within(archive, plan.ranges).cache()
        try:
            return self._computed(plan, archive, records, source, keep)
        finally:
            records.unpersist()

    def _computed(
        self, plan: Plan, archive: DataFrame, records: DataFrame, source: str, keep: bool
    ) -> list[Outcome]:
        intervals = queries.silver(records, t.INTERVALS).cache()
        boots = queries.boots_of(intervals)
        counted, late = _in_time(plan, records)
        sets = queries.sets_of(counted).cache()
        sent = queries.heaviest(sets, plan.settings.most_sets * max(1, len(plan.topologies)))
        problems, refused = self._problems(plan, archive, sent)
        candidates = queries.judged(self._spark, problems, plan.settings).cache() if problems else None
        seen = {one.host for one in boots if one.records > late.get((one.host, one.boot), 0)}
        absent = {one.network: quality.missing(_hosts(one), seen) for one in problems}
        rows = candidates.collect() if candidates is not None else []
        outcomes = [
            *refused,
            *(self._outcome(plan, one, rows, absent[one.network], source) for one in problems),
        ]
        if keep:
            missing = sorted({host for hosts in absent.values() for host in hosts})
            found = quality.findings(boots, queries.faults_of(intervals), missing, late)
            self._keep(plan, sets, candidates, found, outcomes)
            self._write(t.FILTER_ADVICE, plan, filters.of_records(counted))
        for frame in (sets, intervals, candidates):
            if frame is not None:
                frame.unpersist()
        return sorted(outcomes, key=lambda one: one.network)

    def _problems(
        self, plan: Plan, archive: DataFrame, sent: list[SentSet]
    ) -> tuple[list[Problem], list[Outcome]]:
        """Returns what can be tried, and the networks of which nothing can, with the reason."""
        problems, refused = [], []
        for place in plan.topologies:
            value = queries.topology_at(archive, place.partition, place.offset)
            try:
                known = topics.decode(pb.NetworkTopology, value)
                hosts = {known.names[node] for node in known.hosts}
                its = tuple(one for one in sent if one.host in hosts)
                problem = Problem(place.network, value, its, known.strategy)
                why = Bench(problem).why_not
            except (ValueError, IndexError) as error:
                why = f"its description cannot be used: {error}"
            if why:
                refused.append(Outcome(place.network, problem=why))
            else:
                problems.append(problem)
        return problems, refused

    def _outcome(
        self, plan: Plan, problem: Problem, rows: list[Any], absent: list[str], source: str
    ) -> Outcome:
        judged = [queries.outcome_of(row) for row in rows if row["network"] == problem.network]
        advice = advice_of(plan, self._tables.id, problem, judged, absent, source)
        if advice is None:
            faults = {one.fault for one in judged if one.fault}
            return Outcome(problem.network, problem=f"no trial was possible: {'; '.join(sorted(faults))}")
        return Outcome(problem.network, advice)

    # --- tables of an epoch

    def _keep(
        self,
        plan: Plan,
        sets: DataFrame,
        candidates: DataFrame | None,
        found: list[quality.Finding],
        outcomes: list[Outcome],
    ) -> None:
        spark = self._spark
        findings = [(one.check, one.host, one.value, one.text) for one in found]
        self._write(t.SETS, plan, sets)
        self._write(t.FREQUENCY, plan, queries.frequencies(sets))
        self._write(t.QUALITY, plan, spark.createDataFrame(findings, t.SCHEMAS[t.QUALITY]))
        self._write(t.ADVICE, plan, spark.createDataFrame(map(_advice_row, outcomes), t.SCHEMAS[t.ADVICE]))
        if candidates is not None:
            self._write(t.CANDIDATES, plan, candidates)

    def _write(self, table: str, plan: Plan, frame: DataFrame) -> None:
        frame.coalesce(1).write.mode("overwrite").parquet(self._tables.of_epoch(table, plan.epoch))

    def _archive(self) -> DataFrame:
        return queries.archive_of(self._spark, self._tables.path(t.BRONZE))


def _in_time(plan: Plan, records: DataFrame) -> tuple[DataFrame, dict[tuple[str, int], int]]:
    """Returns the records that count for advice, and by (host, boot) how many ended too early."""
    if plan.rules < 2:
        return records, {}
    early = minutes.ended_before(records, plan.window_start)
    late = queries.late_of(early)
    return (queries.without(records, early) if late else records), late


def _hosts(problem: Problem) -> list[str]:
    topology = topics.decode(pb.NetworkTopology, problem.topology)
    return [topology.names[node] for node in topology.hosts]


def _advice_row(one: Outcome) -> tuple[Any, ...]:
    advice = one.advice
    if advice is None:
        return (one.network, b"", "", "", 0.0, 0.0, 0, 0, one.problem)
    labels = (advice.labels_now, advice.labels_expected)
    value = topics.encode(advice)
    return (one.network, value, one.digest, advice.strategy, *labels, advice.rule_writes, advice.packets, "")
