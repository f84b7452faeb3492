"""Copies of a partition: this host's copy, those of other hosts, and copying one to this host.

Every host reports the copies that it holds, led or not. A host that has lost its disk finds the furthest copy
this way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from treecast.middleware.api.entries import HostEntry, Presence
from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.partitions import LocalPartitions, flush_together
from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.model.buffers import Buffer, in_memory
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.storage.epochs import divergence
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.wire.crc import crc32c
from treecast.middleware.wire.record_batch import BatchHeader, read_header

from . import calls
from .following import Following
from .lost_disk import Copy, Known
from .ports import PartitionSettings, Record, Topics

MOST_COPIED: Final = 8 << 20  # bytes of one piece, unless one batch has more
_CRC_FROM: Final = 21


class Copies:
    """Reports and serves the copies that this host holds."""

    def __init__(
        self, partitions: LocalPartitions, topics: Topics, following: Following, methods: Methods
    ) -> None:
        self._partitions = partitions
        self._topics = topics
        self._following = following
        methods.register(calls.HOLDS, self.holds)
        methods.register(calls.COPY, self.copy)

    def own(self, topic: Topic, index: int, host: int) -> Copy:
        """Returns this host's copy; an empty one if it has no log."""
        log = self._partitions.held(topic, index)
        found = self._following.find(topic.name, index)
        heard = found.heard if found is not None else 0
        if log is None:
            return Copy(host, (), 0, 0, heard)
        current = found is not None and found.current and log.end_offset >= heard
        return Copy(host, tuple(log.epoch_entries), log.start_offset, log.end_offset, heard, current)

    def holds(
        self, host: int, ref: calls.PartitionRef, body: memoryview
    ) -> tuple[calls.HoldsResponse, Buffer]:
        topic, index = self._place(ref)
        own = self.own(topic, index, 0)
        answer = calls.HoldsResponse(
            self._partitions.held(topic, index) is not None,
            tuple(calls.EpochStart(*one) for one in own.epochs),
            own.start,
            own.end,
            own.heard,
            self._partitions.find(topic.name, index) is not None,
            own.current,
        )
        return answer, b""

    def copy(
        self, host: int, request: calls.CopyRequest, body: memoryview
    ) -> tuple[calls.CopyResponse, Buffer]:
        """Returns whole batches, from the batch that holds the offset.

        Raises OFFSET_OUT_OF_RANGE, or UNKNOWN_TOPIC if there is no copy here.
        """
        topic, index = self._place(request.partition)
        log = self._partitions.held(topic, index)
        if log is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no copy of {topic.name}-{index} here")
        size = min(request.max_bytes, MOST_COPIED)
        chunks, _ = log.read(request.offset, size, log.end_offset, at_least_one=True)
        return calls.CopyResponse(log.start_offset, log.end_offset), b"".join(map(in_memory, chunks))

    def _place(self, ref: calls.PartitionRef) -> tuple[Topic, int]:
        topic = self._topics.topic_by_id(ref.topic_id)
        if ref.partition >= topic.partitions:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"{topic.name} has no partition {ref.partition}")
        return topic, ref.partition


class Survey:
    """Collects what is known of a partition: here, at all reachable hosts and in the coordinator's record."""

    def __init__(
        self,
        host_id: int,
        copies: Copies,
        view: ClusterView,
        methods: Methods,
        is_up: Callable[[int], bool],
        record: Record,
        settings: PartitionSettings,
    ) -> None:
        self._host_id = host_id
        self._copies = copies
        self._view = view
        self._methods = methods
        self._is_up = is_up
        self._record = record
        self._settings = settings

    async def look(self, topic: Topic, index: int) -> Known:
        """Returns what is known. Raises COORDINATOR_UNAVAILABLE, STORAGE."""
        others = [host for host in self._view.hosts if host.host_id != self._host_id]
        record = (await self._record.ends_of(topic.topic_id)).get(index)
        answers = await asyncio.gather(*(self._ask(host, topic, index) for host in others))
        silent = [host for host, answer in zip(others, answers, strict=True) if answer is None]
        return Known(
            self._copies.own(topic, index, self._host_id),
            tuple(answer for answer in answers if answer is not None),
            record,
            tuple(host.name for host in silent if host.presence is Presence.ATTACHED),
            tuple(host.name for host in silent if host.presence is not Presence.ATTACHED),
        )

    async def _ask(self, host: HostEntry, topic: Topic, index: int) -> Copy | None:
        """Returns the host's copy, or None if the host does not answer."""
        if not self._is_up(host.host_id):
            return None
        ref = calls.PartitionRef(topic.topic_id, index)
        try:
            found, _ = await self._methods.ask(host.host_id, calls.HOLDS, ref, self._settings.call_timeout)
        except TreecastError as error:
            if error.fault is Fault.NOT_SUPPORTED:
                return Copy(host.host_id, (), 0, 0)  # the host runs an older version
            return None
        epochs = tuple((entry.leader_epoch, entry.start) for entry in found.epochs)
        if not found.copy:
            return Copy(host.host_id, (), 0, 0, found.heard)
        return Copy(host.host_id, epochs, found.start, found.end, found.heard, found.current)


