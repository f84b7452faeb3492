"""Effects of a group: answers to waiting requests, and records to write."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from treecast.middleware.broker.values import Joined, Synced
from treecast.middleware.model.errors import TreecastError

from .members import Member
from .records import GroupRecord


class Answer(Struct, frozen=True):
    """The answer to a join or a sync, identified by the number that came with the request."""

    waiter: int
    result: Joined | Synced | TreecastError


class AssignmentWritten(Struct, frozen=True):
    """After this write the generation is stable."""

    generation: int
    assignments: dict[str, bytes]


class TakeOverWritten(Struct, frozen=True):
    """After this write the restarted static member may learn its new id."""

    generation: int
    waiter: int
    member_id: str
    joined: Joined


class EmptyWritten(Struct, frozen=True):
    """No request waits for this write."""


Written = AssignmentWritten | TakeOverWritten | EmptyWritten


class Write(Struct, frozen=True):
    """Write `record`, then call `syncing.written` with the result."""

    record: GroupRecord
    then: Written


class Note(Struct, frozen=True):
    """An event for the operator's log."""

    event: str
    member_id: str
    reason: str


Effect = Answer | Write | Note


class Effects:
    """The effects of one group that its caller has not taken yet."""

    def __init__(self) -> None:
        self._waiting: list[Effect] = []

    def add(self, effect: Effect) -> None:
        self._waiting.append(effect)

    def answer(self, waiter: int, result: Joined | Synced | TreecastError) -> None:
        self._waiting.append(Answer(waiter, result))

    def answer_both(self, member: Member, error: TreecastError) -> None:
        """Answers a member's open join and open sync with `error`."""
        for waiter in (member.join_waiter, member.sync_waiter):
            if waiter is not None:
                self.answer(waiter, error)
        member.join_waiter = member.sync_waiter = None

    def note(self, event: str, member_id: str, reason: str) -> None:
        self._waiting.append(Note(event, member_id, reason))

    def take(self) -> list[Effect]:
        effects, self._waiting = self._waiting, []
        return effects


# Called with None once the write is on disk, else with the error.
Done = Callable[[TreecastError | None], None]
