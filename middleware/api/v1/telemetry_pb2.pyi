from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TelemetryInterval(_message.Message):
    __slots__ = ("v", "host", "boot", "seq", "from_us", "to_us", "sampled", "packets", "bytes", "sets", "streams", "streams_left_out", "records_left_out", "zone", "filters", "filters_sampled", "changes", "changes_left_out", "repairs")
    V_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    FROM_US_FIELD_NUMBER: _ClassVar[int]
    TO_US_FIELD_NUMBER: _ClassVar[int]
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SETS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    FILTERS_SAMPLED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    REPAIRS_FIELD_NUMBER: _ClassVar[int]
    v: int
    host: str
    boot: int
    seq: int
    from_us: int
    to_us: int
    sampled: float
    packets: int
    bytes: int
    sets: _containers.RepeatedCompositeFieldContainer[SentSet]
    streams: _containers.RepeatedCompositeFieldContainer[StreamDelta]
    streams_left_out: int
    records_left_out: int
    zone: str
    filters: _containers.RepeatedCompositeFieldContainer[FilterDelta]
    filters_sampled: float
    changes: _containers.RepeatedCompositeFieldContainer[SubscriptionChange]
    changes_left_out: int
    repairs: _containers.RepeatedCompositeFieldContainer[RepairDelta]
    def __init__(self, v: _Optional[int] = ..., host: _Optional[str] = ..., boot: _Optional[int] = ..., seq: _Optional[int] = ..., from_us: _Optional[int] = ..., to_us: _Optional[int] = ..., sampled: _Optional[float] = ..., packets: _Optional[int] = ..., bytes: _Optional[int] = ..., sets: _Optional[_Iterable[_Union[SentSet, _Mapping]]] = ..., streams: _Optional[_Iterable[_Union[StreamDelta, _Mapping]]] = ..., streams_left_out: _Optional[int] = ..., records_left_out: _Optional[int] = ..., zone: _Optional[str] = ..., filters: _Optional[_Iterable[_Union[FilterDelta, _Mapping]]] = ..., filters_sampled: _Optional[float] = ..., changes: _Optional[_Iterable[_Union[SubscriptionChange, _Mapping]]] = ..., changes_left_out: _Optional[int] = ..., repairs: _Optional[_Iterable[_Union[RepairDelta, _Mapping]]] = ...) -> None: ...

class SentSet(_message.Message):
    __slots__ = ("carrier", "receivers", "packets", "bytes", "header_bytes", "hop_labels", "stop_labels", "tree_labels", "rule_version", "trees")
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HEADER_BYTES_FIELD_NUMBER: _ClassVar[int]
    HOP_LABELS_FIELD_NUMBER: _ClassVar[int]
    STOP_LABELS_FIELD_NUMBER: _ClassVar[int]
    TREE_LABELS_FIELD_NUMBER: _ClassVar[int]
    RULE_VERSION_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    carrier: str
    receivers: _containers.RepeatedScalarFieldContainer[str]
    packets: int
    bytes: int
    header_bytes: int
    hop_labels: int
    stop_labels: int
    tree_labels: int
    rule_version: int
    trees: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, carrier: _Optional[str] = ..., receivers: _Optional[_Iterable[str]] = ..., packets: _Optional[int] = ..., bytes: _Optional[int] = ..., header_bytes: _Optional[int] = ..., hop_labels: _Optional[int] = ..., stop_labels: _Optional[int] = ..., tree_labels: _Optional[int] = ..., rule_version: _Optional[int] = ..., trees: _Optional[_Iterable[int]] = ...) -> None: ...

class StreamDelta(_message.Message):
    __slots__ = ("stream", "receiver", "addressed", "received", "filtered", "lost", "repaired", "replayed")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    ADDRESSED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    stream: str
    receiver: str
    addressed: int
    received: int
    filtered: int
    lost: int
    repaired: int
    replayed: int
    def __init__(self, stream: _Optional[str] = ..., receiver: _Optional[str] = ..., addressed: _Optional[int] = ..., received: _Optional[int] = ..., filtered: _Optional[int] = ..., lost: _Optional[int] = ..., repaired: _Optional[int] = ..., replayed: _Optional[int] = ...) -> None: ...

