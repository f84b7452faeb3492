from treecast.middleware.api.v1 import coordinator_pb2 as _coordinator_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HomeTarget(_message.Message):
    __slots__ = ("kind", "id", "epoch", "part")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    kind: _coordinator_pb2.HomeKind
    id: str
    epoch: int
    part: str
    def __init__(self, kind: _Optional[_Union[_coordinator_pb2.HomeKind, str]] = ..., id: _Optional[str] = ..., epoch: _Optional[int] = ..., part: _Optional[str] = ...) -> None: ...

class HomeDone(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HomeOutcome(_message.Message):
    __slots__ = ("fault", "detail")
    FAULT_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    fault: str
    detail: str
    def __init__(self, fault: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class HomePartition(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class HomePartitionError(_message.Message):
    __slots__ = ("partition", "outcome")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    partition: HomePartition
    outcome: HomeOutcome
    def __init__(self, partition: _Optional[_Union[HomePartition, _Mapping]] = ..., outcome: _Optional[_Union[HomeOutcome, _Mapping]] = ...) -> None: ...

class HomePartitionErrors(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedCompositeFieldContainer[HomePartitionError]
    def __init__(self, errors: _Optional[_Iterable[_Union[HomePartitionError, _Mapping]]] = ...) -> None: ...

class HomeProducer(_message.Message):
    __slots__ = ("producer_id", "epoch")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class HomeMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "generation", "reason")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    generation: int
    reason: str
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., generation: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class HomeProtocol(_message.Message):
    __slots__ = ("name", "metadata")
    NAME_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    metadata: bytes
    def __init__(self, name: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class HomeJoin(_message.Message):
    __slots__ = ("home", "member_id", "instance_id", "client_id", "client_host", "session_timeout_ms", "rebalance_timeout_ms", "protocol_type", "protocols", "require_known_member_id", "reason", "can_skip_assignment")
    HOME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOLS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_KNOWN_MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CAN_SKIP_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: _containers.RepeatedCompositeFieldContainer[HomeProtocol]
    require_known_member_id: bool
    reason: str
    can_skip_assignment: bool
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., session_timeout_ms: _Optional[int] = ..., rebalance_timeout_ms: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocols: _Optional[_Iterable[_Union[HomeProtocol, _Mapping]]] = ..., require_known_member_id: _Optional[bool] = ..., reason: _Optional[str] = ..., can_skip_assignment: _Optional[bool] = ...) -> None: ...

class HomeJoinedMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "metadata")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    metadata: bytes
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., metadata: _Optional[bytes] = ...) -> None: ...

class HomeJoined(_message.Message):
    __slots__ = ("generation", "protocol_type", "protocol", "leader", "member_id", "members", "skip_assignment", "required_member_id")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SKIP_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: _containers.RepeatedCompositeFieldContainer[HomeJoinedMember]
    skip_assignment: bool
    required_member_id: str
    def __init__(self, generation: _Optional[int] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., leader: _Optional[str] = ..., member_id: _Optional[str] = ..., members: _Optional[_Iterable[_Union[HomeJoinedMember, _Mapping]]] = ..., skip_assignment: _Optional[bool] = ..., required_member_id: _Optional[str] = ...) -> None: ...

class HomeAssignment(_message.Message):
    __slots__ = ("member_id", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    assignment: bytes
    def __init__(self, member_id: _Optional[str] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class HomeSync(_message.Message):
    __slots__ = ("home", "generation", "member_id", "instance_id", "protocol_type", "protocol", "assignments")
    HOME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    generation: int
    member_id: str
    instance_id: str
    protocol_type: str
    protocol: str
    assignments: _containers.RepeatedCompositeFieldContainer[HomeAssignment]
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., generation: _Optional[int] = ..., member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., assignments: _Optional[_Iterable[_Union[HomeAssignment, _Mapping]]] = ...) -> None: ...

class HomeSynced(_message.Message):
    __slots__ = ("protocol_type", "protocol", "assignment")
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    protocol_type: str
    protocol: str
    assignment: bytes
    def __init__(self, protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., assignment: _Optional[bytes] = ...) -> None: ...

class HomeHeartbeat(_message.Message):
    __slots__ = ("home", "member")
    HOME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    member: HomeMember
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., member: _Optional[_Union[HomeMember, _Mapping]] = ...) -> None: ...

class HomeLeave(_message.Message):
    __slots__ = ("home", "members")
    HOME_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    members: _containers.RepeatedCompositeFieldContainer[HomeMember]
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., members: _Optional[_Iterable[_Union[HomeMember, _Mapping]]] = ...) -> None: ...

class HomeLeft(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[HomeOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[HomeOutcome, _Mapping]]] = ...) -> None: ...

