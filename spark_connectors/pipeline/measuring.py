"""The query `measures`: minutes, and tables of windows, are computed again wherever intervals have come.

A batch names minutes: those of its intervals, by their corrected times, and those that older intervals leave
or come into as it corrects their clock. All of them are computed again from the archive, then all windows
that they are in. So a repeated batch changes nothing, and an hour of data that comes late, or twice, leaves
the tables as if it had come in time, and once.

Minutes and windows are computed in parts of a bounded number of intervals. What all parts need, the place and
time of each interval, is written to disk first (`DIR/scratch`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.routing.network import RoutingError
from treecast.middleware.storage.whole_file import write_whole

from . import chunks, clocks, filters, links, measures, minutes, queries
from . import tables as t
from .clocks import Boot, Clock, Clocks, Counted, Group
from .links import Loads, Sums, Trend

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_HISTORY: Final = 24 * 3600  # seconds of windows that a forecast rests on
_MOST_NAMED: Final = 20  # links in what is said
_MINUTES: Final = {
    t.MINUTES: minutes.sends,
    t.STREAM_MINUTES: minutes.streams,
    t.FILTER_MINUTES: minutes.filters,
    t.CHANGE_MINUTES: minutes.changes,
    t.REPAIR_MINUTES: minutes.repairs,
}


class MeasureSettings(Struct, frozen=True):
    """`length`, `step`: of windows in seconds, the first a multiple of the second. `link_mbit`: what a link
    can carry, in Mbit/s; `limit`: the share of it from which a link is named. `top`: talkers of each kind.
    `most`: intervals that are computed at once; tables do not depend on it, memory does.
    """

    length: int = 300
    step: int = 60
    link_mbit: float = 1000.0
    limit: float = 0.65
    top: int = measures.TOP
    most: int = chunks.MOST

    def windows_of(self, slots: Iterable[int]) -> list[int]:
        """Returns the windows that minutes are in, in ascending order."""
        return sorted({slot - back for slot in slots for back in range(0, self.length, self.step)})

    def slots_of(self, windows: Iterable[int]) -> list[int]:
        """Returns the minutes that windows have, in ascending order."""
        return sorted({window + at for window in windows for at in range(0, self.length, self.step)})


class Shown(Struct, frozen=True):
    """The parts of tables that descriptions of networks give: these, their groups and their hosts."""

    networks: dict[str, bytes]
    groups: list[measures.Group]
    named: list[str]


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
        known = self._known()
        if first is None:
            return
        if known is None:
            self.all()
            return
        now = clocks.after(known, minutes.differences(self._archive(first // 1_000_000)))
        with self._scratch():
            self._compute(now.reach(first, lambda since: self._counted(since, first, now)))
        self._keep(now.now)

    def all(self) -> None:
        """Computes all minutes and windows of the archive."""
        self._tables.clocks.unlink(missing_ok=True)  # a batch after a kill in here computes all, too
        now = clocks.after({}, minutes.differences(self._archive(0)))
        with self._scratch():
            counted = self._counted(0, 0, now)
            for table in (*t.BY_SLOT, *t.BY_WINDOW):
                shutil.rmtree(self._tables.path(table), ignore_errors=True)
            self._compute(counted)
        self._keep(now.now)

    # --- clocks

    def _known(self) -> dict[Boot, Clock] | None:
        """Returns the clocks that the tables rest on; None if these have to be computed from the archive."""
        path = self._tables.clocks
        return clocks.decode(path.read_bytes()) if path.exists() else None

    def _keep(self, now: Mapping[Boot, Clock]) -> None:
        """Keeps clocks once all tables rest on them: a batch that is killed before is repeated whole."""
        write_whole(self._tables.clocks, clocks.encode(now))

    # --- places

    @contextmanager
    def _scratch(self) -> Iterator[None]:
        try:
            yield
        finally:
            shutil.rmtree(self._tables.scratch, ignore_errors=True)

    def _counted(self, since: int, first: int, now: Clocks) -> Counted:
        """Stores the places of intervals that came since a time (s), and counts them. Touched are minutes
        with one that came from `first` on (us), or that one has left or come into.
        """
        from pyspark.sql import functions as f

        known = self._spark.createDataFrame(now.rows(since), t.CLOCKS)
        places = minutes.timed(self._archive(since), known, self._settings.step)
        hour = f.expr("slot div 3600").alias("hour")
        places.select("*", hour).write.mode("overwrite").partitionBy("hour").parquet(self._tables.scratch)
        came = f.expr(f"came div {3600 * 1_000_000}").alias("came_hour")
        found = self._places().groupBy("slot", "was", came)
        rows = found.agg(f.count("*").alias("size"), f.max("came").alias("last")).collect()
        return clocks.counted((Group(*row) for row in rows), first)

    def _places(self) -> DataFrame:
        return self._spark.read.schema(t.PLACES).parquet(self._tables.scratch)

    def _archive(self, since: int) -> DataFrame:
        """Returns the intervals of the archive that came since a time, in seconds."""
        from pyspark.sql import functions as f

        start = f.timestamp_seconds(f.lit(since))
        return self._intervals().where((f.col("date") >= f.to_date(start)) & (f.col("timestamp") >= start))

    def _intervals(self) -> DataFrame:
        from pyspark.sql import functions as f

        archive = queries.archive_of(self._spark, self._tables.path(t.BRONZE))
        return archive.where(f.col("topic") == topics.SENDS)

    # --- tables, in parts

    def _compute(self, counted: Counted) -> None:
        """Writes the touched minutes, and their windows."""
        one = self._settings
        if not counted.touched:
            return
        for slots in chunks.parts(counted.sizes, counted.touched, one.most):
            self._minutes(slots, set().union(*(counted.hours.get(slot, ()) for slot in slots)))
        windows = set(one.windows_of(counted.touched))
        compared = windows | {window + one.length for window in windows}  # with these
        networks = self._networks()
        named = sorted({host for value in networks.values() for host in _hosts(value)})
        shown = Shown(networks, measures.groups_of(networks), named)
        for some in chunks.parts(counted.sizes, compared, one.most):
            self._windows(some, [window for window in some if window in windows], shown)
        if networks:
            self._foretell()

    def _minutes(self, slots: list[int], hours: set[int]) -> None:
        from pyspark.sql import functions as f

        there = _among(f.col("hour"), {slot // 3600 for slot in slots}, 1)
        chosen = self._places().where(there & _among(f.col("slot"), slots, self._settings.step)).cache()
        came = f.unix_date("date") * 24 + f.col("hour")
        archive = self._intervals().where(_among(came, hours, 1))
        self._write(t.HOST_MINUTES, minutes.hosts(chosen), "slot", slots)
        for table, rows in _MINUTES.items():
            self._write(table, rows(archive, chosen), "slot", slots)
        chosen.unpersist()

    def _read(self, table: str, windows: list[int]) -> DataFrame:
        """Returns minutes by window, also by the windows before: changes are seen against these."""
        from pyspark.sql import functions as f

        one, folder = self._settings, Path(self._tables.path(table))
        needed = {window - back for window in windows for back in (0, one.length)}
        parts = [folder / f"slot={slot}" for slot in one.slots_of(needed)]
        paths = [str(path) for path in parts if path.exists()]
        reader = self._spark.read.schema(t.SCHEMAS[table]).option("basePath", str(folder))
        found = reader.parquet(*paths) if paths else self._spark.createDataFrame([], t.SCHEMAS[table])
        found = measures.windowed(found, one.length, one.step)
        return found.where(_among(f.col("window"), needed, one.step))

    def _windows(self, compared: list[int], windows: list[int], shown: Shown) -> None:
        """Writes the tables of windows. `compared`: those that differ if the ones before do."""
        one = self._settings
        sends = measures.sets(self._read(t.MINUTES, compared)).cache()
        streams, hosts = self._read(t.STREAM_MINUTES, compared).cache(), self._read(t.HOST_MINUTES, compared)
        rate = one.link_mbit * 1e6
        frames = [
            (t.CHURN, measures.churn(sends, one.length), compared),
            (t.MISSING, measures.missing(hosts, one.length, shown.named), compared),
            (t.TRAFFIC, measures.traffic(sends, streams, hosts, one.length), compared),
            (t.TALKERS, measures.talkers(sends, streams, one.top), windows),
            (t.UNREAD, measures.unread(streams), windows),
            (t.BEHIND, measures.behind(streams, one.length), windows),
            (t.FILTERS, filters.of_windows(self._read(t.FILTER_MINUTES, compared)), windows),
            (t.MOVES, measures.moves(self._read(t.CHANGE_MINUTES, compared)), windows),
            (t.REPAIRS, measures.repairs(streams, self._read(t.REPAIR_MINUTES, compared)), windows),
        ]
        if shown.networks:
            frames.append((t.CLUSTERS, measures.clusters(sends, shown.groups), windows))
            frames.append((t.LINKS, measures.links(sends, shown.networks, one.length, rate), windows))
        for table, frame, which in frames:
            if which:
                self._write(table, frame, "window", which)
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

    def _write(self, table: str, frame: DataFrame, by: str, which: list[int]) -> None:
        """Writes parts of a table in place of what they were."""
        from pyspark.sql import functions as f

        folder = Path(self._tables.path(table))
        for part in which:
            shutil.rmtree(folder / f"{by}={part}", ignore_errors=True)
        chosen = frame.where(_among(f.col(by), which, self._settings.step))
        chosen.repartition(by).write.partitionBy(by).mode("append").parquet(str(folder))

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


def _among(column: Column, names: Iterable[int], step: int) -> Column:
    """Returns whether a column has one of these names, which are multiples of `step`."""
    from pyspark.sql import functions as f

    found = f.lit(False)
    for first, last in chunks.runs(names, step):
        found = found | column.between(first, last)
    return found


def _hosts(value: bytes) -> list[str]:
    topology = topics.decode(pb.NetworkTopology, value)
    return [topology.names[node] for node in topology.hosts]
