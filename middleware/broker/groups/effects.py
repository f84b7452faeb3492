"""What a group wants done: answers to those who wait, and things to write."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from treecast.middleware.broker.values import Joined, Synced
from treecast.middleware.model.errors import TreecastError

from .records import GroupRecord


class Answer(Struct, frozen=True):
    """The answer to a join or a sync, by the number that was given with it."""

    waiter: int
    result: Joined | Synced | TreecastError


class AssignmentWritten(Struct, frozen=True):
    """Then the generation is stable."""

    generation: int
    assignments: dict[str, bytes]


class TakeOverWritten(Struct, frozen=True):
    """Then the static member that restarted may know its new id."""

    generation: int
    waiter: int
    member_id: str
    joined: Joined


class EmptyWritten(Struct, frozen=True):
    """Nothing waits for it."""


Written = AssignmentWritten | TakeOverWritten | EmptyWritten


class Write(Struct, frozen=True):
    """`record` is to be written; `Group.written` is to be told when it is, or cannot be."""

    record: GroupRecord
    then: Written


class Note(Struct, frozen=True):
    """Something an operator may want to read in the log."""

    event: str
    member_id: str
    reason: str


Effect = Answer | Write | Note

# called once something is on disk (None), or with what prevented it
Done = Callable[[TreecastError | None], None]