class HomePlaces(_message.Message):
    __slots__ = ("topic_id", "partitions")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic_id: _Optional[bytes] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class HomeConsumerHeartbeat(_message.Message):
    __slots__ = ("home", "member_id", "member_epoch", "client_id", "client_host", "instance_id", "rack_id", "rebalance_timeout_ms", "has_topics", "topics", "regex", "assignor", "has_owned", "owned")
    HOME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    REBALANCE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNOR_FIELD_NUMBER: _ClassVar[int]
    HAS_OWNED_FIELD_NUMBER: _ClassVar[int]
    OWNED_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str
    rack_id: str
    rebalance_timeout_ms: int
    has_topics: bool
    topics: _containers.RepeatedScalarFieldContainer[str]
    regex: str
    assignor: str
    has_owned: bool
    owned: _containers.RepeatedCompositeFieldContainer[HomePlaces]
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., instance_id: _Optional[str] = ..., rack_id: _Optional[str] = ..., rebalance_timeout_ms: _Optional[int] = ..., has_topics: _Optional[bool] = ..., topics: _Optional[_Iterable[str]] = ..., regex: _Optional[str] = ..., assignor: _Optional[str] = ..., has_owned: _Optional[bool] = ..., owned: _Optional[_Iterable[_Union[HomePlaces, _Mapping]]] = ...) -> None: ...

class HomeConsumerAnswer(_message.Message):
    __slots__ = ("member_id", "member_epoch", "heartbeat_interval_ms", "has_assignment", "assignment")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    MEMBER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    HAS_ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    has_assignment: bool
    assignment: _containers.RepeatedCompositeFieldContainer[HomePlaces]
    def __init__(self, member_id: _Optional[str] = ..., member_epoch: _Optional[int] = ..., heartbeat_interval_ms: _Optional[int] = ..., has_assignment: _Optional[bool] = ..., assignment: _Optional[_Iterable[_Union[HomePlaces, _Mapping]]] = ...) -> None: ...

class HomeOffset(_message.Message):
    __slots__ = ("partition", "offset", "leader_epoch", "metadata")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    partition: HomePartition
    offset: int
    leader_epoch: int
    metadata: str
    def __init__(self, partition: _Optional[_Union[HomePartition, _Mapping]] = ..., offset: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., metadata: _Optional[str] = ...) -> None: ...

class HomeCommit(_message.Message):
    __slots__ = ("home", "member", "offsets", "transactional_id", "producer")
    HOME_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    member: HomeMember
    offsets: _containers.RepeatedCompositeFieldContainer[HomeOffset]
    transactional_id: str
    producer: HomeProducer
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., member: _Optional[_Union[HomeMember, _Mapping]] = ..., offsets: _Optional[_Iterable[_Union[HomeOffset, _Mapping]]] = ..., transactional_id: _Optional[str] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ...) -> None: ...

class HomeFetch(_message.Message):
    __slots__ = ("home", "all", "partitions", "require_stable", "member")
    HOME_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_STABLE_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    all: bool
    partitions: _containers.RepeatedCompositeFieldContainer[HomePartition]
    require_stable: bool
    member: HomeMember
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., all: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[HomePartition, _Mapping]]] = ..., require_stable: _Optional[bool] = ..., member: _Optional[_Union[HomeMember, _Mapping]] = ...) -> None: ...

class HomeFetchedOffset(_message.Message):
    __slots__ = ("offset", "refused")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    offset: HomeOffset
    refused: HomeOutcome
    def __init__(self, offset: _Optional[_Union[HomeOffset, _Mapping]] = ..., refused: _Optional[_Union[HomeOutcome, _Mapping]] = ...) -> None: ...

class HomeFetched(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[HomeFetchedOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[HomeFetchedOffset, _Mapping]]] = ...) -> None: ...

class HomeDeleteOffsets(_message.Message):
    __slots__ = ("home", "partitions")
    HOME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    partitions: _containers.RepeatedCompositeFieldContainer[HomePartition]
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[HomePartition, _Mapping]]] = ...) -> None: ...

class HomeEndOffsets(_message.Message):
    __slots__ = ("home", "producer", "committed")
    HOME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    producer: HomeProducer
    committed: bool
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ..., committed: _Optional[bool] = ...) -> None: ...

class HomeAsked(_message.Message):
    __slots__ = ("home",)
    HOME_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ...) -> None: ...

class HomeDescribedMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_id", "client_host", "metadata", "assignment", "consumer")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes
    consumer: HomeConsumerMember
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., metadata: _Optional[bytes] = ..., assignment: _Optional[bytes] = ..., consumer: _Optional[_Union[HomeConsumerMember, _Mapping]] = ...) -> None: ...

class HomeConsumerMember(_message.Message):
    __slots__ = ("epoch", "rack_id", "topics", "regex", "assigned", "target", "classic")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CLASSIC_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    rack_id: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    regex: str
    assigned: _containers.RepeatedCompositeFieldContainer[HomePlaces]
    target: _containers.RepeatedCompositeFieldContainer[HomePlaces]
    classic: bool
    def __init__(self, epoch: _Optional[int] = ..., rack_id: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., regex: _Optional[str] = ..., assigned: _Optional[_Iterable[_Union[HomePlaces, _Mapping]]] = ..., target: _Optional[_Iterable[_Union[HomePlaces, _Mapping]]] = ..., classic: _Optional[bool] = ...) -> None: ...

