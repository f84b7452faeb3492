"""Wire-level definitions of AMQP 0-9-1: frames, methods, reply codes and errors.

A connection begins with the eight bytes `AMQP 0 0 9 1`. Then frames go both ways:

    type (1) | channel (2) | size (4) | payload of that size | 0xCE

Frame types: 1, a method: class (2), method (2), fields; 2, a content header: class (2), weight 0 (2), size of
the body (8), flags of properties (2), properties; 3, a piece of a body; 8, a heartbeat, without a payload,
on channel 0. Sources: the specification of AMQP 0-9-1 (2008) and its XML, RabbitMQ's extensions of it, and
RabbitMQ 4.3 for reply codes and texts.

`codec_methods` reads and writes methods, `codec_properties` parses properties, and `codec_publish` and
`codec_deliver` are the hot paths for input and output.
"""

from __future__ import annotations

from typing import Final

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE
FRAME_HEAD: Final = 7  # bytes before a payload
FRAME_OVERHEAD: Final = 8  # bytes of a frame besides its payload
FRAME_MIN: Final = 8192  # frame size limit before negotiation, and the lowest limit that can be negotiated
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

BASIC: Final = 60
PUBLISH: Final = BASIC << 16 | 40  # class << 16 | method, like those below
RETURN: Final = BASIC << 16 | 50
DELIVER: Final = BASIC << 16 | 60
GET_OK: Final = BASIC << 16 | 71
ACK: Final = BASIC << 16 | 80
NACK: Final = BASIC << 16 | 120
QUEUE_DECLARE_OK: Final = 50 << 16 | 11
ACCESS_REQUEST: Final = 30 << 16 | 10  # from an older protocol version; some clients still send it
ACCESS_REQUEST_OK: Final = 30 << 16 | 11

# Reply codes. Those in `ENDS_CHANNEL` close only the channel, all others the connection.
NO_ROUTE: Final = 312
CONNECTION_FORCED: Final = 320
INVALID_PATH: Final = 402
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

NAMES: Final = {
    311: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    313: "NO_CONSUMERS",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    INVALID_PATH: "INVALID_PATH",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
ENDS_CHANNEL: Final = frozenset(
    {311, 312, 313, ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED}
)

_LONGEST: Final = 255  # bytes of a short string


class AmqpError(Exception):
    """A protocol violation or a refusal.

    `method` is the client's method as `class << 16 | method`, 0 for none.
    """

    def __init__(self, code: int, detail: str, method: int = 0) -> None:
        super().__init__(f"{NAMES[code]} - {detail}")
        self.code = code
        self.method = method

    @property
    def text(self) -> str:
        """The reply text, truncated to the length of a short string."""
        return str(self).encode()[:_LONGEST].decode(errors="ignore")

    @property
    def ends_channel(self) -> bool:
        """Whether it closes only the channel."""
        return self.code in ENDS_CHANNEL


def short(text: bytes) -> bytes:
    """Encodes a short string: its length in one byte, then its bytes, of which there is room for 255.

    Longer names are refused where they are given. One that an older store has must not end its readers.
    """
    return bytes((min(len(text), 255),)) + text[:255]


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    head = bytes((kind,)) + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + b"\xce"
