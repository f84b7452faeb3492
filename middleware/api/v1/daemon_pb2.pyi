from treecast.middleware.api.v1 import coordinator_pb2 as _coordinator_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("name", "version", "cluster_id", "host_id", "pid", "uptime_seconds", "data_dir", "fsync", "event_loop", "compiled_modules", "faces", "totals", "resources", "coordinator", "hosts", "problems", "why_interpreted", "certificates")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DATA_DIR_FIELD_NUMBER: _ClassVar[int]
    FSYNC_FIELD_NUMBER: _ClassVar[int]
    EVENT_LOOP_FIELD_NUMBER: _ClassVar[int]
    COMPILED_MODULES_FIELD_NUMBER: _ClassVar[int]
    FACES_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    WHY_INTERPRETED_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    cluster_id: str
    host_id: int
    pid: int
    uptime_seconds: float
    data_dir: str
    fsync: str
    event_loop: str
    compiled_modules: _containers.RepeatedScalarFieldContainer[str]
    faces: _containers.RepeatedCompositeFieldContainer[Face]
    totals: Totals
    resources: Resources
    coordinator: CoordinatorStatus
    hosts: _containers.RepeatedCompositeFieldContainer[HostStatus]
    problems: _containers.RepeatedScalarFieldContainer[str]
    why_interpreted: str
    certificates: _containers.RepeatedCompositeFieldContainer[Certificate]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., cluster_id: _Optional[str] = ..., host_id: _Optional[int] = ..., pid: _Optional[int] = ..., uptime_seconds: _Optional[float] = ..., data_dir: _Optional[str] = ..., fsync: _Optional[str] = ..., event_loop: _Optional[str] = ..., compiled_modules: _Optional[_Iterable[str]] = ..., faces: _Optional[_Iterable[_Union[Face, _Mapping]]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., coordinator: _Optional[_Union[CoordinatorStatus, _Mapping]] = ..., hosts: _Optional[_Iterable[_Union[HostStatus, _Mapping]]] = ..., problems: _Optional[_Iterable[str]] = ..., why_interpreted: _Optional[str] = ..., certificates: _Optional[_Iterable[_Union[Certificate, _Mapping]]] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("what", "ends_at")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    what: str
    ends_at: float
    def __init__(self, what: _Optional[str] = ..., ends_at: _Optional[float] = ...) -> None: ...

class CoordinatorStatus(_message.Message):
    __slots__ = ("address", "reachable", "revision", "problem", "problems", "missing")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    address: str
    reachable: bool
    revision: int
    problem: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, address: _Optional[str] = ..., reachable: _Optional[bool] = ..., revision: _Optional[int] = ..., problem: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., missing: _Optional[_Iterable[str]] = ...) -> None: ...

class HostStatus(_message.Message):
    __slots__ = ("host_id", "name", "address", "presence", "version", "incarnation", "leads", "here", "channel")
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    host_id: int
    name: str
    address: str
    presence: str
    version: str
    incarnation: int
    leads: int
    here: bool
    channel: ChannelStatus
    def __init__(self, host_id: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., presence: _Optional[str] = ..., version: _Optional[str] = ..., incarnation: _Optional[int] = ..., leads: _Optional[int] = ..., here: _Optional[bool] = ..., channel: _Optional[_Union[ChannelStatus, _Mapping]] = ...) -> None: ...

class ChannelStatus(_message.Message):
    __slots__ = ("connected", "round_trip_seconds", "bytes_in", "bytes_out", "in_flight", "queued", "last_error", "advice")
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    connected: bool
    round_trip_seconds: float
    bytes_in: int
    bytes_out: int
    in_flight: int
    queued: int
    last_error: str
    advice: str
    def __init__(self, connected: _Optional[bool] = ..., round_trip_seconds: _Optional[float] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., in_flight: _Optional[int] = ..., queued: _Optional[int] = ..., last_error: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...

class Face(_message.Message):
    __slots__ = ("name", "address", "unix_socket", "traffic", "gone")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UNIX_SOCKET_FIELD_NUMBER: _ClassVar[int]
    TRAFFIC_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    unix_socket: str
    traffic: Traffic
    gone: bool
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., unix_socket: _Optional[str] = ..., traffic: _Optional[_Union[Traffic, _Mapping]] = ..., gone: _Optional[bool] = ...) -> None: ...

