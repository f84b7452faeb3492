"""The values that callers and handlers of the channel use."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import Fault, TreecastError


class Answer(Struct):
    """The answer to a call. The body must not change before it is sent."""

    head: bytes = b""
    body: Buffer = b""


class ChannelError(TreecastError):
    """A call failed in transit. `sent` is False if it was certainly not handled.

    If `sent` is True, the outcome is unknown: the request or its answer may have been lost.
    """

    def __init__(self, fault: Fault, detail: str, sent: bool) -> None:
        super().__init__(fault, detail)
        self.sent = sent


class PeerStatus(Struct, frozen=True):
    """The channel's status of one other host."""

    host_id: int
    address: str  # the address to dial; "" if unknown
    connected: bool
    dialled: bool  # by this host
    incarnation: int  # 0 if never connected
    since: float  # Unix time of the connection's opening; 0 if not connected
    bytes_in: int  # of this connection
    bytes_out: int
    calls: int  # calls to it since the start
    requests: int  # requests from it since the start
    in_flight: int  # unanswered calls
    queued: int  # calls waiting to be sent
    queued_bytes: int
    handling: int  # unanswered requests
    round_trip: float  # seconds; 0 if unknown
    last_error: str
    refused: bool = False  # the last connection was refused because of this host's identity
    advice: str = ""  # what to look at because of `last_error`
