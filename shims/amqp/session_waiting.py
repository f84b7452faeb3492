"""Methods that wait for another host, and the edge through which a session is entered again.

A method that waits raises `Suspended`. When its answer is there, it is run again and takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from treecast.middleware.broker.queues import Ask, QueueAnswer, QueueCall, Refusal, RemotePart, RemoteQueue
from treecast.shims.log_ins import Outcome

NO_CALL: Final = QueueCall(Ask.COUNT, "", b"")


class Suspended(Exception):
    """A method waits for an answer of another host. It is run again when the answer is there."""


class Answered:
    """The answer of another host to `call`. `parts`: the message of a successful `basic.get`. `refusal`: of
    what needed no other host, for which `call` is `NO_CALL`."""

    def __init__(
        self,
        call: QueueCall,
        answer: QueueAnswer,
        parts: list[RemotePart],
        refusal: Refusal | None = None,
        queue: RemoteQueue | None = None,
    ) -> None:
        self.call = call
        self.answer = answer
        self.parts = parts
        self.refusal = refusal
        self._queue = queue

    def abandon(self) -> None:
        """Undoes the call: its client has left, or the method no longer needs the answer."""
        if self._queue is not None and not self.answer.reason:
            self._queue.abandon(self.call, self.parts)


class Edge(Protocol):
    """The owner of a session's socket. What does not come from the socket enters the session through it, so
    that it sets the time of day before, and reads on or writes after."""

    def woken(self) -> None:
        """Called for the first output after `SessionOutput.take`."""

    def answered(self, found: Answered, now: float) -> None:
        """Calls `Session.answered`."""

    def checked(self, outcome: Outcome) -> None:
        """Implements `log_ins.Applicant`: calls `Session.checked`."""

    def go_on(self, now: float) -> None:
        """Calls `Session.go_on`."""


class Unplugged:
    """The edge of a session whose client has gone."""

    def woken(self) -> None:
        return

    def answered(self, found: Answered, now: float) -> None:
        found.abandon()

    def checked(self, outcome: Outcome) -> None:
        return

    def go_on(self, now: float) -> None:
        return


UNPLUGGED: Final = Unplugged()


class Asking:
    """Implements `queues.Asker` for a connection."""

    def __init__(self, edge: Edge, call: QueueCall, queue: RemoteQueue) -> None:
        self._edge = edge
        self._call = call
        self._queue = queue

    def answered(self, answer: QueueAnswer, parts: list[RemotePart], now: float) -> None:
        self._edge.answered(Answered(self._call, answer, parts, queue=self._queue), now)


class Preparing:
    """Lets a declaration go on once its stream has a log."""

    def __init__(self, edge: Edge, now: Callable[[], float]) -> None:
        self._edge = edge
        self._now = now

    def __call__(self, refusal: Refusal | None) -> None:
        self._edge.answered(Answered(NO_CALL, QueueAnswer(), [], refusal), self._now())
