from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EventOpen(_message.Message):
    __slots__ = ("stream", "epoch", "first", "settled_epoch", "settled_stream", "asks_ended")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SETTLED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SETTLED_STREAM_FIELD_NUMBER: _ClassVar[int]
    ASKS_ENDED_FIELD_NUMBER: _ClassVar[int]
    stream: int
    epoch: int
    first: int
    settled_epoch: int
    settled_stream: int
    asks_ended: bool
    def __init__(self, stream: _Optional[int] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., settled_epoch: _Optional[int] = ..., settled_stream: _Optional[int] = ..., asks_ended: _Optional[bool] = ...) -> None: ...

class EventOpened(_message.Message):
    __slots__ = ("kept", "next", "ended")
    KEPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    kept: bool
    next: int
    ended: _containers.RepeatedCompositeFieldContainer[EventEnded]
    def __init__(self, kept: _Optional[bool] = ..., next: _Optional[int] = ..., ended: _Optional[_Iterable[_Union[EventEnded, _Mapping]]] = ...) -> None: ...

class EventEnded(_message.Message):
    __slots__ = ("epoch", "stream", "passed", "report", "known", "number")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    stream: int
    passed: int
    report: bytes
    known: int
    number: int
    def __init__(self, epoch: _Optional[int] = ..., stream: _Optional[int] = ..., passed: _Optional[int] = ..., report: _Optional[bytes] = ..., known: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class EventRetainedRequest(_message.Message):
    __slots__ = ("filters", "skip")
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    SKIP_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedScalarFieldContainer[bytes]
    skip: int
    def __init__(self, filters: _Optional[_Iterable[bytes]] = ..., skip: _Optional[int] = ...) -> None: ...

class EventRetainedResponse(_message.Message):
    __slots__ = ("count", "more")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    count: int
    more: bool
    def __init__(self, count: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class EventShareRequest(_message.Message):
    __slots__ = ("name", "filter", "members")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    filter: bytes
    members: int
    def __init__(self, name: _Optional[bytes] = ..., filter: _Optional[bytes] = ..., members: _Optional[int] = ...) -> None: ...

class EventShareResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
