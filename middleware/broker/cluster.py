"""`Cluster`: everything the broker needs from beyond this host, as look-ups of owners.

Each look-up returns an owner's Protocol: a partition's leader, a group's home, a transactional
id's home, the cluster's definitions. On a standalone host the owners are the local objects themselves
(`local.LocalCluster`); with a fabric the relay returns proxies that forward to the owner.

Refusals are raised as `TreecastError`. Calls that may have to wait return an awaitable. Hot calls
(`PartitionLeader.append`, `.read`) return the result directly if they can, and a future only if they
have to wait (for an fsync or another host).
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity, TopicId, TopicPartition

from .pubsub import Reach
from .queues.reach import Reach as QueueReach
from .values import (
    NOBODY,
    ActiveProducer,
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
    """A waiter for records; `grown` is called on the loop, never from another thread."""

    def grown(self, size: int) -> None:
        """`size` more bytes can be read (0: a bound moved, and the number of bytes below it is unknown)."""

    def foreseen(self, size: int) -> None:
        """`size` bytes are about to be appended, and readers at the end can read them already. `grown`
        follows for those that still wait."""

    def gone(self) -> None:
        """The partition was deleted or is no longer led here. It has removed this waiter."""


class PartitionLeader(Protocol):
    """One partition as its readers and writers see it."""

    @property
    def here(self) -> bool:
        """Whether the object may be used. If not, the partition is to be looked up again."""

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        """Appends one or more whole record batches of magic 2.

        `batches` is writable: base offsets and leader epochs are patched in place. No reference to it is
        kept after the call returns. `acks` as in Produce: 0, 1 or -1.
        """

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> PartitionRead | Future[PartitionRead]:
        """Returns whole batches from the one with `offset` on, at most `max_bytes` unless `at_least_one`."""

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        """Ends `producer`'s open transaction with a control batch; does nothing if none is open.

        A repeat is harmless. After the marker, batches of older epochs of the producer are refused.
        """

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        """Calls `waiter.grown` whenever more can be read under `isolation`, until `unwatch`."""

    def unwatch(self, waiter: ReadWaiter) -> None: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def size(self) -> int:
        """The bytes of the log that this host holds, for status and metrics."""

    def check_leader_epoch(self, current: int) -> None:
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless `current` is -1 or this epoch."""

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime | Future[OffsetAtTime]:
        """Returns the first record at or after `timestamp` (ms, or EARLIEST, LATEST, MAX_TIMESTAMP)."""

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int] | Future[tuple[int, int]]:
        """Returns (the largest epoch up to `leader_epoch`, its end offset), or (-1, -1)."""

    def active_producers(self) -> tuple[ActiveProducer, ...] | Future[tuple[ActiveProducer, ...]]:
        """Returns the idempotent producers that the partition knows of, ordered by id."""

    def delete_before(self, offset: int) -> int | Future[int]:
        """Deletes all records before `offset` (-1: the high watermark); returns the new log start."""


