"""Spark's queries of the pipeline, one for each concern, each with a checkpoint of its own.

    topics ─ bronze ─ silver_intervals, silver_sends, silver_streams
                    └ advice: one epoch per batch

A query can be stopped, started again and left out without the others. Rows are told apart by the broker's
append time and offset, since hosts' clocks differ: a host whose clock is wrong, or whose intervals waited, is
no later than others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from treecast.middleware.api import telemetry as topics
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.virtual.candidates import Judged, Trial

from . import rows as decoding
from . import tables as t
from .advising import Bench, Problem, SentSet, trials_of
from .planning import Plan, Range, Settings
from .quality import Boot

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import Column, DataFrame, SparkSession

ARCHIVED: Final = (topics.SENDS, topics.TOPOLOGY, topics.APPLIED)
REPEATED_WITHIN: Final = "1 hour"  # by append times: a repetition follows a lost answer within seconds
FRAME: Final = 10_000  # rows that a Python worker gives at once
_MOST_FAULTS: Final = 1000

RowsOf = Callable[[bytes | None, bytes | None, decoding.Place], Iterable[decoding.Row]]


# --- bronze


def bronze(spark: SparkSession, address: str) -> DataFrame:
    """Returns the stream of the archived topics as they come."""
    from pyspark.sql import functions as f

    reader = spark.readStream.format("treecast").option("kafka.bootstrap.servers", address)
    # The pipeline goes on after what retention has removed, and finds missing intervals by their numbers.
    reader = reader.option("failOnDataLoss", "false").option("startingOffsets", "earliest")
    came = reader.option("subscribe", ",".join(ARCHIVED)).load()
    place = ("partition", "offset", "timestamp")
    return came.select("key", "value", *place, f.current_timestamp().alias("ingested"), "topic").withColumns(
        {"date": f.to_date("timestamp"), "hour": f.hour("timestamp")}
    )


def bronze_stream(spark: SparkSession, path: str) -> DataFrame:
    """Returns the stream of intervals from the archive."""
    from pyspark.sql import functions as f

    archive = spark.readStream.schema(t.SCHEMAS[t.BRONZE]).parquet(path)
    return archive.where(f.col("topic") == topics.SENDS)


# --- silver


def one_interval(key: bytes | None, value: bytes | None, place: decoding.Place) -> Iterable[decoding.Row]:
    return (decoding.interval_row(key, value, place),)


_SILVER: Final[dict[str, tuple[RowsOf, tuple[str, ...]]]] = {
    t.INTERVALS: (one_interval, ("host", "boot", "seq", "fault")),
    t.SENDS: (decoding.set_rows, ("host", "boot", "seq", "carrier", "set_id", "rule_version")),
    t.STREAMS: (decoding.stream_rows, ("host", "boot", "seq", "stream", "receiver")),
}


def decoded(
    frames: Iterator[pandas.DataFrame], rows_of: RowsOf, columns: list[str]
) -> Iterator[pandas.DataFrame]:
    """Runs in executors: frames of the archive become frames of a silver table."""
    for frame in frames:
        places = zip(frame["partition"], frame["offset"], frame["timestamp"], strict=True)
        records = zip(frame["key"], frame["value"], places, strict=True)
        yield from framed(
            (row for key, value, place in records for row in rows_of(key, value, place)), columns
        )


def framed(rows: Iterable[decoding.Row], columns: Sequence[str]) -> Iterator[pandas.DataFrame]:
    """Yields rows as frames of at most `FRAME` rows: what a worker holds does not depend on how many come of
    one batch.
    """
    import pandas as pd

    left = iter(rows)
    while some := list(islice(left, FRAME)):
        yield pd.DataFrame(some, columns=list(columns))


def silver(archive: DataFrame, table: str) -> DataFrame:
    """Returns the rows of a silver table in an archive, with repetitions."""
    rows_of, _ = _SILVER[table]
    work = partial(decoded, rows_of=rows_of, columns=columns(table))
    return archive.mapInPandas(work, t.SCHEMAS[table])


def columns(table: str) -> list[str]:
    """Returns the names of a table's columns."""
    return [part.split()[0] for part in t.SCHEMAS[table].split(",")]


