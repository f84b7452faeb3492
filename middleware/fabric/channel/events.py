"""Events of a session for its owner."""

from __future__ import annotations

from .codec import Problem
from .outgoing import Call


class Event:
    """The base of all events."""


class Proven(Event):
    """The other end is authenticated as host `host_id` in run `incarnation`. If `session.chooses`, open the
    connection or end it.

    `last` is the last connection between the two hosts that the other end had open.
    """

    def __init__(self, host_id: int, incarnation: int, last: bytes) -> None:
        self.host_id = host_id
        self.incarnation = incarnation
        self.last = last


class Opened(Event):
    """The other end has chosen this connection."""


class Requested(Event):
    """A request has arrived. The owner answers `call`, or finishes a notice.

    The event owns head and body; the body is writable.
    """

    def __init__(self, call: int, number: int, notice: bool, head: bytes, body: memoryview) -> None:
        self.call = call
        self.number = number
        self.notice = notice
        self.head = head
        self.body = body


class Cancelled(Event):
    """The caller of a request in progress no longer waits."""

    def __init__(self, call: int) -> None:
        self.call = call


class Answered(Event):
    """`call` has its answer. If `refused`, head is the fault's name and body its detail."""

    def __init__(self, call: Call, refused: bool, head: bytes, body: memoryview) -> None:
        self.call = call
        self.refused = refused
        self.head = head
        self.body = body


class Ended(Event):
    """The connection has ended. Send the remaining bytes and close the socket."""

    def __init__(self, problem: Problem, detail: str, by_peer: bool) -> None:
        self.problem = problem
        self.detail = detail
        self.by_peer = by_peer  # the other end ended it

    def __str__(self) -> str:
        text = self.problem.value
        return f"{text}: {self.detail}" if self.detail and self.detail != text else text
