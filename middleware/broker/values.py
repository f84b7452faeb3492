"""The plain values that go into and out of the broker, the same for every face and for peers."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from msgspec import Struct

from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import (
    NO_LEADER_EPOCH,
    NO_PRODUCER,
    ProducerIdentity,
    TopicId,
    TopicPartition,
)
from treecast.middleware.model.topic_config import TopicConfig

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3  # ListOffsets 7: the offset of the largest timestamp


# --- topics


class NewTopic(Struct, frozen=True):
    """A topic to create. `partitions` -1: the daemon's default.

    `leaders`: names of the hosts to lead it: none, one for all partitions, or one for each.
    """

    name: str
    partitions: int = -1
    config: Mapping[str, str] = {}
    leaders: tuple[str, ...] = ()


class View(Struct, frozen=True):
    """The content of a view: the records of the topic `base` that pass `filter`."""

    base: str
    filter: str


class Topic(Struct, frozen=True):
    """The definition of a topic. `name` is the Kafka spelling. `view`: None if it has its own records."""

    name: str
    topic_id: TopicId
    partitions: int
    config: TopicConfig
    internal: bool = False
    view: View | None = None


class TransactionListing(Struct, frozen=True):
    """A transactional id and its current or last transaction. Times in ms; `state` as Kafka's tools print it.

    State Unknown: the home cannot be reached, and nothing else is known. `started_ms` -1: none is open.
    """

    transactional_id: str
    state: str
    producer: ProducerIdentity = NO_PRODUCER
    timeout_ms: int = -1
    started_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()


class ActiveProducer(Struct, frozen=True):
    """A partition's state of an idempotent producer. `transaction_start` -1: no open transaction there."""

    producer: ProducerIdentity
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class ConfigOperation(enum.IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(Struct, frozen=True):
    name: str
    operation: ConfigOperation
    value: str | None


# --- records


class Appended(Struct, frozen=True):
    """The result of an append. Times in ms since the Unix epoch, -1 with CreateTime."""

    base_offset: int
    log_append_time: int
    log_start_offset: int


class Isolation(enum.IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class AbortedTransaction(Struct, frozen=True):
    """An aborted transaction: readers drop its producer's batches from `first_offset` on."""

    producer_id: int
    first_offset: int


class PartitionRead(Struct, frozen=True):
    """Whole record batches from the one that holds the requested offset. The reader joins `chunks`."""

    chunks: Sequence[Chunk]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] = ()


class OffsetAtTime(Struct, frozen=True):
    """The result of a look-up by time. `timestamp` and `offset` -1: nothing at or after the given time."""

    offset: int
    timestamp: int
    leader_epoch: int


# --- groups


class JoinGroup(Struct, frozen=True):
    """A member's request to be in the next generation. Times in ms."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    require_known_member_id: bool  # JoinGroup >= 4 without an instance id (KIP-394)
    reason: str = ""  # KIP-800
    can_skip_assignment: bool = False  # JoinGroup >= 9 (KIP-814)


class JoinedMember(Struct, frozen=True):
    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(Struct, frozen=True):
    """The result of a join. `members` is filled for the leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class MemberIdRequired(TreecastError):
    """MEMBER_ID_REQUIRED, with the id to join with."""

    def __init__(self, member_id: str) -> None:
        super().__init__(Fault.MEMBER_ID_REQUIRED)
        self.member_id = member_id


class SyncGroup(Struct, frozen=True):
    """A SyncGroup request. `assignments`: sent by the leader only. `protocol_type`, `protocol`: None if not
    sent (before v5)."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


class Synced(Struct, frozen=True):
    protocol_type: str
    protocol: str
    assignment: bytes


class MemberIdentity(Struct, frozen=True):
    """A member as named in Heartbeat, LeaveGroup, OffsetCommit and TxnOffsetCommit. Generation -1: none."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    reason: str = ""  # LeaveGroup >= 5 (KIP-800)


NOBODY = MemberIdentity()


class CommittedOffset(Struct, frozen=True):
    """A committed offset. `leader_epoch` -1: unknown."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


OffsetCommits = Mapping[TopicPartition, CommittedOffset]
PartitionErrors = Mapping[TopicPartition, TreecastError]


Place = tuple[TopicId, int]  # a partition as the new group protocol names it
Places = frozenset[Place]

LEAVE_EPOCH = -1  # member epoch in a request: the member leaves
AWAY_EPOCH = -2  # a static member leaves temporarily


class ConsumerHeartbeat(Struct, frozen=True):
    """A ConsumerGroupHeartbeat (KIP-848). None, or -1 for the time-out: as in the member's last request.

    `member_epoch`: 0 joins, LEAVE_EPOCH and AWAY_EPOCH leave. `regex` "": no longer any. `owned`: the
    partitions that the member still owns.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Places | None = None


class ConsumerHeartbeatAnswer(Struct, frozen=True):
    """The response to a ConsumerGroupHeartbeat. `assignment` None: unchanged."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Places | None = None


class GroupType(enum.Enum):
    """The type of a group. The values are Kafka's spelling in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupListing(Struct, frozen=True):
    """A group as listed. `state` in Kafka's spelling: Empty, PreparingRebalance, CompletingRebalance, Stable
    or Dead for a classic group; Empty, Assigning, Reconciling, Stable or Dead for the others."""

    group_id: str
    protocol_type: str
    state: str
    group_type: GroupType = GroupType.CLASSIC


class ConsumerMemberState(Struct, frozen=True):
    """The additional state of a member of a group of type consumer, compared with a classic member.

    `classic`: the member speaks the classic protocol. `regex` "": none.
    """

    epoch: int
    rack_id: str
    topics: tuple[str, ...]
    regex: str
    assigned: Places
    target: Places
    classic: bool


class GroupMember(Struct, frozen=True):
    """A group member. `metadata`, `assignment`: as its assignor wrote them; in a group of type consumer the
    assignment is in the embedded consumer protocol. `consumer`: only for such groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    consumer: ConsumerMemberState | None = None


class GroupDescription(Struct, frozen=True):
    """The description of a group. `epoch`: the group epoch, or the generation. `assignment_epoch`: that of
    the target assignment; only for a group of type consumer. `protocol`: the assignor."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    group_type: GroupType = GroupType.CLASSIC
    epoch: int = 0
    assignment_epoch: int = 0


# --- producers and transactions


class InitProducer(Struct, frozen=True):
    """A request for a producer identity. `transactional_id` None: a plain idempotent producer. `known`: the
    identity that the producer already has (KIP-360)."""

    transactional_id: str | None
    transaction_timeout_ms: int
    known: ProducerIdentity = NO_PRODUCER
