"""Checks at the start of a host: it does not lead from logs shorter than the coordinator has recorded.

In this case the data directory is still the one that led, but part of it is lost: the logs were on a separate
disk, or power failed before they were written. The host gives such a partition up. The partition then waits
like all partitions of a host with a lost disk: the missing records come from other hosts' copies, or they
are reported as lost.
"""

from __future__ import annotations

from treecast.middleware.api.entries import TopicEntry
from treecast.middleware.broker.partition import LocalPartition
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.view import ClusterView

from .ports import Record

_log = Log(__name__)


class Doubts:
    """The check, made before any host or client is answered.

    `clean`: whether the last run closed its logs in order.
    """

    def __init__(
        self, host_id: int, partitions: LocalPartitions, view: ClusterView, record: Record, *, clean: bool
    ) -> None:
        self._host_id = host_id
        self._partitions = partitions
        self._view = view
        self._record = record
        self._clean = clean

    async def check(self) -> bool:
        """Gives up partitions with logs that are too short. Returns whether there were any.

        If the coordinator is away, the remaining logs are led unchecked.
        """
        found = False
        for topic in self._view.topics:
            try:
                found = await self._check(topic) or found
            except TreecastError as error:
                _log.warning("logs are led unchecked: the coordinator does not answer", error=error)
                return found
        return found

    async def _check(self, topic: TopicEntry) -> bool:
        doubtful = self._doubtful(topic)
        if not doubtful:
            return False
        record = await self._record.ends_of(topic.topic_id)
        short = [
            index
            for index, partition in doubtful.items()
            if index in record and partition.log.end_offset < record[index].end
        ]
        for index in short:
            _log.error(
                "partition is not led: its log here is shorter than was reported",
                partition=f"{topic.name}-{index}",
                end=doubtful[index].log.end_offset,
                reported=record[index].end,
            )
        if short:
            await self._record.give_up(topic.topic_id, short)
        return bool(short)

    def _doubtful(self, topic: TopicEntry) -> dict[int, LocalPartition]:
        """Returns the led partitions that may have lost records; after an orderly close, only empty ones."""
        found = {}
        for index, leader in enumerate(topic.partitions):
            partition = self._partitions.find(topic.name, index)
            if leader.leader != self._host_id or leader.waits or partition is None:
                continue
            if not self._clean or not partition.log.end_offset:
                found[index] = partition
        return found
