"""The query `measures`: minutes, and tables of windows, are computed again wherever intervals have come.

A batch names minutes: those of its intervals, by their corrected times. All of them are computed again from
the archive, then all windows that they are in. So a repeated batch changes nothing, and an hour of data that
comes late, or twice, leaves the tables as if it had come in time, and once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.network import RoutingError

from . import links, measures, minutes, queries
from . import tables as t
from .links import Loads, Sums, Trend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_BEFORE: Final = 900  # seconds of intervals that clocks are judged by, before those of a batch
_HISTORY: Final = 24 * 3600  # seconds of windows that a forecast rests on
_MOST_NAMED: Final = 20  # links in what is said


class MeasureSettings(Struct, frozen=True):
    """`length`, `step`: of windows in seconds, the first a multiple of the second. `link_mbit`: what a link
    can carry, in Mbit/s; `limit`: the share of it from which a link is named. `top`: talkers of each kind.
    """

    length: int = 300
    step: int = 60
    link_mbit: float = 1000.0
    limit: float = 0.65
    top: int = measures.TOP

    def windows_of(self, slots: Iterable[int]) -> list[int]:
        """Returns the windows that minutes are in."""
        found = {slot - back for slot in slots for back in range(0, self.length, self.step)}
        return sorted(found)


class Measures:
    """The tables by minute and by window of one pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        tables: t.Tables,
        settings: MeasureSettings,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._spark = spark
        self._tables = tables
        self._settings = settings
        self._say = say

    def take(self, new: DataFrame, batch: int) -> None:
        """Computes what a batch of the query has touched. `new` has the append times of its records."""
        from pyspark.sql import functions as f

        first = new.agg(f.min(f.unix_micros("timestamp"))).collect()[0][0]
        if first is None:
            return
        read = first // 1_000_000 - _BEFORE
        places = self._places(read).cache()
        touched = [row[0] for row in places.where(f.col("came") >= first).select("slot").distinct().collect()]
        if touched and min(touched) < read:  # what has come belongs to an earlier time
            places.unpersist()
            places = self._places(min(touched) - _BEFORE).cache()
            read = min(touched) - _BEFORE
        self._compute(places, read, touched)
        places.unpersist()

    def all(self) -> None:
        """Computes all minutes and windows of the archive."""
        places = self._places(0).cache()
        self._compute(places, 0, None)
        places.unpersist()

    def _archive(self, since: int) -> DataFrame:
        """Returns the intervals of the archive that came since a time, in seconds."""
        from pyspark.sql import functions as f

        archive = queries.archive_of(self._spark, self._tables.path(t.BRONZE))
        start = f.timestamp_seconds(f.lit(since))
        there = (f.col("topic") == topics.SENDS) & (f.col("date") >= f.to_date(start))
        return archive.where(there & (f.col("timestamp") >= start))

    def _places(self, since: int) -> DataFrame:
        return minutes.timed(self._archive(since), self._settings.step)

    def _compute(self, places: DataFrame, since: int, touched: list[int] | None) -> None:
        """Writes minutes and windows. `touched`: the minutes; None: all."""
        if touched is not None and not touched:
            return
        from pyspark.sql import functions as f

        chosen = places if touched is None else places.where(f.col("slot").isin(touched))
        archive = self._archive(since)
        self._write(t.HOST_MINUTES, minutes.hosts(chosen), "slot", touched)
        self._write(t.MINUTES, minutes.sends(archive, chosen), "slot", touched)
        self._write(t.STREAM_MINUTES, minutes.streams(archive, chosen), "slot", touched)
        windows = None if touched is None else self._settings.windows_of(touched)
        self._windows(windows)

    # --- windows

    def _read(self, table: str, windows: list[int] | None) -> DataFrame:
        """Returns minutes by window; with those of the windows before, which changes are seen against."""
        from pyspark.sql import functions as f

        one = self._settings
        found = self._spark.read.schema(t.SCHEMAS[table]).parquet(self._tables.path(table))
        if windows is None:
            return measures.windowed(found, one.length, one.step)
        low, high = windows[0] - one.length, windows[-1] + 2 * one.length
        found = found.where((f.col("slot") >= low) & (f.col("slot") < high))
        needed = sorted({window + by for window in windows for by in (-one.length, 0, one.length)})
        return measures.windowed(found, one.length, one.step).where(f.col("window").isin(needed))

    def _windows(self, windows: list[int] | None) -> None:
        """Writes the tables of windows; None: of all."""
        one, networks = self._settings, self._networks()
        # Later windows are compared with these.
        compared = None if windows is None else sorted({*windows, *(at + one.length for at in windows)})
        sends = measures.sets(self._read(t.MINUTES, windows)).cache()
        streams, hosts = self._read(t.STREAM_MINUTES, windows).cache(), self._read(t.HOST_MINUTES, windows)
        named = sorted({host for value in networks.values() for host in _hosts(value)})
        for table, frame, which in (
            (t.CHURN, measures.churn(sends, one.length), compared),
            (t.MISSING, measures.missing(hosts, one.length, named), compared),
            (t.TRAFFIC, measures.traffic(sends, streams, hosts), windows),
            (t.TALKERS, measures.talkers(sends, streams, one.top), windows),
            (t.UNREAD, measures.unread(streams), windows),
            (t.BEHIND, measures.behind(streams, one.length), windows),
        ):
            self._write(table, frame, "window", which)
        if networks:
            rate = one.link_mbit * 1e6
            self._write(t.CLUSTERS, measures.clusters(sends, networks), "window", windows)
            self._write(t.LINKS, measures.links(sends, networks, one.length, rate), "window", windows)
            self._foretell()
        sends.unpersist()
        streams.unpersist()

    def _networks(self) -> dict[str, bytes]:
        """Returns the last description of each network; one that is damaged is left out, as by `advice`."""
        archive = queries.archive_of(self._spark, self._tables.path(t.BRONZE))
        found = {}
        for name, partition, offset in queries.last_topologies(archive):
            value = queries.topology_at(archive, partition, offset)
            try:
                Loads(topics.decode(pb.NetworkTopology, value))
                found[name] = value
            except (topics.Unreadable, RoutingError, IndexError):
                continue
        return found

    def _write(self, table: str, frame: DataFrame, by: str, which: list[int] | None) -> None:
        """Writes parts of a table in place of what they were; None: the whole of it."""
        from pyspark.sql import functions as f

        folder = Path(self._tables.path(table))
        if which is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            frame = frame.where(f.col(by).isin(which))
            for part in which:
                shutil.rmtree(folder / f"{by}={part}", ignore_errors=True)
        frame.repartition(by).write.partitionBy(by).mode("append").parquet(str(folder))

    # --- forecasts

    def _foretell(self) -> None:
        """Writes `gold_forecast` for the last window, from those of a day."""
        from pyspark.sql import functions as f

        folder = self._tables.path(t.LINKS)
        rows = self._spark.read.schema(t.SCHEMAS[t.LINKS]).parquet(folder)
        low, high = rows.agg(f.min("window"), f.max("window")).collect()[0]
        one = self._settings
        if high is None or high - one.length < low + one.length - one.step:
            return
        # Those at both ends began before the data, or are not over.
        first, last = low + one.length - one.step, high - one.length
        whole = (f.col("window") >= max(first, last - _HISTORY)) & (f.col("window") <= last)
        found, limit = trends(rows.where(whole), last, one), one.limit
        texts = [links.forecast(one, limit) for one in found]
        hours = [links.hours_until(one, limit) for one in found]
        values = [
            (last, one.network, one.link, one.share, one.growth, one.fit, hour, text)
            for one, hour, text in zip(found, hours, texts, strict=True)
        ]
        frame = self._spark.createDataFrame(values, t.SCHEMAS[t.FORECAST])
        self._write(t.FORECAST, frame, "window", [last])
        for text in [text for text in texts if text][:_MOST_NAMED]:
            self._say(text)


