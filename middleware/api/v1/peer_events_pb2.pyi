from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class EventOpen(_message.Message):
    __slots__ = ("stream", "epoch", "first", "settled_epoch", "settled_stream")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SETTLED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SETTLED_STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: int
    epoch: int
    first: int
    settled_epoch: int
    settled_stream: int
    def __init__(self, stream: _Optional[int] = ..., epoch: _Optional[int] = ..., first: _Optional[int] = ..., settled_epoch: _Optional[int] = ..., settled_stream: _Optional[int] = ...) -> None: ...

class EventOpened(_message.Message):
    __slots__ = ("kept", "next")
    KEPT_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    kept: bool
    next: int
    def __init__(self, kept: _Optional[bool] = ..., next: _Optional[int] = ...) -> None: ...

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
