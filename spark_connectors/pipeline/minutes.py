"""Intervals as minutes: each counted once, at the time when it was, whenever it came.

An interval has two times: its end by the host's clock, and its append by the broker's. Clocks differ, and
intervals may wait for hours at a host that is cut off. The least difference of both among the intervals of
one boot tells the clock's error (as in NTP's clock filter, RFC 5905, 10): the most prompt interval came at
once. So the end of each interval by the broker's clock is its end by the host's clock plus that difference.
A host all of whose intervals are late looks like one whose clock is behind; the finding `late` names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from . import queries
from . import rows as decoding
from . import tables as t

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import Column, DataFrame

OLDEST: Final = 24 * 3600  # seconds: what is later than that counts when it comes

SlotRows = Callable[[bytes, int], Iterable[decoding.Row]]


def timed(archive: DataFrame, step: int) -> DataFrame:
    """Returns a row for each sound interval: its place, host, `at_us`, and `slot`, the start of its minute
    (of `step` seconds) in seconds. `copy`: 1 for the first record of an interval, more for its repetitions.
    `clock`: microseconds by which the host's clock is behind.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    found = queries.silver(archive, t.INTERVALS).where("fault = ''")
    found = found.withColumn("came", f.unix_micros("timestamp"))
    copies = Window.partitionBy("host", "boot", "seq").orderBy("came", "partition", "offset")
    boot = Window.partitionBy("host", "boot")
    # In this order: rows that are together by boot are so by interval, and move once.
    found = found.withColumn("clock", f.min(f.col("came") - f.col("to_us")).over(boot))
    found = found.withColumn("copy", f.row_number().over(copies))
    found = found.withColumn("at_us", f.col("to_us") + f.col("clock"))
    # A clock that was set in the middle of a boot would name a time long ago.
    late = f.col("came") - f.col("at_us") > OLDEST * 1_000_000
    found = found.withColumn("at_us", f.when(late, f.col("came")).otherwise(f.col("at_us")))
    middle = f.col("at_us") - (f.col("to_us") - f.col("from_us")) / 2
    kept = ("partition", "offset", "host", "zone", "boot", "seq", "sampled", "came", "at_us", "clock", "copy")
    return found.withColumn("slot", _start(middle / 1e6, step)).select(*kept, "slot")


def _start(seconds: Column, step: int) -> Column:
    from pyspark.sql import functions as f

    return (f.floor(seconds / step) * step).cast("long")


def once(places: DataFrame) -> DataFrame:
    """Returns the first record of each interval."""
    return places.where("copy = 1")


def ended_before(archive: DataFrame, start_us: int) -> DataFrame:
    """Returns the intervals that ended before a time, though they came after it."""
    return timed(archive, 1).where(f"at_us < {start_us}")


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

    late = (f.col("came") - f.col("at_us")) / 1e6
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
