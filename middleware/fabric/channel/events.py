"""What a session tells its owner."""

from __future__ import annotations

from .codec import Problem
from .outgoing import Call


class Event:
    """One of those below."""


class Proven(Event):
    """The other end is host `host_id` in run `incarnation`. Where `session.chooses`: open it or end it.

    `last` is the last connection between the two that was open there.
    """

    def __init__(self, host_id: int, incarnation: int, last: bytes) -> None:
        self.host_id = host_id
        self.incarnation = incarnation
        self.last = last


class Opened(Event):
    """The other end has chosen this connection."""


class Requested(Event):
    """A request has arrived; `call` is to be answered, or a notice to be done with.

    Head and body are its own; the body is writable.
    """

    def __init__(self, call: int, number: int, notice: bool, head: bytes, body: memoryview) -> None:
        self.call = call
        self.number = number
        self.notice = notice
        self.head = head
        self.body = body


class Cancelled(Event):
    """The caller of a request that is being handled does not wait any more."""

    def __init__(self, call: int) -> None:
        self.call = call


class Answered(Event):
    """`call` has its answer; a refusal where `refused`: head is the fault's name, body its detail."""

    def __init__(self, call: Call, refused: bool, head: bytes, body: memoryview) -> None:
        self.call = call
        self.refused = refused
        self.head = head
        self.body = body


class Ended(Event):
    """The connection is over: send what there is, and close."""

    def __init__(self, problem: Problem, detail: str, by_peer: bool) -> None:
        self.problem = problem
        self.detail = detail
        self.by_peer = by_peer  # it said so itself

    def __str__(self) -> str:
        text = self.problem.value
        return f"{text}: {self.detail}" if self.detail and self.detail != text else text
