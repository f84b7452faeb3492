"""`Cluster`: all that the broker needs from beyond this host, as look-ups of who owns what.

Each look-up answers with an owner's Protocol: a partition's leader, a group's home, a transactional
id's home, the cluster's definitions. On a host alone the owners are the local objects themselves
(`local.LocalCluster`); with a fabric the relay answers with stand-ins that forward to the owner.

A refusal is a raised `TreecastError`. What may have to wait returns an awaitable; what is hot
(`PartitionLeader.append`, `.read`) answers at once where it can, and hands out a future only where it
has to wait (an fsync, another host).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity, TopicId, TopicPartition

from .pubsub import Reach
from .values import (
    NOBODY,
    Appended,
    CommittedOffset,
    ConfigChange,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    GroupDescription,
    GroupListing,
    InitProducer,
    Isolation,
    Joined,
    JoinGroup,
    MemberIdentity,
    NewTopic,
    OffsetAtTime,
    OffsetCommits,
    PartitionErrors,
    PartitionRead,
    Synced,
    SyncGroup,
    Topic,
    TransactionListing,
)

T = TypeVar("T")


class ReadWaiter(Protocol):
    """Something that waits for records; `grown` is called on the loop, never from another thread."""

    def grown(self, size: int) -> None:
        """`size` more bytes can be read (0: a bound moved, and nobody counted the bytes below it)."""

    def foreseen(self, size: int) -> None:
        """`size` bytes are about to be appended, and who reads at the end has them already. `grown` follows
        for those who still wait."""

    def gone(self) -> None:
        """The partition was deleted or is not led here any more. It has forgotten this waiter."""


class PartitionLeader(Protocol):
    """One partition as its readers and writers see it."""

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        """Appends one or more whole record batches of magic 2.

        `batches` is writable; base offsets and leader epochs are patched in place, and it is not
        referred to after the call returns. `acks` as in Produce: 0, 1 or -1.
        """

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> PartitionRead | Future[PartitionRead]:
        """Whole batches from the one that holds `offset`, at most `max_bytes` unless `at_least_one`."""

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        """Ends `producer`'s open transaction by a control batch; nothing where none is open.

        A repeat is harmless. From the marker on, batches of older epochs of the producer are refused.
        """

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        """Calls `waiter.grown` whenever more can be read under `isolation`, until `unwatch`."""

    def unwatch(self, waiter: ReadWaiter) -> None: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes of its log that this host holds, for status and metrics."""

    def check_leader_epoch(self, current: int) -> None:
        """FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless `current` is -1 or this epoch."""

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime | Future[OffsetAtTime]:
        """The first record at or after `timestamp` (ms), or EARLIEST, LATEST, MAX_TIMESTAMP."""

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int] | Future[tuple[int, int]]:
        """(the largest epoch up to `leader_epoch`, its end offset), or (-1, -1)."""

    def delete_before(self, offset: int) -> int | Future[int]:
        """DeleteRecords: forgets all before `offset` (-1: the high watermark); answers the new log start."""


