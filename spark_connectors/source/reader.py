"""The readers that Spark calls. They are pickled and sent to workers: sockets are created where they are
used.

Of a streaming read, `initialOffset`, `latestOffset` and `partitions` run in one process beside the driver;
`read` runs in the workers, and never sees state of the others.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from treecast.middleware.api.discovery import find_face
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.model.logs import Log

from .. import links
from ..errors import DataLossError, OptionError
from ..servers import Servers, servers_of
from ..workers import Sent, settle
from .arrow import ArrowMaker
from .asking import LOOKS, PAUSE_S, DaemonCluster
from .cluster import Cluster, resolve
from .columns import Columns
from .declared import schema_of
from .decoding import KEEP, DecodingMaker, decoder, has_times
from .fetch import PartitionReader
from .offsets import Offsets, Partition, Place, from_json, names, to_json
from .options import SourceOptions
from .planning import (
    Range,
    anew_text,
    at_most,
    begun_again,
    begun_again_unknown,
    cut_back,
    delayed,
    limited,
    loss_text,
    ranges,
    split,
    unproven,
)
from .small import Giving, read_all
from .zones import SESSION_ZONE, host_zone, zone_of

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


_log = Log("treecast.spark")


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, part: Range, bootstrap: str, cluster_id: str, topic_id: str) -> None:
        super().__init__((part.partition.topic, part.partition.number, part.first, part.until))
        self.bootstrap = bootstrap
        self.cluster_id = cluster_id
        self.topic_id = topic_id  # empty: not known

    @property
    def part(self) -> Range:
        topic, number, first, until = self.value
        return Range(Partition(topic, number), first, until)


class TogetherPartition(InputPartition):
    """Several ranges for one task: if Spark has lost the rows that came with the plan, the task reads them
    from the daemon.
    """

    def __init__(self, parts: Sequence[InputPartition]) -> None:
        super().__init__(tuple(parts))


def rows_of(planned: Iterable[InputPartition]) -> int:
    """Returns the maximum number of rows: compaction and filters may reduce it."""
    parts = [partition.part for partition in planned if isinstance(partition, RangePartition)]
    return sum(part.until - part.first for part in parts)


class _Reading(Sent):
    """Shared by batch and streaming reads."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._cluster: Cluster | None = None
        self._cluster_id = ""
        self._host_zone = host_zone()  # the driver's: this is made beside it

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_cluster"} | {
            "_cluster": None
        }

    def cluster(self) -> Cluster:
        if self._cluster is None:
            options = self.options
            self._cluster = DaemonCluster(
                servers_of(options.bootstrap),
                committed=options.isolation == "read_committed",
                timeout=options.read_timeout,
            )
        return self._cluster

    def same_topics(self, start: Place, end: Place) -> Place:
        """Returns `start` if its topics are unchanged. If one was recreated, raises DataLossError, or without
        failOnDataLoss returns `start` without its offsets.
        """
        lost = anew_text(start, end)
        if lost and self.options.fail_on_data_loss:
            raise DataLossError(loss_text(lost))
        return begun_again(start, end)

    def planned(self, start: Place, end: Place, known: Offsets) -> list[InputPartition]:
        """Returns the tasks that read from `start` to `end`. `known`: present ends, as far as asked for."""
        parts = self._ranges(start, end, known)
        servers = servers_of(self.options.bootstrap)
        if parts and self.options.local_daemon and not self._cluster_id:
            self._cluster_id = links.cluster_id_of(servers)
        return [
            RangePartition(part, str(servers), self._cluster_id, end.ids.get(part.partition.topic, ""))
            for part in split(at_most(parts, self.options.most_per_task), self.options.min_partitions)
        ]

    def _ranges(self, start: Place, end: Place, known: Offsets) -> list[Range]:
        losses: list[str] = anew_text(start, end)
        begun = begun_again(start, end)
        earliest = self.cluster().earliest(end.offsets)
        there = Place(self._existing(begun.offsets, end.offsets, known, losses), end.ids)
        parts = ranges(begun.offsets, there.offsets, earliest, losses)
        if losses and self.options.fail_on_data_loss:
            raise DataLossError(loss_text(losses))
        if losses:
            parts = ranges(begun_again_unknown(begun, there).offsets, there.offsets, earliest, [])
            _log.warning(
                "records are lost; the query continues, because failOnDataLoss is false",
                detail="; ".join(losses),
            )
        return parts

    def _existing(self, begun: Offsets, end: Offsets, known: Offsets, losses: list[str]) -> Offsets:
        """Returns the ends as far as their logs have them. Asks only about ends that are not `known`."""
        asked = unproven(begun, end, known)
        if not asked:
            return end
        present = self.cluster().latest(asked)
        short = {part: asked[part] for part, offset in present.items() if offset < asked[part]}
        beyond = self.cluster().beyond(short) if short else set()
        return cut_back(begun, end, present, beyond | (asked.keys() - present.keys()), losses)

    def records(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Yields the records of one task, in a worker."""
        if partition.value is None:  # nothing to read: Spark still runs one task
            return
        if isinstance(partition, TogetherPartition):
            for one in partition.value:
                yield from self.records(one)
            return
        assert isinstance(partition, RangePartition)
        options, part = self.options, partition.part
        servers = nearest(partition)
        reader = PartitionReader(
            part,
            servers,
            committed=options.isolation == "read_committed",
            with_headers=self._with_headers(),
            packed=not options.format and not self._with_headers(),
            text=options.filter,
            topic_id=partition.topic_id,
            fail_on_data_loss=options.fail_on_data_loss,
            timeout=options.read_timeout,
        )
        maker = self._maker(part.partition)
        passes = None
        if options.filter is not None:
            schema = schema_of(servers, part.partition.topic, options.read_timeout)
            passes = RecordFilter(parse(options.filter), *part.partition, schema)
        for columns in reader.read():
            if isinstance(columns, Columns) and passes is not None:
                columns = columns.passing(passes)
            yield maker.make(columns)
        settle()

    def _with_headers(self) -> bool:
        """Returns whether headers are needed; a filter may use them."""
        options = self.options
        return options.include_headers or options.filter is not None or "_headers" in self.schema.names

    def _maker(self, partition: Partition) -> ArrowMaker | DecodingMaker:
        options = self.options
        if not options.format:
            return ArrowMaker(self.schema, *partition)
        partly = options.mode == KEEP
        decode = decoder(self.schema, options.format, options.layout, zone=self._zone(), partly=partly)
        return DecodingMaker(self.schema, decode, options.mode, *partition)

    def _zone(self) -> datetime.tzinfo | None:
        """Returns the zone of timestamps without one: the option's, else the session's, else that of the
        driver's host.
        """
        context = TaskContext.get()
        session = context.getLocalProperty(SESSION_ZONE) if context is not None else None
        name = self.options.time_zone or session or self._host_zone
        return zone_of(name) if name else None

    def knows_zone(self) -> bool:
        """Returns whether this can be done outside of a task; only tasks know the session's zone."""
        options = self.options
        return options.format != "json" or bool(options.time_zone) or not has_times(self.schema)

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def nearest(partition: RangePartition) -> Servers:
    """Returns the daemon of this worker's host if it belongs to the cluster; else the driver's servers."""
    given = Servers.parse(partition.bootstrap)
    try:
        return links.nearest(given, partition.cluster_id, find_face("kafka").address)
    except ValueError:
        return given


class TreecastReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._reading = _Reading(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        reading = self._reading
        options, cluster = reading.options, reading.cluster()
        read = partitions_of(cluster, options)
        start = resolve(cluster, read, options.starting, "startingOffsets")
        end = resolve(cluster, read, options.ending, "endingOffsets")
        known = {} if options.ending.offsets else end
        ids = cluster.topic_ids(read)
        planned = reading.planned(Place(start, ids), Place(self._not_before(start, end), ids), known)
        reading.close()
        return planned

    def _not_before(self, start: Offsets, end: Offsets) -> Offsets:
        """Returns ends from which a read can begin, unless an option gives a later start: that is a loss."""
        given = self._reading.options.starting.offsets
        return {
            part: until if given.get(part, -1) >= 0 else max(until, start[part])
            for part, until in end.items()
        }

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self._reading.records(partition)


class TreecastStreamReader(Giving, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read, in micro-batches; on request, small ones are read beside the driver."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._reading = _Reading(options, schema)
        self._end: Place | None = None  # of Trigger.AvailableNow: the ends when it started
        self._known: Place | None = None  # the findings of the last trigger
        self._absent: Set[Partition] = frozenset()  # partitions that were read and are not there
        self._triggered: float | None = None  # when a trigger last did not wait for minOffsetsPerTrigger

    def initialOffset(self) -> dict[str, Any]:
        reading = self._reading
        cluster = reading.cluster()
        read = partitions_of(cluster, reading.options)
        start = resolve(cluster, read, reading.options.starting, "startingOffsets")
        return to_json(Place(start, cluster.topic_ids(read)))

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._reading.options.max_rows
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._latest()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        latest = self._latest() if self._end is None else self._end
        reading = self._reading
        latest = self._with_absent(from_json(start), latest)
        begun = reading.same_topics(from_json(start), latest).offsets
        ends = self._not_back(begun, latest.offsets)
        if self._waits(begun, ends):
            return dict(start)
        if isinstance(limit, ReadMaxRows):
            new = reading.cluster().earliest(set(ends) - set(begun))
            ends = limited(begun | new, ends, limit.max_rows)
        return to_json(Place(ends, latest.ids))

    def _waits(self, begun: Offsets, ends: Offsets) -> bool:
        """Returns whether this trigger has to wait for `minOffsetsPerTrigger`. The first one and those of
        Trigger.AvailableNow do not, as in Spark's Kafka source.
        """
        options, now = self._reading.options, time.monotonic()
        if not options.min_rows or self._end is not None:
            return False
        new = self._reading.cluster().earliest(set(ends) - set(begun))
        if self._triggered is not None and delayed(
            begun | new, ends, options.min_rows, now - self._triggered, options.max_delay
        ):
            return True
        self._triggered = now
        return False

    def _with_absent(self, begun: Place, latest: Place) -> Place:
        """Returns `latest` with the query's position in partitions that are not in it: one answer without a
        topic does not mean that the topic is deleted. With failOnDataLoss those that stay absent are left
        out, so that the plan finds the loss.
        """
        absent = begun.offsets.keys() - latest.offsets.keys()
        if absent - self._absent:
            again = self._latest()
            latest = Place(again.offsets | latest.offsets, again.ids | latest.ids)
            absent = begun.offsets.keys() - latest.offsets.keys()
        if self._reading.options.fail_on_data_loss:
            return latest
        if absent - self._absent:
            _log.warning("partitions are not there; their positions are kept", partitions=names(absent))
        self._absent = absent
        kept = {part: begun.offsets[part] for part in absent}
        return Place(latest.offsets | kept, begun.ids | latest.ids)

    def _not_back(self, begun: Offsets, latest: Offsets) -> Offsets:
        """Returns the ends. If the query is further than one, a replica may be behind: then returns the
        query's position, unless the leader reports that there is no more; the plan finds that loss.
        """
        further = {part: begun[part] for part, offset in latest.items() if begun.get(part, 0) > offset}
        if not further:
            return latest
        beyond = self._reading.cluster().beyond(further)
        return latest | {part: offset for part, offset in further.items() if part not in beyond}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Returns the offsets of the last request, for the progress of a batch, as Spark's Kafka
        source does.
        """
        return None if self._known is None else to_json(self._known)

    def _latest(self) -> Place:
        cluster = self._reading.cluster()
        read = cluster.partitions(self._reading.options.subscription)
        self._known = Place(cluster.latest(read), cluster.topic_ids(read))
        return self._known

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        begun, until = from_json(start), from_json(end)
        self._check_checkpoint(begun.offsets)
        known = {} if self._known is None else self._known.offsets
        planned = self._reading.planned(begun, until, known)
        if 0 < rows_of(planned) <= self._reading.options.driver_rows and self._reading.knows_zone():
            together = TogetherPartition(planned)
            if self.offer(read_all(self._reading.records(together))):
                return [together]
        return planned

    def _check_checkpoint(self, begun: Offsets) -> None:
        strange = [part for part in begun if not self._reading.options.subscription.takes(part)]
        if strange:
            raise OptionError(
                f"the checkpoint is that of another query: it is about topic {strange[0].topic}, which this "
                "one does not read; give each query a checkpointLocation of its own"
            )

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self._reading.records(partition)

    def stop(self) -> None:
        self._reading.close()


def partitions_of(cluster: Cluster, options: SourceOptions) -> list[Partition]:
    """Returns the partitions to read. Raises OptionError if a named topic does not exist."""
    wanted = set(options.subscription.topics) | {part.topic for part in options.subscription.partitions}
    for _ in range(LOOKS):
        found = cluster.partitions(options.subscription)
        missing = wanted - {part.topic for part in found}
        if not missing:
            break
        time.sleep(PAUSE_S)
    if missing:
        raise OptionError(
            f"there is no topic {', '.join(sorted(missing))} at {servers_of(options.bootstrap)}"
        )
    absent = options.subscription.partitions - set(found)
    if absent:
        raise OptionError(f"assign names {', '.join(map(str, sorted(absent)))}, which does not exist")
    return found
