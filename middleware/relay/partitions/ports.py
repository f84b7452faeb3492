"""Protocols of what partitions need from other parts."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from treecast.middleware.api.entries import LostRange, PartitionEnd, PartitionEntry
from treecast.middleware.broker.cluster import ReadWaiter
from treecast.middleware.broker.partition import AppendTap
from treecast.middleware.broker.values import (
    ActiveProducer,
    Appended,
    Isolation,
    OffsetAtTime,
    PartitionRead,
    Topic,
)
from treecast.middleware.model.identity import ProducerIdentity, TopicId, TopicPartition
from treecast.middleware.storage.log import PartitionLog

from .lost_disk import Recorded


class Claim(Struct, frozen=True):
    """A claim to lead a partition with `leader_epoch`. `known_epoch`: the coordinator's, as known here.

    `promoted`: whether an operator ordered it. `lost`: the records that are given up.
    """

    topic_id: TopicId
    partition: int
    known_epoch: int
    leader_epoch: int
    promoted: bool = False
    lost: LostRange | None = None


class Topics(Protocol):
    """Look-up of topic definitions."""

    def topics(self) -> Mapping[str, Topic]: ...

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """Returns the topic. Raises UNKNOWN_TOPIC_ID if there is none."""


class LedPartition(Protocol):
    """A partition that this host leads, as other hosts use it.

    `broker.partition.LocalPartition` is one. An agent leads partitions that another system owns: it answers
    later what only the owner can say.
    """

    @property
    def name(self) -> TopicPartition: ...

    @property
    def log(self) -> PartitionLog: ...

    @property
    def here(self) -> bool: ...

    @property
    def leader_epoch(self) -> int: ...

    def tap(self, tap: AppendTap | None) -> None: ...

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]: ...

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> PartitionRead | Awaitable[PartitionRead]: ...

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None: ...

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None: ...

    def unwatch(self, waiter: ReadWaiter) -> None: ...

    def offset_for_time(
        self, timestamp: int, isolation: Isolation
    ) -> OffsetAtTime | Awaitable[OffsetAtTime]: ...

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int] | Awaitable[tuple[int, int]]: ...

    def active_producers(self) -> tuple[ActiveProducer, ...] | Awaitable[tuple[ActiveProducer, ...]]: ...

    def delete_before(self, offset: int) -> int | Awaitable[int]: ...


class LedLookUp(Protocol):
    """Look-up of the partitions that this host leads."""

    def find(self, topic: str, index: int) -> LedPartition | None: ...


class Leaders(Protocol):
    """Look-up of leaders; implemented by `view.ClusterView`."""

    def leader(self, topic: str, index: int) -> PartitionEntry | None: ...


class Record(Protocol):
    """The coordinator's record of logs and their leaders. All methods raise COORDINATOR_UNAVAILABLE."""

    async def put_ends(self, ends: Sequence[PartitionEnd]) -> None:
        """Records the ends of logs that this host leads."""

    async def ends_of(self, topic_id: TopicId) -> Mapping[int, Recorded]:
        """Returns the recorded ends of a topic's logs by partition number; those without a record are left
        out."""

    async def all_ends(self, topic_ids: Sequence[TopicId]) -> Mapping[TopicId, Mapping[int, Recorded]]:
        """Returns the recorded ends of several topics' logs, as `ends_of` does, with one call."""

    async def give_up(self, topic_id: TopicId, partitions: Sequence[int]) -> None:
        """Gives up partitions that this host leads and has lost records of: they then wait for this host.

        Returns when the view has the change.
        """

    async def accept_losses(self, topic_id: TopicId, partition: int) -> None:
        """Marks what a partition has lost so far as known to an operator."""

    async def take_lead(self, claim: Claim) -> None:
        """Makes this host the leader of a partition; returns when the view has the change.

        Raises FENCED_LEADER_EPOCH if another change came first, NOT_LEADER or POLICY_VIOLATION if this host
        may not lead it.
        """


class PartitionSettings(Struct, frozen=True):
    """Settings of partitions across hosts, not configurable yet. Times in seconds, sizes in bytes."""

    down_grace: float = 1.0  # wait for a disconnected leader before calls are refused
    produce_timeout: float = 30.0
    call_timeout: float = 10.0
    offsets_wait: float = 1.0  # wait for the leader's answer before the replica's offsets are used
    stall: float = 2.0  # time without progress after which a lagging replica's readers go to the leader
    follow_again: float = 10.0  # time without progress after which the stream is joined again
    accounts_every: float = 2.0  # interval of writing accounts
    ends_every: float = 1.0  # interval of reporting grown logs to the coordinator
    quiet: float = 1.0  # without a record, while its leader is heard, until a replica counts as complete
    rebuild_grace: float = 30.0  # wait for hosts that may have a copy
    rebuild_look: float = 1.0  # interval of surveys
    rebuild_at_once: int = 4  # partitions copied concurrently
    copy_bytes: int = 1 << 20  # size of one piece
    retry_first: float = 0.2  # pause after a failed follow; doubles
    retry_longest: float = 5.0
    idle: float = 600.0  # time without a fetch after which a partition is no longer followed
    idle_bytes: int = 16 << 30  # limit of unfollowed replicas; beyond it the least recently used goes