class Traffic(_message.Message):
    __slots__ = ("connections", "connections_opened", "bytes_in", "bytes_out", "requests", "protocol_errors")
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_OPENED_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_ERRORS_FIELD_NUMBER: _ClassVar[int]
    connections: int
    connections_opened: int
    bytes_in: int
    bytes_out: int
    requests: int
    protocol_errors: int
    def __init__(self, connections: _Optional[int] = ..., connections_opened: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., requests: _Optional[int] = ..., protocol_errors: _Optional[int] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("topics", "partitions", "groups", "records_in", "bytes_in", "bytes_out", "records_stored", "bytes_stored")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_STORED_FIELD_NUMBER: _ClassVar[int]
    BYTES_STORED_FIELD_NUMBER: _ClassVar[int]
    topics: int
    partitions: int
    groups: int
    records_in: int
    bytes_in: int
    bytes_out: int
    records_stored: int
    bytes_stored: int
    def __init__(self, topics: _Optional[int] = ..., partitions: _Optional[int] = ..., groups: _Optional[int] = ..., records_in: _Optional[int] = ..., bytes_in: _Optional[int] = ..., bytes_out: _Optional[int] = ..., records_stored: _Optional[int] = ..., bytes_stored: _Optional[int] = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("resident_bytes", "cpu_seconds", "open_files", "open_files_limit", "disk_free_bytes", "disk_bytes")
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_FIELD_NUMBER: _ClassVar[int]
    OPEN_FILES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    resident_bytes: int
    cpu_seconds: float
    open_files: int
    open_files_limit: int
    disk_free_bytes: int
    disk_bytes: int
    def __init__(self, resident_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., open_files: _Optional[int] = ..., open_files_limit: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., disk_bytes: _Optional[int] = ...) -> None: ...

class FabricRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FabricResponse(_message.Message):
    __slots__ = ("address", "announced", "interface", "mtu", "segment_bytes", "receive_buffer", "carriers", "origins", "received")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ANNOUNCED_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_BUFFER_FIELD_NUMBER: _ClassVar[int]
    CARRIERS_FIELD_NUMBER: _ClassVar[int]
    ORIGINS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    address: str
    announced: str
    interface: str
    mtu: int
    segment_bytes: int
    receive_buffer: int
    carriers: _containers.RepeatedCompositeFieldContainer[CarrierStatus]
    origins: int
    received: int
    def __init__(self, address: _Optional[str] = ..., announced: _Optional[str] = ..., interface: _Optional[str] = ..., mtu: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., receive_buffer: _Optional[int] = ..., carriers: _Optional[_Iterable[_Union[CarrierStatus, _Mapping]]] = ..., origins: _Optional[int] = ..., received: _Optional[int] = ...) -> None: ...

class CarrierStatus(_message.Message):
    __slots__ = ("name", "refusal", "address", "targets", "holders", "segmentation", "coalescing", "one_by_one")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTATION_FIELD_NUMBER: _ClassVar[int]
    COALESCING_FIELD_NUMBER: _ClassVar[int]
    ONE_BY_ONE_FIELD_NUMBER: _ClassVar[int]
    name: str
    refusal: str
    address: str
    targets: int
    holders: int
    segmentation: bool
    coalescing: bool
    one_by_one: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., refusal: _Optional[str] = ..., address: _Optional[str] = ..., targets: _Optional[int] = ..., holders: _Optional[int] = ..., segmentation: _Optional[bool] = ..., coalescing: _Optional[bool] = ..., one_by_one: _Optional[_Iterable[str]] = ...) -> None: ...

class SetRulesRequest(_message.Message):
    __slots__ = ("carrier", "version", "rules")
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    carrier: str
    version: int
    rules: bytes
    def __init__(self, carrier: _Optional[str] = ..., version: _Optional[int] = ..., rules: _Optional[bytes] = ...) -> None: ...

class SetRulesResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class VirtualTrees(_message.Message):
    __slots__ = ("names", "hosts", "ends", "trees")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    hosts: _containers.RepeatedScalarFieldContainer[int]
    ends: _containers.RepeatedScalarFieldContainer[int]
    trees: _containers.RepeatedCompositeFieldContainer[VirtualTree]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., hosts: _Optional[_Iterable[int]] = ..., ends: _Optional[_Iterable[int]] = ..., trees: _Optional[_Iterable[_Union[VirtualTree, _Mapping]]] = ...) -> None: ...