class HomeDescribed(_message.Message):
    __slots__ = ("state", "protocol_type", "protocol", "members", "group_type", "epoch", "assignment_epoch")
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GROUP_TYPE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    state: str
    protocol_type: str
    protocol: str
    members: _containers.RepeatedCompositeFieldContainer[HomeDescribedMember]
    group_type: str
    epoch: int
    assignment_epoch: int
    def __init__(self, state: _Optional[str] = ..., protocol_type: _Optional[str] = ..., protocol: _Optional[str] = ..., members: _Optional[_Iterable[_Union[HomeDescribedMember, _Mapping]]] = ..., group_type: _Optional[str] = ..., epoch: _Optional[int] = ..., assignment_epoch: _Optional[int] = ...) -> None: ...

class HomeConfigChange(_message.Message):
    __slots__ = ("name", "operation", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    operation: int
    value: str
    def __init__(self, name: _Optional[str] = ..., operation: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...

class HomeAlterConfig(_message.Message):
    __slots__ = ("home", "changes", "validate_only")
    HOME_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    changes: _containers.RepeatedCompositeFieldContainer[HomeConfigChange]
    validate_only: bool
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., changes: _Optional[_Iterable[_Union[HomeConfigChange, _Mapping]]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class HomeConfig(_message.Message):
    __slots__ = ("overrides",)
    class OverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    overrides: _containers.ScalarMap[str, str]
    def __init__(self, overrides: _Optional[_Mapping[str, str]] = ...) -> None: ...

class HomeList(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HomeListing(_message.Message):
    __slots__ = ("group_id", "protocol_type", "state", "group_type")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GROUP_TYPE_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    protocol_type: str
    state: str
    group_type: str
    def __init__(self, group_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., state: _Optional[str] = ..., group_type: _Optional[str] = ...) -> None: ...

class HomeListed(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[HomeListing]
    def __init__(self, groups: _Optional[_Iterable[_Union[HomeListing, _Mapping]]] = ...) -> None: ...

class HomeListTransactions(_message.Message):
    __slots__ = ("ids", "all")
    IDS_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    all: bool
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., all: _Optional[bool] = ...) -> None: ...

class HomeTransaction(_message.Message):
    __slots__ = ("id", "state", "producer", "timeout_ms", "started_ms", "partitions")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    producer: HomeProducer
    timeout_ms: int
    started_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[HomePartition]
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ..., timeout_ms: _Optional[int] = ..., started_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[HomePartition, _Mapping]]] = ...) -> None: ...

class HomeTransactions(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[HomeTransaction]
    def __init__(self, transactions: _Optional[_Iterable[_Union[HomeTransaction, _Mapping]]] = ...) -> None: ...

class HomeInit(_message.Message):
    __slots__ = ("home", "transaction_timeout_ms", "known")
    HOME_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    transaction_timeout_ms: int
    known: HomeProducer
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., transaction_timeout_ms: _Optional[int] = ..., known: _Optional[_Union[HomeProducer, _Mapping]] = ...) -> None: ...

class HomeAddPartitions(_message.Message):
    __slots__ = ("home", "producer", "partitions")
    HOME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    producer: HomeProducer
    partitions: _containers.RepeatedCompositeFieldContainer[HomePartition]
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[HomePartition, _Mapping]]] = ...) -> None: ...

class HomeAddOffsets(_message.Message):
    __slots__ = ("home", "producer", "group_id")
    HOME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    producer: HomeProducer
    group_id: str
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ..., group_id: _Optional[str] = ...) -> None: ...

class HomeEnd(_message.Message):
    __slots__ = ("home", "producer", "committed")
    HOME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    producer: HomeProducer
    committed: bool
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ..., committed: _Optional[bool] = ...) -> None: ...

class HomePart(_message.Message):
    __slots__ = ("part", "producer")
    PART_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    part: str
    producer: HomeProducer
    def __init__(self, part: _Optional[str] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ...) -> None: ...

class HomeEndParts(_message.Message):
    __slots__ = ("home", "batch", "parts", "committed", "content")
    HOME_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    batch: int
    parts: _containers.RepeatedCompositeFieldContainer[HomePart]
    committed: bool
    content: str
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., batch: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[HomePart, _Mapping]]] = ..., committed: _Optional[bool] = ..., content: _Optional[str] = ...) -> None: ...

class HomeVerify(_message.Message):
    __slots__ = ("home", "producer", "partition", "group_id")
    HOME_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    home: HomeTarget
    producer: HomeProducer
    partition: HomePartition
    group_id: str
    def __init__(self, home: _Optional[_Union[HomeTarget, _Mapping]] = ..., producer: _Optional[_Union[HomeProducer, _Mapping]] = ..., partition: _Optional[_Union[HomePartition, _Mapping]] = ..., group_id: _Optional[str] = ...) -> None: ...