class GroupHome(Protocol):
    """The owner of consumer groups."""

    def join(self, request: JoinGroup) -> Awaitable[Joined]: ...

    def sync(self, request: SyncGroup) -> Awaitable[Synced]: ...

    def heartbeat(self, group_id: str, member: MemberIdentity) -> Awaitable[None]: ...

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> Awaitable[ConsumerHeartbeatAnswer]:
        """Joins, stays in and leaves a group of the new protocol (KIP-848)."""

    def leave(
        self, group_id: str, members: Sequence[MemberIdentity]
    ) -> Awaitable[Sequence[TreecastError | None]]:
        """One answer per member; a member without a member id is named by its instance id."""

    def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> Awaitable[PartitionErrors]:
        """Answered when the home has the offsets on disk. The answer names the refused partitions only."""

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberIdentity = NOBODY,
    ) -> Awaitable[Mapping[TopicPartition, CommittedOffset | TreecastError]]:
        """None asks for all. A partition without a committed offset is left out. `member`: on whose behalf,
        in a group of the new protocol."""

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Awaitable[PartitionErrors]: ...

    def describe(self, group_id: str) -> Awaitable[GroupDescription]:
        """A group that does not exist is described as Dead, as Kafka does."""

    def delete(self, group_id: str) -> Awaitable[None]: ...

    def alter_config(
        self, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Awaitable[Mapping[str, str]]:
        """The group's own settings after `changes`, of which there may be none."""

    def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> Awaitable[PartitionErrors]:
        """TxnOffsetCommit: kept as pending until `end_transaction_offsets`."""

    def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> Awaitable[None]:
        """The decision of `producer`'s transaction for its pending offsets of this group."""


class TransactionHome(Protocol):
    """The owner of transactional ids."""

    def init_producer(self, request: InitProducer) -> Awaitable[ProducerIdentity]: ...

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[TopicPartition]
    ) -> Awaitable[PartitionErrors]: ...

    def add_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None]: ...

    def end(self, transactional_id: str, producer: ProducerIdentity, *, committed: bool) -> Awaitable[None]:
        """Answered when the decision is on disk and the markers are written."""

    def end_parts(
        self,
        whole: str,
        batch: int,
        parts: Mapping[str, ProducerIdentity],
        *,
        committed: bool,
        content: str = "",
    ) -> Awaitable[None]:
        """Commits a batch that was staged in parts (`transactions.parts`), or aborts what is open of it.

        `parts`: the ids of those that count, and who wrote them. `content`: what the batch holds, in its
        writer's words; a repeat has to hold the same.
        """


class Kind(Generic[T]):
    """A kind of home, with the Protocol by which one is asked."""

    def __init__(self, kind: HomeKind) -> None:
        self.kind: Final = kind


GROUPS: Final[Kind[GroupHome]] = Kind(HomeKind.GROUP)
TRANSACTIONS: Final[Kind[TransactionHome]] = Kind(HomeKind.TRANSACTION)
KINDS: Final[tuple[Kind[Any], ...]] = (GROUPS, TRANSACTIONS)


class Definitions(Protocol):
    """The topics of the cluster. Looking is local and immediate, changing may wait."""

    def topics(self) -> Mapping[str, Topic]: ...

    def listen(self, listener: Callable[[str], None] | None) -> None:
        """`listener` is called after each change of a topic, with its name; None: nobody any more."""

    @property
    def revision(self) -> int:
        """Rises with every change of the topics."""

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """UNKNOWN_TOPIC_ID where there is none."""

    def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Awaitable[Topic]: ...

    def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Awaitable[Sequence[Topic | TreecastError]]:
        """One answer for each, in their order: many together are written down together."""

    def delete_topic(self, name: str) -> Awaitable[Topic]: ...

    def create_partitions(
        self, name: str, total: int, *, validate_only: bool = False
    ) -> Awaitable[Topic]: ...

    def alter_topic(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Awaitable[Topic]: ...


class Cluster(Protocol):
    """Who owns what. A host alone owns everything."""

    @property
    def cluster_id(self) -> str:
        """Kafka's spelling: 22 characters of URL-safe base64 of a UUID."""

    @property
    def host(self) -> Host: ...

    @property
    def definitions(self) -> Definitions: ...

    def partition(self, topic: str, index: int) -> PartitionLeader:
        """UNKNOWN_TOPIC where there is none."""

    def home(self, kind: Kind[T], id: str) -> T:
        """The owner of a group id, a transactional id, or whatever else has a home."""

    def list_groups(self) -> Awaitable[Sequence[GroupListing]]: ...

    def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Awaitable[Sequence[TransactionListing]]:
        """Of all hosts: all that are known, or those of the ids; one that nobody knows is left out."""

    @property
    def events(self) -> Reach:
        """Interest, retained messages and shared subscriptions of all hosts, as the hub asks for them between
        `begin_events` and `end_events`."""

    async def begin_events(self) -> None:
        """What is published crosses hosts from now on: sessions that last were taken up."""

    async def end_events(self) -> None:
        """Not any more. Only after `begin_events`."""

    def new_producer(self) -> Awaitable[ProducerIdentity]:
        """An identity for an idempotent producer without a transactional id."""