class VirtualTree(_message.Message):
    __slots__ = ("id", "edges")
    ID_FIELD_NUMBER: _ClassVar[int]
    EDGES_FIELD_NUMBER: _ClassVar[int]
    id: int
    edges: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[int] = ..., edges: _Optional[_Iterable[int]] = ...) -> None: ...

class ReplicationTrees(_message.Message):
    __slots__ = ("trees",)
    TREES_FIELD_NUMBER: _ClassVar[int]
    trees: _containers.RepeatedCompositeFieldContainer[ReplicationTree]
    def __init__(self, trees: _Optional[_Iterable[_Union[ReplicationTree, _Mapping]]] = ...) -> None: ...

class ReplicationTree(_message.Message):
    __slots__ = ("hosts", "sid")
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    SID_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    sid: bytes
    def __init__(self, hosts: _Optional[_Iterable[str]] = ..., sid: _Optional[bytes] = ...) -> None: ...

class ListWishesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWishesResponse(_message.Message):
    __slots__ = ("wishes",)
    WISHES_FIELD_NUMBER: _ClassVar[int]
    wishes: _containers.RepeatedCompositeFieldContainer[TopicWish]
    def __init__(self, wishes: _Optional[_Iterable[_Union[TopicWish, _Mapping]]] = ...) -> None: ...

class TopicWish(_message.Message):
    __slots__ = ("topics", "filter")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topics: str
    filter: str
    def __init__(self, topics: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class ListReceiverSetsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReceiverSetsResponse(_message.Message):
    __slots__ = ("sets",)
    SETS_FIELD_NUMBER: _ClassVar[int]
    sets: _containers.RepeatedCompositeFieldContainer[ReceiverSet]
    def __init__(self, sets: _Optional[_Iterable[_Union[ReceiverSet, _Mapping]]] = ...) -> None: ...

class ReceiverSet(_message.Message):
    __slots__ = ("hosts", "packets", "bytes")
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    hosts: _containers.RepeatedScalarFieldContainer[str]
    packets: int
    bytes: int
    def __init__(self, hosts: _Optional[_Iterable[str]] = ..., packets: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class ListStreamsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListStreamsResponse(_message.Message):
    __slots__ = ("streams", "partitions", "missing", "unreached")
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    UNREACHED_FIELD_NUMBER: _ClassVar[int]
    streams: _containers.RepeatedCompositeFieldContainer[StreamStatus]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStanding]
    missing: _containers.RepeatedScalarFieldContainer[str]
    unreached: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, streams: _Optional[_Iterable[_Union[StreamStatus, _Mapping]]] = ..., partitions: _Optional[_Iterable[_Union[PartitionStanding, _Mapping]]] = ..., missing: _Optional[_Iterable[str]] = ..., unreached: _Optional[_Iterable[str]] = ...) -> None: ...

class StreamStatus(_message.Message):
    __slots__ = ("name", "origin_id", "origin", "stream", "epoch", "outgoing", "end", "next", "state", "state_id", "accounts", "sent", "pace")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_ID_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    OUTGOING_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    PACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    origin_id: int
    origin: str
    stream: int
    epoch: int
    outgoing: bool
    end: int
    next: int
    state: str
    state_id: int
    accounts: _containers.RepeatedCompositeFieldContainer[StreamAccount]
    sent: _containers.RepeatedCompositeFieldContainer[StreamSent]
    pace: StreamPace
    def __init__(self, name: _Optional[str] = ..., origin_id: _Optional[int] = ..., origin: _Optional[str] = ..., stream: _Optional[int] = ..., epoch: _Optional[int] = ..., outgoing: _Optional[bool] = ..., end: _Optional[int] = ..., next: _Optional[int] = ..., state: _Optional[str] = ..., state_id: _Optional[int] = ..., accounts: _Optional[_Iterable[_Union[StreamAccount, _Mapping]]] = ..., sent: _Optional[_Iterable[_Union[StreamSent, _Mapping]]] = ..., pace: _Optional[_Union[StreamPace, _Mapping]] = ...) -> None: ...