def trends(rows: DataFrame, last: int, settings: MeasureSettings) -> list[Trend]:
    """Returns the straight line through each link's loads; of links that were used in the last window."""
    from pyspark.sql import functions as f

    # Sums of whole numbers are the same in whatever order Spark adds them.
    at, size = ((f.col("window") - last) / settings.step).cast("long"), f.col("bytes")
    wide = size.cast("decimal(19,0)")  # its squares leave 64 bits
    found = rows.groupBy("network", "link").agg(
        f.sum(f.when(at == 0, size)).alias("now"),
        f.count("*").alias("count"),
        f.sum(at).alias("x"),
        f.sum(size).alias("y"),
        f.sum(at * at).alias("xx"),
        f.sum(at * size).alias("xy"),
        f.sum(wide * wide).alias("yy"),
    )
    full = settings.link_mbit * 1e6 * settings.length / 8  # bytes of a window
    found = found.where("now IS NOT NULL").orderBy("network", "link")
    return [_trend(row, full, 3600 / settings.step) for row in found.collect()]


def _trend(row: Row, full: float, steps: float) -> Trend:
    sums = Sums(row["count"], row["x"], row["y"], row["xx"], row["xy"], int(row["yy"]))
    slope, fit = sums.line
    return Trend(row["network"], row["link"], row["now"] / full, slope * steps / full, fit, sums.count)


def _hosts(value: bytes) -> list[str]:
    topology = topics.decode(pb.NetworkTopology, value)
    return [topology.names[node] for node in topology.hosts]
