"""What this host owns, as the whole of what can be reached: the collaborators of a cluster of one.

Partitions that others lead can be looked up and described, and refuse all else with LEADER_UNAVAILABLE.
"""

from __future__ import annotations

from asyncio import Future

from treecast.middleware.broker.cluster import PartitionLeader, ReadWaiter
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.broker.values import (
    Appended,
    Isolation,
    OffsetAtTime,
    PartitionRead,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity

from .view import ClusterView


class OwnPartitions:
    """Implements `cluster.Partitions`."""

    def __init__(self, parts: LocalParts, view: ClusterView) -> None:
        self._parts = parts
        self._view = view

    def partition(self, topic: str, index: int) -> PartitionLeader:
        found = self._parts.partitions.find(topic, index)
        if found is not None:
            return found
        leader = self._view.leader(topic, index)
        if leader is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {topic}-{index}")
        return ElsewherePartition(f"{topic}-{index}", leader.host_id, leader.epoch)


class ElsewherePartition:
    """A partition that another host leads, out of reach."""

    def __init__(self, name: str, host_id: int, leader_epoch: int) -> None:
        self._name = name
        self._host_id = host_id
        self._leader_epoch = leader_epoch

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    @property
    def size(self) -> int:
        return 0

    def check_leader_epoch(self, current: int) -> None:
        raise self._refusal()

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        raise self._refusal()

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        raise self._refusal()

    def read(self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool) -> PartitionRead:
        raise self._refusal()

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        raise self._refusal()

    def unwatch(self, waiter: ReadWaiter) -> None:
        pass

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime:
        raise self._refusal()

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        raise self._refusal()

    def delete_before(self, offset: int) -> int:
        raise self._refusal()

    def _refusal(self) -> TreecastError:
        return TreecastError(
            Fault.LEADER_UNAVAILABLE, f"host {self._host_id} leads {self._name}, and cannot be reached"
        )
