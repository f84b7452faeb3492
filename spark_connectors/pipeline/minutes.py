"""Intervals as minutes: each counted once, at the time when it was, whenever it came.

An interval has two times: its end by the host's clock, and its append by the broker's. Clocks differ, and
intervals may wait for hours at a host that is cut off. The least difference of both among the intervals of
one boot tells the clock's error (as in NTP's clock filter, RFC 5905, 10): the most prompt interval came at
once. So the end of each interval by the broker's clock is its end by the host's clock plus that difference.
`clocks` keeps it from batch to batch, rounded, so that an interval stays in its minute.

A host all of whose intervals are late looks like one whose clock is behind; the finding `late` names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from . import queries
from . import rows as decoding
from . import tables as t
from .clocks import OLDEST, Boot, Clock

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import Column, DataFrame

SlotRows = Callable[[bytes, int], Iterable[decoding.Row]]


def differences(archive: DataFrame) -> dict[Boot, Clock]:
    """Returns what the intervals of an archive say about clocks."""
    from pyspark.sql import functions as f

    came = f.col("came")
    found = (
        _sound(archive)
        .groupBy("host", "boot")
        .agg(
            f.min(came - f.col("to_us")).alias("least"), f.min(came).alias("first"), f.max(came).alias("last")
        )
    )
    return {
        (row["host"], row["boot"]): Clock(row["least"], row["first"], row["last"]) for row in found.collect()
    }


def timed(archive: DataFrame, clocks: DataFrame, step: int) -> DataFrame:
    """Returns a row for each sound interval: its place, host, `at_us`, and `slot`, the start of its minute
    (of `step` seconds) in seconds. `copy`: 1 for the first record of an interval, more for its repetitions.
    `clock`: microseconds by which the host's clock is behind. `was`: the minute by the clock before.

    `clocks`: rows of `tables.CLOCKS` for all boots. The plain reference is `clocks.slot_of`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    copies = Window.partitionBy("host", "boot", "seq").orderBy("came", "partition", "offset")
    found = _sound(archive).join(f.broadcast(clocks), ["host", "boot"])
    found = found.withColumn("copy", f.row_number().over(copies))
    found = found.withColumn("at_us", _ended(f.col("clock")))
    slot, was = _slot(f.col("at_us"), step), _slot(_ended(f.col("before")), step)
    found = found.withColumns({"slot": slot, "was": f.when(f.col("before").isNotNull(), was)})
    kept = ("partition", "offset", "host", "zone", "boot", "seq", "sampled", "came", "at_us", "clock", "copy")
    return found.select(*kept, "slot", "was")


def _sound(archive: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        queries.silver(archive, t.INTERVALS)
        .where("fault = ''")
        .withColumn("came", f.unix_micros("timestamp"))
    )


def _ended(clock: Column) -> Column:
    """Returns the end of an interval by the broker's clock, in microseconds."""
    from pyspark.sql import functions as f

    at = f.col("to_us") + clock
    # A clock that was set in the middle of a boot would name a time long ago.
    return f.when(f.col("came") - at > OLDEST * 1_000_000, f.col("came")).otherwise(at)


def _slot(at: Column, step: int) -> Column:
    from pyspark.sql import functions as f

    middle = at - (f.col("to_us") - f.col("from_us")) / 2
    return (f.floor(middle / 1e6 / step) * step).cast("long")


def once(places: DataFrame) -> DataFrame:
    """Returns the first record of each interval."""
    return places.where("copy = 1")


def ended_before(archive: DataFrame, start_us: int) -> DataFrame:
    """Returns the intervals that ended before a time, though they came after it. Their clocks are not
    rounded, and are told by these records alone: plans are replayed so.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    least = f.min(f.col("came") - f.col("to_us")).over(Window.partitionBy("host", "boot"))
    found = _sound(archive).withColumn("clock", least)
    return found.withColumn("at_us", _ended(f.col("clock"))).where(f"at_us < {start_us}")


# --- tables


def sends(archive: DataFrame, places: DataFrame) -> DataFrame:
    """Returns `silver_minutes`: what a host has sent to a set of receivers in a minute."""
    key = ["slot", "host", "zone", "carrier", "set_id", "receivers"]
    return _summed(archive, places, decoding.sends_of_slot, t.MINUTES, key)


def streams(archive: DataFrame, places: DataFrame) -> DataFrame:
    """Returns `silver_stream_minutes`: records of a stream for a receiver in a minute."""
    key = ["slot", "host", "stream", "receiver"]
    return _summed(archive, places, decoding.streams_of_slot, t.STREAM_MINUTES, key)


def filters(archive: DataFrame, places: DataFrame) -> DataFrame:
    """Returns `silver_filter_minutes`: what a host's filters have judged of what came from an origin."""
    key = ["slot", "host", "origin", "set", "open", "patterns", "filter", "filters"]
    return _summed(archive, places, decoding.filters_of_slot, t.FILTER_MINUTES, key)


def changes(archive: DataFrame, places: DataFrame) -> DataFrame:
    """Returns `silver_change_minutes`: subscriptions that a client began and ended in a minute."""
    key = ["slot", "host", "client", "pattern", "filter"]
    return _summed(archive, places, decoding.changes_of_slot, t.CHANGE_MINUTES, key)


def repairs(archive: DataFrame, places: DataFrame) -> DataFrame:
    """Returns `silver_repair_minutes`: what a stream has sent again in a minute."""
    key = ["slot", "host", "stream", "carrier"]
    return _summed(archive, places, decoding.repairs_of_slot, t.REPAIR_MINUTES, key)


def hosts(places: DataFrame) -> DataFrame:
    """Returns `silver_host_minutes`: intervals of a host in a minute, by the broker's clock."""
    from pyspark.sql import functions as f

    late = f.greatest(f.col("came") - f.col("at_us"), f.lit(0)) / 1e6  # a rounded clock may be ahead
    counted = places.groupBy("slot", "host").agg(
        f.max("zone").alias("zone"),
        f.sum(f.when(f.col("copy") == 1, 1).otherwise(0)).alias("intervals"),
        f.sum(f.when(f.col("copy") > 1, 1).otherwise(0)).alias("repeated"),
        f.min("sampled").alias("sampled"),
        f.max(late).alias("late_s"),
        f.min(f.col("clock") / 1e6).alias("clock_s"),
    )
    return counted.select(*queries.columns(t.HOST_MINUTES))


def _summed(
    archive: DataFrame, places: DataFrame, rows_of: SlotRows, table: str, key: list[str]
) -> DataFrame:
    from pyspark.sql import functions as f

    # Places are small: they go to where the values are, and values move nowhere.
    where = f.broadcast(once(places).select("partition", "offset", "slot"))
    records = archive.select("partition", "offset", "value").join(where, ["partition", "offset"])
    columns = queries.columns(table)
    work = partial(_decoded, rows_of=rows_of, columns=columns)
    rows = records.select("value", "slot").mapInPandas(work, t.SCHEMAS[table])
    sums = [f.sum(name).alias(name) for name in columns if name not in key]
    return rows.groupBy(*key).agg(*sums).select(*columns)


def _decoded(
    frames: Iterator[pandas.DataFrame], rows_of: SlotRows, columns: list[str]
) -> Iterator[pandas.DataFrame]:
    """Runs in executors: records become rows of their minute."""
    for frame in frames:
        records = zip(frame["value"], frame["slot"], strict=True)
        yield from queries.framed((row for value, slot in records for row in rows_of(value, slot)), columns)