class FilterDelta(_message.Message):
    __slots__ = ("origin", "wishes", "count", "open", "messages", "passed", "bytes", "passed_bytes", "cpu_us")
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    WISHES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    PASSED_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    origin: str
    wishes: _containers.RepeatedCompositeFieldContainer[FilteredWish]
    count: int
    open: bool
    messages: int
    passed: int
    bytes: int
    passed_bytes: int
    cpu_us: int
    def __init__(self, origin: _Optional[str] = ..., wishes: _Optional[_Iterable[_Union[FilteredWish, _Mapping]]] = ..., count: _Optional[int] = ..., open: _Optional[bool] = ..., messages: _Optional[int] = ..., passed: _Optional[int] = ..., bytes: _Optional[int] = ..., passed_bytes: _Optional[int] = ..., cpu_us: _Optional[int] = ...) -> None: ...

class FilteredWish(_message.Message):
    __slots__ = ("pattern", "filter")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    filter: str
    def __init__(self, pattern: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class SubscriptionChange(_message.Message):
    __slots__ = ("client", "begun", "pattern", "filter")
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    client: str
    begun: bool
    pattern: str
    filter: str
    def __init__(self, client: _Optional[str] = ..., begun: _Optional[bool] = ..., pattern: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class RepairDelta(_message.Message):
    __slots__ = ("stream", "carrier", "packets", "bytes")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CARRIER_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    stream: str
    carrier: str
    packets: int
    bytes: int
    def __init__(self, stream: _Optional[str] = ..., carrier: _Optional[str] = ..., packets: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class NetworkTopology(_message.Message):
    __slots__ = ("v", "network", "version", "names", "hosts", "ends", "rule_limit", "rule_version", "trees", "ts", "strategy", "kind", "ways")
    V_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    RULE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    RULE_VERSION_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WAYS_FIELD_NUMBER: _ClassVar[int]
    v: int
    network: str
    version: str
    names: _containers.RepeatedScalarFieldContainer[str]
    hosts: _containers.RepeatedScalarFieldContainer[int]
    ends: _containers.RepeatedScalarFieldContainer[int]
    rule_limit: int
    rule_version: int
    trees: _containers.RepeatedCompositeFieldContainer[AdvisedTree]
    ts: int
    strategy: str
    kind: str
    ways: _containers.RepeatedCompositeFieldContainer[AdvisedWay]
    def __init__(self, v: _Optional[int] = ..., network: _Optional[str] = ..., version: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., hosts: _Optional[_Iterable[int]] = ..., ends: _Optional[_Iterable[int]] = ..., rule_limit: _Optional[int] = ..., rule_version: _Optional[int] = ..., trees: _Optional[_Iterable[_Union[AdvisedTree, _Mapping]]] = ..., ts: _Optional[int] = ..., strategy: _Optional[str] = ..., kind: _Optional[str] = ..., ways: _Optional[_Iterable[_Union[AdvisedWay, _Mapping]]] = ...) -> None: ...

class AdvisedWay(_message.Message):
    __slots__ = ("root", "receivers", "avoid")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    RECEIVERS_FIELD_NUMBER: _ClassVar[int]
    AVOID_FIELD_NUMBER: _ClassVar[int]
    root: str
    receivers: _containers.RepeatedScalarFieldContainer[str]
    avoid: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, root: _Optional[str] = ..., receivers: _Optional[_Iterable[str]] = ..., avoid: _Optional[_Iterable[int]] = ...) -> None: ...

class AdvisedTree(_message.Message):
    __slots__ = ("edges", "id")
    EDGES_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    edges: _containers.RepeatedScalarFieldContainer[int]
    id: int
    def __init__(self, edges: _Optional[_Iterable[int]] = ..., id: _Optional[int] = ...) -> None: ...

class TreeAdvice(_message.Message):
    __slots__ = ("v", "network", "epoch", "window_start", "window_end", "input", "seed", "topology_version", "base_rule_version", "hosts_missing", "hosts_expected", "strategy", "threshold", "trees", "labels_now", "labels_expected", "rule_writes", "valid_until", "source", "packets", "pipeline", "kind", "ways")
    V_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WINDOW_START_FIELD_NUMBER: _ClassVar[int]
    WINDOW_END_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TOPOLOGY_VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_RULE_VERSION_FIELD_NUMBER: _ClassVar[int]
    HOSTS_MISSING_FIELD_NUMBER: _ClassVar[int]
    HOSTS_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    LABELS_NOW_FIELD_NUMBER: _ClassVar[int]
    LABELS_EXPECTED_FIELD_NUMBER: _ClassVar[int]
    RULE_WRITES_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    PIPELINE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WAYS_FIELD_NUMBER: _ClassVar[int]
    v: int
    network: str
    epoch: int
    window_start: int
    window_end: int
    input: _containers.RepeatedCompositeFieldContainer[OffsetRange]
    seed: int
    topology_version: str
    base_rule_version: int
    hosts_missing: _containers.RepeatedScalarFieldContainer[str]
    hosts_expected: int
    strategy: str
    threshold: float
    trees: _containers.RepeatedCompositeFieldContainer[AdvisedTree]
    labels_now: float
    labels_expected: float
    rule_writes: int
    valid_until: int
    source: str
    packets: int
    pipeline: str
    kind: str
    ways: _containers.RepeatedCompositeFieldContainer[AdvisedWay]
    def __init__(self, v: _Optional[int] = ..., network: _Optional[str] = ..., epoch: _Optional[int] = ..., window_start: _Optional[int] = ..., window_end: _Optional[int] = ..., input: _Optional[_Iterable[_Union[OffsetRange, _Mapping]]] = ..., seed: _Optional[int] = ..., topology_version: _Optional[str] = ..., base_rule_version: _Optional[int] = ..., hosts_missing: _Optional[_Iterable[str]] = ..., hosts_expected: _Optional[int] = ..., strategy: _Optional[str] = ..., threshold: _Optional[float] = ..., trees: _Optional[_Iterable[_Union[AdvisedTree, _Mapping]]] = ..., labels_now: _Optional[float] = ..., labels_expected: _Optional[float] = ..., rule_writes: _Optional[int] = ..., valid_until: _Optional[int] = ..., source: _Optional[str] = ..., packets: _Optional[int] = ..., pipeline: _Optional[str] = ..., kind: _Optional[str] = ..., ways: _Optional[_Iterable[_Union[AdvisedWay, _Mapping]]] = ...) -> None: ...

class OffsetRange(_message.Message):
    __slots__ = ("topic", "partition", "first", "end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    first: int
    end: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., first: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class AppliedAdvice(_message.Message):
    __slots__ = ("v", "network", "epoch", "decision", "reason", "rule_version", "rule_writes", "seconds", "labels_before", "labels_after", "ts", "trees", "ways")
    V_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RULE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RULE_WRITES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    LABELS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    LABELS_AFTER_FIELD_NUMBER: _ClassVar[int]
    TS_FIELD_NUMBER: _ClassVar[int]
    TREES_FIELD_NUMBER: _ClassVar[int]
    WAYS_FIELD_NUMBER: _ClassVar[int]
    v: int
    network: str
    epoch: int
    decision: str
    reason: str
    rule_version: int
    rule_writes: int
    seconds: float
    labels_before: float
    labels_after: float
    ts: int
    trees: _containers.RepeatedCompositeFieldContainer[AdvisedTree]
    ways: _containers.RepeatedCompositeFieldContainer[AdvisedWay]
    def __init__(self, v: _Optional[int] = ..., network: _Optional[str] = ..., epoch: _Optional[int] = ..., decision: _Optional[str] = ..., reason: _Optional[str] = ..., rule_version: _Optional[int] = ..., rule_writes: _Optional[int] = ..., seconds: _Optional[float] = ..., labels_before: _Optional[float] = ..., labels_after: _Optional[float] = ..., ts: _Optional[int] = ..., trees: _Optional[_Iterable[_Union[AdvisedTree, _Mapping]]] = ..., ways: _Optional[_Iterable[_Union[AdvisedWay, _Mapping]]] = ...) -> None: ...