class StreamPace(_message.Message):
    __slots__ = ("rate", "window", "on_way", "unsent", "set_by", "why", "payload_bytes")
    RATE_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ON_WAY_FIELD_NUMBER: _ClassVar[int]
    UNSENT_FIELD_NUMBER: _ClassVar[int]
    SET_BY_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    rate: float
    window: int
    on_way: int
    unsent: int
    set_by: str
    why: str
    payload_bytes: int
    def __init__(self, rate: _Optional[float] = ..., window: _Optional[int] = ..., on_way: _Optional[int] = ..., unsent: _Optional[int] = ..., set_by: _Optional[str] = ..., why: _Optional[str] = ..., payload_bytes: _Optional[int] = ...) -> None: ...

class StreamSent(_message.Message):
    __slots__ = ("carrier", "purpose", "packets", "bytes")
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    carrier: str
    purpose: str
    packets: int
    bytes: int
    def __init__(self, carrier: _Optional[str] = ..., purpose: _Optional[str] = ..., packets: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class StreamAccount(_message.Message):
    __slots__ = ("host_id", "host", "state", "carrier", "addressed", "live", "repaired", "replayed", "filtered", "expired", "refused", "outstanding", "closed", "balanced", "window", "turnaround", "out_for", "left")
    class ExpiredEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    HOST_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    ADDRESSED_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    OUTSTANDING_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    BALANCED_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    TURNAROUND_FIELD_NUMBER: _ClassVar[int]
    OUT_FOR_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    host_id: int
    host: str
    state: str
    carrier: str
    addressed: int
    live: int
    repaired: int
    replayed: int
    filtered: int
    expired: _containers.ScalarMap[str, int]
    refused: _containers.ScalarMap[str, int]
    outstanding: int
    closed: bool
    balanced: bool
    window: int
    turnaround: float
    out_for: float
    left: int
    def __init__(self, host_id: _Optional[int] = ..., host: _Optional[str] = ..., state: _Optional[str] = ..., carrier: _Optional[str] = ..., addressed: _Optional[int] = ..., live: _Optional[int] = ..., repaired: _Optional[int] = ..., replayed: _Optional[int] = ..., filtered: _Optional[int] = ..., expired: _Optional[_Mapping[str, int]] = ..., refused: _Optional[_Mapping[str, int]] = ..., outstanding: _Optional[int] = ..., closed: _Optional[bool] = ..., balanced: _Optional[bool] = ..., window: _Optional[int] = ..., turnaround: _Optional[float] = ..., out_for: _Optional[float] = ..., left: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "topic_id", "internal", "partitions", "overrides", "records", "bytes")
    class OverridesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    INTERNAL_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_id: str
    internal: bool
    partitions: int
    overrides: _containers.ScalarMap[str, str]
    records: int
    bytes: int
    def __init__(self, name: _Optional[str] = ..., topic_id: _Optional[str] = ..., internal: _Optional[bool] = ..., partitions: _Optional[int] = ..., overrides: _Optional[_Mapping[str, str]] = ..., records: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Partition(_message.Message):
    __slots__ = ("index", "leader_epoch", "start_offset", "end_offset", "stable_offset", "bytes", "leader", "copies")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STABLE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    index: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    stable_offset: int
    bytes: int
    leader: str
    copies: int
    def __init__(self, index: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., stable_offset: _Optional[int] = ..., bytes: _Optional[int] = ..., leader: _Optional[str] = ..., copies: _Optional[int] = ...) -> None: ...

class ConfigEntry(_message.Message):
    __slots__ = ("name", "value", "overridden", "doc")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OVERRIDDEN_FIELD_NUMBER: _ClassVar[int]
    DOC_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    overridden: bool
    doc: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., overridden: _Optional[bool] = ..., doc: _Optional[str] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "partitions", "config")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    partitions: _containers.RepeatedCompositeFieldContainer[Partition]
    config: _containers.RepeatedCompositeFieldContainer[ConfigEntry]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[Partition, _Mapping]]] = ..., config: _Optional[_Iterable[_Union[ConfigEntry, _Mapping]]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "partitions", "config", "validate_only", "leaders")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    LEADERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    partitions: int
    config: _containers.ScalarMap[str, str]
    validate_only: bool
    leaders: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., partitions: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ..., validate_only: _Optional[bool] = ..., leaders: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class AlterTopicRequest(_message.Message):
    __slots__ = ("name", "set", "unset", "validate_only")
    class SetEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SET_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    set: _containers.ScalarMap[str, str]
    unset: _containers.RepeatedScalarFieldContainer[str]
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., set: _Optional[_Mapping[str, str]] = ..., unset: _Optional[_Iterable[str]] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class AlterTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class CreatePartitionsRequest(_message.Message):
    __slots__ = ("name", "total", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    total: int
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., total: _Optional[int] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class CreatePartitionsResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class ListPartitionsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class ListPartitionsResponse(_message.Message):
    __slots__ = ("partitions",)
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStanding]
    def __init__(self, partitions: _Optional[_Iterable[_Union[PartitionStanding, _Mapping]]] = ...) -> None: ...

