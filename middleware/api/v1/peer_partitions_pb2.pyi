from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PartitionRef(_message.Message):
    __slots__ = ("topic_id", "partition")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic_id: bytes
    partition: int
    def __init__(self, topic_id: _Optional[bytes] = ..., partition: _Optional[int] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("partition", "end", "epochs", "tail", "receiving")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    RECEIVING_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    end: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    tail: bool
    receiving: ReceivingStream
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., end: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., tail: _Optional[bool] = ..., receiving: _Optional[_Union[ReceivingStream, _Mapping]] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("leader_epoch", "start")
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    leader_epoch: int
    start: int
    def __init__(self, leader_epoch: _Optional[int] = ..., start: _Optional[int] = ...) -> None: ...

class ReceivingStream(_message.Message):
    __slots__ = ("stream", "epoch", "report")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    stream: int
    epoch: int
    report: bytes
    def __init__(self, stream: _Optional[int] = ..., epoch: _Optional[int] = ..., report: _Optional[bytes] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("stream", "epoch", "kept", "begin", "restart", "log_start", "end", "leader_epoch", "directory")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    RESTART_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    stream: int
    epoch: int
    kept: bool
    begin: int
    restart: bool
    log_start: int
    end: int
    leader_epoch: int
    directory: str
    def __init__(self, stream: _Optional[int] = ..., epoch: _Optional[int] = ..., kept: _Optional[bool] = ..., begin: _Optional[int] = ..., restart: _Optional[bool] = ..., log_start: _Optional[int] = ..., end: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., directory: _Optional[str] = ...) -> None: ...

class UnfollowRequest(_message.Message):
    __slots__ = ("partition",)
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ...) -> None: ...

class UnfollowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeerProduceRequest(_message.Message):
    __slots__ = ("partition", "acks", "transactional_id")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    acks: int
    transactional_id: str
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., acks: _Optional[int] = ..., transactional_id: _Optional[str] = ...) -> None: ...

class PeerProduceResponse(_message.Message):
    __slots__ = ("base_offset", "log_append_time", "log_start", "leader_epoch")
    BASE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_APPEND_TIME_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    base_offset: int
    log_append_time: int
    log_start: int
    leader_epoch: int
    def __init__(self, base_offset: _Optional[int] = ..., log_append_time: _Optional[int] = ..., log_start: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class PeerFetchRequest(_message.Message):
    __slots__ = ("partition", "offset", "max_bytes", "read_committed", "at_least_one")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_ONE_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    offset: int
    max_bytes: int
    read_committed: bool
    at_least_one: bool
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ..., read_committed: _Optional[bool] = ..., at_least_one: _Optional[bool] = ...) -> None: ...

class PeerFetchResponse(_message.Message):
    __slots__ = ("high_watermark", "last_stable", "log_start", "leader_epoch", "aborted")
    HIGH_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LAST_STABLE_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ABORTED_FIELD_NUMBER: _ClassVar[int]
    high_watermark: int
    last_stable: int
    log_start: int
    leader_epoch: int
    aborted: _containers.RepeatedCompositeFieldContainer[AbortedTransaction]
    def __init__(self, high_watermark: _Optional[int] = ..., last_stable: _Optional[int] = ..., log_start: _Optional[int] = ..., leader_epoch: _Optional[int] = ..., aborted: _Optional[_Iterable[_Union[AbortedTransaction, _Mapping]]] = ...) -> None: ...

class AbortedTransaction(_message.Message):
    __slots__ = ("producer_id", "first_offset")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    first_offset: int
    def __init__(self, producer_id: _Optional[int] = ..., first_offset: _Optional[int] = ...) -> None: ...

class PeerWatchRequest(_message.Message):
    __slots__ = ("partition", "beyond", "read_committed")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BEYOND_FIELD_NUMBER: _ClassVar[int]
    READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    beyond: int
    read_committed: bool
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., beyond: _Optional[int] = ..., read_committed: _Optional[bool] = ...) -> None: ...

class PeerWatchResponse(_message.Message):
    __slots__ = ("readable",)
    READABLE_FIELD_NUMBER: _ClassVar[int]
    readable: int
    def __init__(self, readable: _Optional[int] = ...) -> None: ...

class PeerOffsetRequest(_message.Message):
    __slots__ = ("partition", "timestamp", "read_committed")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    READ_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    timestamp: int
    read_committed: bool
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., timestamp: _Optional[int] = ..., read_committed: _Optional[bool] = ...) -> None: ...

class PeerOffsetResponse(_message.Message):
    __slots__ = ("offset", "timestamp", "leader_epoch")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    offset: int
    timestamp: int
    leader_epoch: int
    def __init__(self, offset: _Optional[int] = ..., timestamp: _Optional[int] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class PeerEpochEndRequest(_message.Message):
    __slots__ = ("partition", "leader_epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    leader_epoch: int
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., leader_epoch: _Optional[int] = ...) -> None: ...

class PeerEpochEndResponse(_message.Message):
    __slots__ = ("leader_epoch", "end_offset")
    LEADER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    leader_epoch: int
    end_offset: int
    def __init__(self, leader_epoch: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class PeerDeleteRequest(_message.Message):
    __slots__ = ("partition", "before")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    before: int
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., before: _Optional[int] = ...) -> None: ...

class PeerDeleteResponse(_message.Message):
    __slots__ = ("log_start",)
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    log_start: int
    def __init__(self, log_start: _Optional[int] = ...) -> None: ...

class PeerMarkerRequest(_message.Message):
    __slots__ = ("partition", "producer_id", "producer_epoch", "committed", "coordinator_epoch")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_EPOCH_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., committed: _Optional[bool] = ..., coordinator_epoch: _Optional[int] = ...) -> None: ...

class PeerMarkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LogStartNotice(_message.Message):
    __slots__ = ("partition", "log_start")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LOG_START_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    log_start: int
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., log_start: _Optional[int] = ...) -> None: ...

class HoldsRequest(_message.Message):
    __slots__ = ("partition",)
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ...) -> None: ...

class HoldsResponse(_message.Message):
    __slots__ = ("copy", "epochs", "start", "end", "heard", "leads")
    COPY_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    copy: bool
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    start: int
    end: int
    heard: int
    leads: bool
    def __init__(self, copy: _Optional[bool] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., heard: _Optional[int] = ..., leads: _Optional[bool] = ...) -> None: ...

class CopyRequest(_message.Message):
    __slots__ = ("partition", "offset", "max_bytes")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    offset: int
    max_bytes: int
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., offset: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class CopyResponse(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class PromoteRequest(_message.Message):
    __slots__ = ("partition", "accept_loss")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    accept_loss: bool
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class RebuildRequest(_message.Message):
    __slots__ = ("partition", "accept_loss")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_LOSS_FIELD_NUMBER: _ClassVar[int]
    partition: PartitionRef
    accept_loss: bool
    def __init__(self, partition: _Optional[_Union[PartitionRef, _Mapping]] = ..., accept_loss: _Optional[bool] = ...) -> None: ...

class OperatorResponse(_message.Message):
    __slots__ = ("said",)
    SAID_FIELD_NUMBER: _ClassVar[int]
    said: str
    def __init__(self, said: _Optional[str] = ...) -> None: ...