def silver_stream(spark: SparkSession, path: str, table: str) -> DataFrame:
    """Returns the stream of a silver table: each interval once."""
    rows = silver(bronze_stream(spark, path), table).withWatermark("timestamp", REPEATED_WITHIN)
    return rows.dropDuplicatesWithinWatermark(list(_SILVER[table][1]))


# --- an epoch


def archive_of(spark: SparkSession, path: str) -> DataFrame:
    """Returns the archive as it is now."""
    return spark.read.schema(t.SCHEMAS[t.BRONZE]).parquet(path)


def bounds(archive: DataFrame, start_us: int, end_us: int) -> list[tuple[int, int, int]]:
    """Returns (partition, lowest, highest offset) of intervals whose append time is in a window."""
    from pyspark.sql import functions as f

    stamp = f.unix_micros("timestamp")
    day = f.to_date(f.timestamp_micros(f.lit(start_us)))
    there = archive.where(
        (f.col("topic") == topics.SENDS) & (f.col("date") >= day) & (stamp >= start_us) & (stamp <= end_us)
    )
    found = there.groupBy("partition").agg(f.min("offset").alias("low"), f.max("offset").alias("high"))
    return [(row["partition"], row["low"], row["high"]) for row in found.collect()]


def last_topologies(archive: DataFrame) -> list[tuple[str, int, int]]:
    """Returns (network, partition, offset) of each network's last description."""
    from pyspark.sql import functions as f

    there = archive.where(f.col("topic") == topics.TOPOLOGY).withColumn("network", f.decode("key", "utf-8"))
    last = there.groupBy("network").agg(f.max(f.struct("offset", "partition")).alias("last"))
    return [(row["network"], row["last"]["partition"], row["last"]["offset"]) for row in last.collect()]


def topology_at(archive: DataFrame, partition: int, offset: int) -> bytes:
    """Returns the value of one description; empty if it is none."""
    from pyspark.sql import functions as f

    place = (f.col("partition") == partition) & (f.col("offset") == offset)
    found = archive.where((f.col("topic") == topics.TOPOLOGY) & place).select("value").limit(1).collect()
    return bytes(found[0]["value"] or b"") if found else b""


def within(archive: DataFrame, ranges: Iterable[Range]) -> DataFrame:
    """Returns the records of some ranges of offsets, and no others."""
    from pyspark.sql import functions as f

    chosen: Column = f.lit(False)
    for one in ranges:
        place = (f.col("topic") == one.topic) & (f.col("partition") == one.partition)
        chosen = chosen | (place & (f.col("offset") >= one.first) & (f.col("offset") < one.end))
    return archive.where(chosen)


def sets_of(records: DataFrame) -> DataFrame:
    """Returns packets and labels by host and set, each interval once: of repetitions the first counts.

    Packets of an interval of which a share of sets was listed count as many times as that share asks for.
    """
    from pyspark.sql import functions as f

    key = ["host", "boot", "seq", "carrier", "set_id", "rule_version"]
    counts = ["receivers", "packets", "sampled", "header_bytes", "hop_labels", "stop_labels", "tree_labels"]
    first = f.min(f.struct("partition", "offset", *counts)).alias("one")
    once = silver(records, t.SENDS).groupBy(*key).agg(first).select(*key, "one.*")
    once = once.withColumn("times", f.round(1 / f.col("sampled")).cast("long"))
    packets = f.col("packets") * f.col("times")
    judging = f.when(f.col("seq") % 3 == 2, packets).otherwise(0)
    labels = (f.col("hop_labels") + f.col("stop_labels") + f.col("tree_labels")) * f.col("times")
    return once.groupBy("host", "set_id").agg(
        f.min("receivers").alias("receivers"),
        f.sum(packets).alias("packets"),
        f.sum(judging).alias("held_out"),
        f.sum(labels).alias("labels"),
        f.sum(f.col("header_bytes") * f.col("times")).alias("header_bytes"),
    )


def late_of(early: DataFrame) -> dict[tuple[str, int], int]:
    """Returns the records of each (host, boot) among those that ended before a window."""
    found = early.groupBy("host", "boot").count().collect()
    return {(row["host"], row["boot"]): row["count"] for row in found}


def without(records: DataFrame, early: DataFrame) -> DataFrame:
    """Returns records without those at some places."""
    return records.join(early.select("partition", "offset"), ["partition", "offset"], "left_anti")