class PartitionStanding(_message.Message):
    __slots__ = ("topic", "partition", "leader", "leader_epoch", "state", "problem", "copy", "start", "end", "lost", "resumed")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    leader: str
    leader_epoch: int
    state: str
    problem: str
    copy: bool
    start: int
    end: int
    lost: _containers.RepeatedCompositeFieldContainer[LostRecords]
    resumed: _containers.RepeatedCompositeFieldContainer[LostRecords]
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., leader: _Optional[str] = ..., leader_epoch: _Optional[int] = ..., state: _Optional[str] = ..., problem: _Optional[str] = ..., copy: _Optional[bool] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., lost: _Optional[_Iterable[_Union[LostRecords, _Mapping]]] = ..., resumed: _Optional[_Iterable[_Union[LostRecords, _Mapping]]] = ...) -> None: ...

class LostRecords(_message.Message):
    __slots__ = ("first", "heard", "leader_epoch", "host", "time_ms", "unknown", "accepted")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    first: int
    heard: int
    leader_epoch: int
    host: str
    time_ms: int
    unknown: bool
    accepted: bool
    def __init__(self, first: _Optional[int] = ..., heard: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., host: _Optional[str] = ..., time_ms: _Optional[int] = ..., unknown: _Optional[bool] = ..., accepted: _Optional[bool] = ...) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("after", "last")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    after: int
    last: int
    def __init__(self, after: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "more")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[_coordinator_pb2.ClusterEvent]
    more: bool
    def __init__(self, events: _Optional[_Iterable[_Union[_coordinator_pb2.ClusterEvent, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("topic", "mqtt", "exchange", "key", "vhost", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MQTT_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VHOST_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    mqtt: str
    exchange: str
    key: str
    vhost: str
    headers: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., mqtt: _Optional[str] = ..., exchange: _Optional[str] = ..., key: _Optional[str] = ..., vhost: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("host", "hosts", "ways")
    HOST_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    WAYS_FIELD_NUMBER: _ClassVar[int]
    host: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    ways: _containers.RepeatedCompositeFieldContainer[MessageWay]
    def __init__(self, host: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., ways: _Optional[_Iterable[_Union[MessageWay, _Mapping]]] = ...) -> None: ...

class MessageWay(_message.Message):
    __slots__ = ("sender", "hosts", "carrier", "address", "stream", "state_id", "why")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    sender: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    carrier: str
    address: str
    stream: str
    state_id: int
    why: str
    def __init__(self, sender: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., carrier: _Optional[str] = ..., address: _Optional[str] = ..., stream: _Optional[str] = ..., state_id: _Optional[int] = ..., why: _Optional[str] = ...) -> None: ...

class ExportViewRequest(_message.Message):
    __slots__ = ("first",)
    FIRST_FIELD_NUMBER: _ClassVar[int]
    first: int
    def __init__(self, first: _Optional[int] = ...) -> None: ...

class ExportViewResponse(_message.Message):
    __slots__ = ("cluster_id", "revision", "changes", "more", "history")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    cluster_id: str
    revision: int
    changes: _containers.RepeatedScalarFieldContainer[bytes]
    more: bool
    history: str
    def __init__(self, cluster_id: _Optional[str] = ..., revision: _Optional[int] = ..., changes: _Optional[_Iterable[bytes]] = ..., more: _Optional[bool] = ..., history: _Optional[str] = ...) -> None: ...

class PromotePartitionRequest(_message.Message):
    __slots__ = ("topic", "partition", "host", "accept_loss")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    host: str
    accept_loss: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., host: _Optional[str] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class PromotePartitionResponse(_message.Message):
    __slots__ = ("partition", "said")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SAID_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionStanding
    said: str
    def __init__(self, partition: _Optional[_Union[PartitionStanding, _Mapping]] = ..., said: _Optional[str] = ...) -> None: ...

class RebuildPartitionRequest(_message.Message):
    __slots__ = ("topic", "partition", "host", "accept_loss")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    host: str
    accept_loss: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., host: _Optional[str] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class RebuildPartitionResponse(_message.Message):
    __slots__ = ("partition", "said")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SAID_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionStanding
    said: str
    def __init__(self, partition: _Optional[_Union[PartitionStanding, _Mapping]] = ..., said: _Optional[str] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("group_id", "protocol_type", "state", "members", "type", "epoch", "assignment_epoch")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_EPOCH_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    protocol_type: str
    state: str
    members: int
    type: str
    epoch: int
    assignment_epoch: int
    def __init__(self, group_id: _Optional[str] = ..., protocol_type: _Optional[str] = ..., state: _Optional[str] = ..., members: _Optional[int] = ..., type: _Optional[str] = ..., epoch: _Optional[int] = ..., assignment_epoch: _Optional[int] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("member_id", "instance_id", "client_id", "client_host", "assigned", "epoch", "protocol")
    MEMBER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_HOST_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    member_id: str
    instance_id: str
    client_id: str
    client_host: str
    assigned: _containers.RepeatedCompositeFieldContainer[AssignedTopic]
    epoch: int
    protocol: str
    def __init__(self, member_id: _Optional[str] = ..., instance_id: _Optional[str] = ..., client_id: _Optional[str] = ..., client_host: _Optional[str] = ..., assigned: _Optional[_Iterable[_Union[AssignedTopic, _Mapping]]] = ..., epoch: _Optional[int] = ..., protocol: _Optional[str] = ...) -> None: ...

class AssignedTopic(_message.Message):
    __slots__ = ("topic", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupOffset(_message.Message):
    __slots__ = ("topic", "partition", "committed", "end_offset", "lag", "metadata")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    committed: int
    end_offset: int
    lag: int
    metadata: str
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., committed: _Optional[int] = ..., end_offset: _Optional[int] = ..., lag: _Optional[int] = ..., metadata: _Optional[str] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("group", "protocol", "members", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: Group
    protocol: str
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    offsets: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., protocol: _Optional[str] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., offsets: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group_id",)
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    def __init__(self, group_id: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResetGroupRequest(_message.Message):
    __slots__ = ("group_id", "topic", "earliest", "latest", "offset", "timestamp", "shift", "dry_run")
    GROUP_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    group_id: str
    topic: str
    earliest: bool
    latest: bool
    offset: int
    timestamp: int
    shift: int
    dry_run: bool
    def __init__(self, group_id: _Optional[str] = ..., topic: _Optional[str] = ..., earliest: _Optional[bool] = ..., latest: _Optional[bool] = ..., offset: _Optional[int] = ..., timestamp: _Optional[int] = ..., shift: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class ResetGroupResponse(_message.Message):
    __slots__ = ("before", "after")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    before: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    after: _containers.RepeatedCompositeFieldContainer[GroupOffset]
    def __init__(self, before: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[GroupOffset, _Mapping]]] = ...) -> None: ...
