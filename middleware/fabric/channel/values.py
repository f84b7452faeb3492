"""What callers and handlers of the channel see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError


class Answer(Struct):
    """What a call is answered with. The body may not change before it has been sent."""

    head: bytes = b""
    body: Buffer = b""


class ChannelError(TreecastError):
    """The call failed on the way. `sent` is False where it has surely not been handled.

    Where it is True the outcome is unknown: the request, or its answer, may have been lost.
    """

    def __init__(self, fault: Fault, detail: str, sent: bool) -> None:
        super().__init__(fault, detail)
        self.sent = sent


# (the host that asks, method, head, body) -> the answer. What a notice is answered with is not used, and
# may be None. A TreecastError that is raised is raised at the caller. Head and body are the handler's own,
# and the body is writable.
Handler = Callable[[int, int, bytes, memoryview], Answer | Awaitable[Answer] | None]


class PeerStatus(Struct, frozen=True):
    """One host as the channel sees it."""

    host_id: int
    address: str  # where it is dialled; "" where that is not known
    connected: bool
    dialled: bool  # by this host
    incarnation: int  # 0 while it has never been heard of
    since: float  # Unix time at which the connection was opened; 0 where it is not connected
    bytes_in: int  # of this connection
    bytes_out: int
    calls: int  # made to it since the start
    requests: int  # of it since the start
    in_flight: int  # calls that have no answer yet
    queued: int  # calls that wait to be sent
    queued_bytes: int
    handling: int  # requests that have no answer yet
    round_trip: float  # seconds; 0 while it is not known
    last_error: str
    refused: bool = False  # the last connection was, for what this host is