def frequencies(sets: DataFrame) -> DataFrame:
    """Returns the share of a publisher's packets that each receiver gets (the thesis, 5.3.6)."""
    from pyspark.sql import functions as f

    sent = sets.groupBy("host").agg(f.sum("packets").alias("sent"))
    got = sets.select("host", "packets", f.explode("receivers").alias("receiver"))
    got = got.groupBy("host", "receiver").agg(f.sum("packets").alias("received"))
    shares = got.join(sent, "host").withColumn("share", f.col("received") / f.col("sent"))
    return shares.select(f.col("host").alias("publisher"), "receiver", "sent", "received", "share")


def heaviest(sets: DataFrame, most: int) -> list[SentSet]:
    """Returns the sets with most packets, the same ones whenever it is asked."""
    from pyspark.sql import functions as f

    ordered = sets.orderBy(f.desc("packets"), "host", "set_id").limit(most).collect()
    return sorted(
        SentSet(row["host"], tuple(row["receivers"]), row["packets"], row["held_out"]) for row in ordered
    )


def boots_of(intervals: DataFrame) -> list[Boot]:
    """Returns the boots of hosts in the intervals, which have repetitions."""
    from pyspark.sql import functions as f

    ahead = (f.col("to_us") - f.unix_micros("timestamp")) / 1e6
    found = (
        intervals.where("fault = ''")
        .groupBy("host", "boot")
        .agg(
            f.min("seq").alias("first"),
            f.max("seq").alias("last"),
            f.count_distinct("seq").alias("different"),
            f.count("*").alias("records"),
            f.max(ahead).alias("ahead"),
            f.max(-ahead).alias("behind"),
            f.min("sampled").alias("sampled"),
        )
    )
    return [Boot(**row.asDict()) for row in found.collect()]


def faults_of(intervals: DataFrame) -> list[tuple[str, str]]:
    """Returns (host, text) of records that cannot be; at most `_MOST_FAULTS`."""
    found = intervals.where("fault <> ''").select("host", "fault").limit(_MOST_FAULTS).collect()
    return [(row["host"], row["fault"]) for row in found]


# --- trials

_GRID: Final = "network string, strategy string, threshold double, seed long"


def judged(spark: SparkSession, problems: list[Problem], settings: Settings) -> DataFrame:
    """Returns a row of `gold_candidates` for each network and trial, computed by the executors."""
    grid = [
        (one.network, trial.strategy, trial.threshold, trial.seed)
        for one in problems
        for trial in trials_of(one, settings)
    ]
    spread = min(len(grid), 4 * int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    work = partial(tried, problems={one.network: one for one in problems})
    return spark.createDataFrame(grid, _GRID).repartition(spread).mapInPandas(work, t.SCHEMAS[t.CANDIDATES])


def tried(frames: Iterator[pandas.DataFrame], problems: dict[str, Problem]) -> Iterator[pandas.DataFrame]:
    """Runs in executors: trials become their outcomes."""
    import pandas as pd

    named = columns(t.CANDIDATES)
    benches: dict[str, Bench] = {}
    for frame in frames:
        rows = []
        for network, strategy, threshold, seed in frame.itertuples(index=False):
            bench = benches.get(network) or benches.setdefault(network, Bench(problems[network]))
            began = time.perf_counter()
            outcome = bench.run(Trial(strategy, float(threshold), int(seed)))
            rows.append(_outcome_row(network, outcome, 1000 * (time.perf_counter() - began)))
        yield pd.DataFrame(rows, columns=named)


def _outcome_row(network: str, one: Judged, ms: float) -> decoding.Row:
    trees = [members(edges) for edges in one.trees]
    trial = (one.trial.strategy, one.trial.threshold, one.trial.seed)
    return (network, *trial, one.labels, one.rules, one.writes, ms, trees, one.fault)


def outcome_of(row: Any) -> Judged:
    """Returns the outcome in a row of `gold_candidates`."""
    trial = Trial(row["strategy"], row["threshold"], row["seed"])
    trees = tuple(mask_of(edges) for edges in row["trees"])
    return Judged(trial, row["labels"], row["rules"], row["rule_writes"], trees, row["fault"])


def plan_of(plan: Plan) -> str:
    """Returns the name of a plan in logs."""
    return f"epoch {plan.epoch}, {sum(one.end - one.first for one in plan.ranges)} intervals"
