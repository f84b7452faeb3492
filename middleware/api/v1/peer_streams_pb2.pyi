from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InterestRequest(_message.Message):
    __slots__ = ("base", "version", "added", "removed")
    BASE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    base: int
    version: int
    added: _containers.RepeatedCompositeFieldContainer[TopicPattern]
    removed: _containers.RepeatedCompositeFieldContainer[TopicPattern]
    def __init__(self, base: _Optional[int] = ..., version: _Optional[int] = ..., added: _Optional[_Iterable[_Union[TopicPattern, _Mapping]]] = ..., removed: _Optional[_Iterable[_Union[TopicPattern, _Mapping]]] = ...) -> None: ...

class TopicPattern(_message.Message):
    __slots__ = ("levels",)
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    levels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, levels: _Optional[_Iterable[str]] = ...) -> None: ...

class InterestResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class GroupJoinRequest(_message.Message):
    __slots__ = ("state_id", "form")
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    state_id: int
    form: str
    def __init__(self, state_id: _Optional[int] = ..., form: _Optional[str] = ...) -> None: ...

class GroupJoinResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupLeaveRequest(_message.Message):
    __slots__ = ("state_id", "form")
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    state_id: int
    form: str
    def __init__(self, state_id: _Optional[int] = ..., form: _Optional[str] = ...) -> None: ...

class GroupLeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ProbeSeen(_message.Message):
    __slots__ = ("state_id", "nonce")
    STATE_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    state_id: int
    nonce: int
    def __init__(self, state_id: _Optional[int] = ..., nonce: _Optional[int] = ...) -> None: ...
