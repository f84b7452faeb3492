"""What a group wants done: answers to those who wait, and things to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from treecast.middleware.broker.values import Joined, Synced
from treecast.middleware.model.errors import TreecastError

from .records import GroupRecord


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a join or a sync, by the number that was given with it."""

    waiter: int
    result: Joined | Synced | TreecastError


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """Then the generation is stable."""

    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class TakeOverWritten:
    """Then the static member that restarted may know its new id."""

    generation: int
    waiter: int
    member_id: str
    joined: Joined


@dataclass(frozen=True, slots=True)
class EmptyWritten:
    """Nothing waits for it."""


Written = AssignmentWritten | TakeOverWritten | EmptyWritten


@dataclass(frozen=True, slots=True)
class Write:
    """`record` is to be written; `Group.written` is to be told when it is, or cannot be."""

    record: GroupRecord
    then: Written


@dataclass(frozen=True, slots=True)
class Note:
    """Something an operator may want to read in the log."""

    event: str
    member_id: str
    reason: str


Effect = Answer | Write | Note

# called once something is on disk (None), or with what prevented it
Done = Callable[[TreecastError | None], None]