class Copier:
    """Copies another host's log to this host, a piece at a time."""

    def __init__(
        self,
        partitions: LocalPartitions,
        following: Following,
        methods: Methods,
        settings: PartitionSettings,
        counters: RelayCounters,
        clock: Callable[[], float],
    ) -> None:
        self._partitions = partitions
        self._following = following
        self._methods = methods
        self._settings = settings
        self._counters = counters
        self._clock = clock

    async def copy(self, topic: Topic, index: int, source: Copy) -> None:
        """Copies `source`; returns when this host's log has its records and they are flushed to disk.

        A local log that diverges from `source` is put aside. Raises TreecastError if the copy cannot be read
        or this host's disk fails.
        """
        replica = self._begun(topic, index, source)
        offset = max(replica.log.end_offset, source.start)
        while offset < source.end:
            data = await self._piece(topic, index, source.host, offset)
            headers = batches_of(data)
            # Without progress the loop would ask for the same piece for ever.
            if not headers or headers[-1].next_offset <= offset:
                raise TreecastError(
                    Fault.INTERNAL, f"host {source.host} has no records from offset {offset} on"
                )
            # The first batch may begin before the offset that was asked for, and is taken whole.
            if not replica.log.size and headers[0].base_offset != replica.log.end_offset:
                replica.restart(headers[0].base_offset, self._now_ms())
            replica.append_replicated(data, headers, self._now_ms())
            replica.forget_fresh()
            self._counters.copied_bytes += len(data)
            offset = replica.log.end_offset
        if source.start > replica.log.start_offset:
            replica.advance_start(source.start, self._now_ms())
        await self._flush(replica.log)

    def _begun(self, topic: Topic, index: int, source: Copy) -> FollowedPartition:
        """Returns the local replica, restarted if it has records that are not in `source`."""
        replica = self._partitions.follow(topic, index)
        log = replica.log
        end = log.end_offset
        parted = divergence(log.epoch_entries, end, list(source.epochs), source.end) if log.size else end
        if parted < end or end < source.start:
            if log.size:
                self._following.begin_anew(topic, index)
            replica = self._partitions.follow(topic, index)
        return replica

    async def _piece(self, topic: Topic, index: int, host: int, offset: int) -> bytes:
        ref = calls.PartitionRef(topic.topic_id, index)
        request = calls.CopyRequest(ref, offset, self._settings.copy_bytes)
        _, body = await self._methods.ask(host, calls.COPY, request, self._settings.produce_timeout)
        return bytes(body)

    async def _flush(self, log: PartitionLog) -> None:
        """Flushes the log, before the partition is led again.

        From then on followers accept this disk's log even if a power failure shortens it.
        """
        refused = await flush_together([log], self._now_ms())
        if refused:
            raise refused[0]

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)


def batches_of(data: bytes) -> list[BatchHeader]:
    """Returns the headers of whole batches.

    Raises CORRUPT_BATCH if one is incomplete or fails its CRC-32C.
    """
    found: list[BatchHeader] = []
    position, view = 0, memoryview(data)
    while position < len(data):
        header = read_header(data, position)
        batch = view[position : position + header.size]
        if len(batch) < header.size or crc32c(batch[_CRC_FROM:]) != header.crc:
            raise TreecastError(
                Fault.CORRUPT_BATCH, f"the batch at {header.base_offset} is not whole, or fails its CRC-32C"
            )
        found.append(header)
        position += header.size
    return found
