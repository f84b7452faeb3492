from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class StareSignal(_message.Message):
    __slots__ = ("epoch", "run")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    run: int
    def __init__(self, epoch: _Optional[int] = ..., run: _Optional[int] = ...) -> None: ...

class StareTaken(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
