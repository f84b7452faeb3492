"""The interface of all kinds of entities: an update writes one, a filter reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from finsy.proto import p4r

from treecast.middleware.dataplane.p4.runtime import Control

from .errors import Code, P4RuntimeError, invalid
from .schema import Schema

Undo = Callable[[], None]
_Message = TypeVar("_Message")

INSERT: p4r.Update.Type.ValueType = p4r.Update.INSERT
MODIFY: p4r.Update.Type.ValueType = p4r.Update.MODIFY
DELETE: p4r.Update.Type.ValueType = p4r.Update.DELETE


class Store(Generic[_Message]):
    """The entities of one kind. A write is complete and returns its undo, or raises P4RuntimeError or the
    switch's ControlError and has done nothing.
    """

    def __init__(self, schema: Schema, control: Control) -> None:
        self.schema, self.control = schema, control

    def write(self, kind: p4r.Update.Type.ValueType, message: _Message, now: float) -> Undo:
        raise NotImplementedError

    def read(self, wanted: _Message, now: float) -> Iterator[p4r.Entity]:
        """Yields the entities that the filter lets through; default values in it are wildcards."""
        raise NotImplementedError


def only_modify(kind: p4r.Update.Type.ValueType, what: str) -> None:
    """Refuses inserts and deletions of entities that always exist."""
    if kind != MODIFY:
        raise invalid(f"{what} can be modified only")


def nothing() -> None:
    """The undo of a write that changes nothing."""


def index_of(message: p4r.Index, size: int, what: str) -> int:
    """Returns a place in an array."""
    if message.index < 0:
        raise invalid(f"{what}: index {message.index} is negative")
    if message.index >= size:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{what}: index {message.index}, there are {size} cells")
    return message.index
