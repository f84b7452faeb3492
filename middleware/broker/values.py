"""What goes into the broker and comes out: plain values, the same for every face and for peers."""

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
    """A topic to create. `partitions` -1 takes the daemon's default.

    `leaders`: names of hosts that shall lead it: none, one for all partitions, or one for each.
    """

    name: str
    partitions: int = -1
    config: Mapping[str, str] = {}
    leaders: tuple[str, ...] = ()


class Topic(Struct, frozen=True):
    """A topic as it is defined. `name` is the Kafka spelling."""

    name: str
    topic_id: TopicId
    partitions: int
    config: TopicConfig
    internal: bool = False


class TransactionListing(Struct, frozen=True):
    """A transactional id and its present or last transaction. Times in ms; `state` as Kafka's tools print it.

    State Unknown: the home cannot be asked, and nothing else is known. `started_ms` -1: none is open.
    """

    transactional_id: str
    state: str
    producer: ProducerIdentity = NO_PRODUCER
    timeout_ms: int = -1
    started_ms: int = -1
    partitions: tuple[TopicPartition, ...] = ()


class ActiveProducer(Struct, frozen=True):
    """What a partition knows of an idempotent producer. `transaction_start` -1: it has none open there."""

    producer: ProducerIdentity
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class ConfigOperation(enum.IntEnum):
    """IncrementalAlterConfigs' operations."""

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
    """Where a batch went. Times in ms since the Unix epoch, -1 where CreateTime rules."""

    base_offset: int
    log_append_time: int
    log_start_offset: int


class Isolation(enum.IntEnum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class AbortedTransaction(Struct, frozen=True):
    """A transaction that was aborted: readers drop its producer's batches from `first_offset` on."""

    producer_id: int
    first_offset: int


class PartitionRead(Struct, frozen=True):
    """Whole record batches from the one that holds the asked offset. `chunks` are joined by the reader."""

    chunks: Sequence[Chunk]
    size: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[AbortedTransaction] = ()


class OffsetAtTime(Struct, frozen=True):
    """`timestamp` -1 and `offset` -1: nothing at or after the asked time."""

    offset: int
    timestamp: int
    leader_epoch: int


# --- groups


class JoinGroup(Struct, frozen=True):
    """A member's wish to be in the next generation. Times in ms."""

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
    """`members` is filled for the leader only."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class MemberIdRequired(TreecastError):
    """MEMBER_ID_REQUIRED with the id to join with."""

    def __init__(self, member_id: str) -> None:
        super().__init__(Fault.MEMBER_ID_REQUIRED)
        self.member_id = member_id


class SyncGroup(Struct, frozen=True):
    """`assignments`: by the leader only. `protocol_type`, `protocol`: None where not sent (before v5)."""

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
    """How Heartbeat, LeaveGroup, OffsetCommit and TxnOffsetCommit name a member. Generation -1: none."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    reason: str = ""  # LeaveGroup >= 5 (KIP-800)


NOBODY = MemberIdentity()


class CommittedOffset(Struct, frozen=True):
    """`leader_epoch` -1 where unknown."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


OffsetCommits = Mapping[TopicPartition, CommittedOffset]
PartitionErrors = Mapping[TopicPartition, TreecastError]


Place = tuple[TopicId, int]  # a partition as the new group protocol names it
Places = frozenset[Place]

LEAVE_EPOCH = -1  # a member epoch in a request: the member leaves
AWAY_EPOCH = -2  # a static member leaves and will be back


class ConsumerHeartbeat(Struct, frozen=True):
    """ConsumerGroupHeartbeat (KIP-848). None, and -1 for the time-out: as in the member's last request.

    `member_epoch`: 0 joins, LEAVE_EPOCH and AWAY_EPOCH leave. `regex` "": none any more. `owned`: what the
    member holds on to.
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
    """`assignment` None: as before."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Places | None = None


class GroupType(enum.Enum):
    """The values are Kafka's spelling in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupListing(Struct, frozen=True):
    """`state` in Kafka's spelling; of a classic group Empty, PreparingRebalance, CompletingRebalance, Stable
    or Dead, of the others Empty, Assigning, Reconciling, Stable or Dead."""

    group_id: str
    protocol_type: str
    state: str
    group_type: GroupType = GroupType.CLASSIC


class ConsumerMemberState(Struct, frozen=True):
    """What there is to tell of a member of a group of type consumer beyond a classic one's.

    `classic`: it speaks the classic protocol. `regex` "": none.
    """

    epoch: int
    rack_id: str
    topics: tuple[str, ...]
    regex: str
    assigned: Places
    target: Places
    classic: bool


class GroupMember(Struct, frozen=True):
    """`metadata`, `assignment`: as its assignor wrote them; of a group of type consumer the assignment is
    in the embedded protocol of consumers. `consumer`: of such groups only."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    consumer: ConsumerMemberState | None = None


class GroupDescription(Struct, frozen=True):
    """`epoch`: the group epoch, or the generation. `assignment_epoch`: of the target; of a group of type
    consumer only. `protocol`: the assignor."""

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
    """`transactional_id` None asks for a plain idempotent producer; `known`: what it has (KIP-360)."""

    transactional_id: str | None
    transaction_timeout_ms: int
    known: ProducerIdentity = NO_PRODUCER
