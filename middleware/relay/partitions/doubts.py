"""Checks at the start of a host: it does not lead from logs shorter than the coordinator has recorded.

In this case the data directory is still the one that led, but part of it is lost: the logs were on a separate
disk, or power failed before they were written. The host gives such a partition up. The partition then waits
like all partitions of a host with a lost disk: the missing records come from other hosts' copies, or they
are reported as lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from treecast.middleware.api.entries import TopicEntry
from treecast.middleware.broker.partition import LocalPartition
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.view import ClusterView

from .lost_disk import Recorded
from .ports import Record

_AT_ONCE: Final = 5_000  # partitions whose recorded ends are asked for together

_log = Log(__name__)


class Doubts:
    """The check, made before any host or client is answered.

    It covers every log, also after an orderly close: the logs may be on a disk of their own, and an older
    state of them looks as if it had been closed in order.
    """

    def __init__(self, host_id: int, partitions: LocalPartitions, view: ClusterView, record: Record) -> None:
        self._host_id = host_id
        self._partitions = partitions
        self._view = view
        self._record = record

    async def check(self) -> bool:
        """Gives up partitions with logs that are too short. Returns whether there were any.

        If the coordinator is away, the remaining logs are led unchecked.
        """
        found = False
        try:
            for topics in self._together():
                ends = await self._record.all_ends([topic.topic_id for topic in topics])
                for topic in topics:
                    found = await self._check(topic, ends[topic.topic_id]) or found
        except TreecastError as error:
            _log.warning("logs are led unchecked: the coordinator does not answer", error=error)
        return found

    def _together(self) -> Iterator[list[TopicEntry]]:
        """Yields the topics with partitions that are led here, as many at once as one call may ask for."""
        some: list[TopicEntry] = []
        size = 0
        for topic in self._view.topics:
            if self._led(topic):
                some.append(topic)
                size += len(topic.partitions)
            if size >= _AT_ONCE:
                yield some
                some, size = [], 0
        if some:
            yield some

    async def _check(self, topic: TopicEntry, record: Mapping[int, Recorded]) -> bool:
        led = self._led(topic)
        short = [
            index
            for index, partition in led.items()
            if index in record and partition.log.end_offset < record[index].end
        ]
        for index in short:
            _log.error(
                "partition is not led: its log here is shorter than was reported",
                partition=f"{topic.name}-{index}",
                end=led[index].log.end_offset,
                reported=record[index].end,
            )
        if short:
            await self._record.give_up(topic.topic_id, short)
        return bool(short)

    def _led(self, topic: TopicEntry) -> dict[int, LocalPartition]:
        """Returns the partitions of the topic that this host leads."""
        found = {}
        for index, leader in enumerate(topic.partitions):
            partition = self._partitions.find(topic.name, index)
            if leader.leader == self._host_id and not leader.waits and partition is not None:
                found[index] = partition
        return found