class GroupHome(Protocol):
    """The owner of consumer groups."""

    def join(self, request: JoinGroup) -> Awaitable[Joined]: ...

    def sync(self, request: SyncGroup) -> Awaitable[Synced]: ...

    def heartbeat(self, group_id: str, member: MemberIdentity) -> Awaitable[None]: ...

    def consumer_heartbeat(self, request: ConsumerHeartbeat) -> Awaitable[ConsumerHeartbeatAnswer]:
        """Joins, stays in or leaves a group of the new protocol (KIP-848)."""

    def leave(
        self, group_id: str, members: Sequence[MemberIdentity]
    ) -> Awaitable[Sequence[TreecastError | None]]:
        """Returns one result per member. A member without a member id is named by its instance id."""

    def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> Awaitable[PartitionErrors]:
        """Returns when the home has the offsets on disk. The result names only the refused partitions."""

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberIdentity = NOBODY,
    ) -> Awaitable[Mapping[TopicPartition, CommittedOffset | TreecastError]]:
        """Returns the committed offsets of `partitions` (None: of all). Partitions without one are left out.
        `member` is the requester in a group of the new protocol."""

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Awaitable[PartitionErrors]: ...

    def describe(self, group_id: str) -> Awaitable[GroupDescription]:
        """Describes a group. Like in Kafka, a group that does not exist is described as Dead."""

    def delete(self, group_id: str) -> Awaitable[None]: ...

    def alter_config(
        self, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Awaitable[Mapping[str, str]]:
        """Applies `changes`, which may be empty, and returns the group's own settings after them."""

    def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> Awaitable[PartitionErrors]:
        """Keeps the offsets of a TxnOffsetCommit as pending until `end_transaction_offsets`."""

    def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> Awaitable[None]:
        """Applies the decision of `producer`'s transaction to its pending offsets of this group."""


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
        """Ends the transaction. Returns when the decision is on disk and the markers are written."""

    def end_parts(
        self,
        whole: str,
        batch: int,
        parts: Mapping[str, ProducerIdentity],
        *,
        committed: bool,
        content: str = "",
    ) -> Awaitable[None]:
        """Commits a batch that was staged in parts (`transactions.parts`), or aborts its open parts.

        `parts` maps the ids of the parts that count to their producers. `content` is the writer's
        description of what the batch holds; a repeat must have the same.
        """


class Kind(Generic[T]):
    """A kind of home, with the Protocol that homes of this kind implement."""

    def __init__(self, kind: HomeKind) -> None:
        self.kind: Final = kind


GROUPS: Final[Kind[GroupHome]] = Kind(HomeKind.GROUP)
TRANSACTIONS: Final[Kind[TransactionHome]] = Kind(HomeKind.TRANSACTION)
KINDS: Final[tuple[Kind[Any], ...]] = (GROUPS, TRANSACTIONS)


# Called once with the refused partitions, or with the error that refused all of them.
CommitAnswer = Callable[[PartitionErrors, TreecastError | None], None]


class GroupsAtOnce(Protocol):
    """The requests that consumers repeat with each poll, for groups whose home is this host: calls of
    `GroupHome` without coroutines. Both raise a refusal of the request as a whole."""

    def heartbeat(self, group_id: str, member: MemberIdentity) -> bool:
        """As `GroupHome.heartbeat`. Returns False where that one has to be asked, because the answer has to
        wait."""

    def commit(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits, answer: CommitAnswer
    ) -> None:
        """As `GroupHome.commit_offsets`: calls `answer` when the home has the offsets on disk, also before it
        returns if nothing is to be written."""


class Definitions(Protocol):
    """The topics of the cluster. Reads are local and immediate; changes may wait."""

    def topics(self) -> Mapping[str, Topic]: ...

    def listen(self, listener: Callable[[str], None] | None) -> None:
        """Calls `listener` with a topic's name after each change of the topic; None removes the listener."""

    @property
    def revision(self) -> int:
        """A number that rises with every change of the topics."""

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        """Returns the topic. Raises UNKNOWN_TOPIC_ID if there is none."""

    def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Awaitable[Topic]: ...

    def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Awaitable[Sequence[Topic | TreecastError]]:
        """Creates topics with one write to disk. Returns one result for each, in the order of `new`."""

    def delete_topic(self, name: str) -> Awaitable[Topic]: ...

    def create_partitions(
        self, name: str, total: int, *, validate_only: bool = False
    ) -> Awaitable[Topic]: ...

    def alter_topic(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Awaitable[Topic]: ...


class Leaders(Protocol):
    """The partitions of all hosts."""

    def partition(self, topic: str, index: int) -> PartitionLeader:
        """Returns the partition's leader. Raises UNKNOWN_TOPIC if there is no such partition."""


class Cluster(Leaders, Protocol):
    """The owners of partitions, homes and definitions. A standalone host owns everything."""

    @property
    def cluster_id(self) -> str:
        """The cluster id in Kafka's format: a UUID as 22 characters of URL-safe base64."""

    @property
    def host(self) -> Host: ...

    @property
    def definitions(self) -> Definitions: ...

    def home(self, kind: Kind[T], id: str) -> T:
        """Returns the owner of a group id, a transactional id, or another id that has a home."""

    def groups_at_once(self, group_id: str) -> GroupsAtOnce | None:
        """Returns what answers the repeated requests of a group; None if its home is not this host."""

    def list_groups(self) -> Awaitable[Sequence[GroupListing]]: ...

    def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Awaitable[Sequence[TransactionListing]]:
        """Lists the transactions of all hosts, or only those of the given ids; unknown ids are left out."""

    @property
    def events(self) -> Reach:
        """Interest, retained messages and shared subscriptions of all hosts. The hub uses it between
        `begin_events` and `end_events`."""

    @property
    def queues(self) -> QueueReach | None:
        """The way of queues to other hosts, which `HostQueues` takes; None on a standalone host."""

    async def begin_events(self) -> None:
        """Lets messages cross hosts from now on; called once persistent sessions are restored."""

    async def end_events(self) -> None:
        """Stops messages from crossing hosts. Only called after `begin_events`."""

    def new_producer(self) -> Awaitable[ProducerIdentity]:
        """Returns an identity for an idempotent producer without a transactional id."""
