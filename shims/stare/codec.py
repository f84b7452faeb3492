"""The frames between a VNF and the STARE middleware beside it, big-endian (docs/faces/stare.md):

    length (32) | type (8) | body          length: of type and body

| type | frame       | body                                                      | from        |
| ---- | ----------- | --------------------------------------------------------- | ----------- |
| 1    | HELLO       | version (16), name of the VNF                             | application |
| 2    | STATE       | request (32), name of a state, levels joined by /         | application |
| 3    | SUBSCRIBE   | request, state (32)                                       | application |
| 4    | UNSUBSCRIBE | request, state                                            | application |
| 5    | PUBLISH     | request, state, value; request 0 is answered if refused   | application |
| 6    | PING        | request                                                   | application |
| 129  | WELCOME     | version, VNF id (16), bytes of the largest state (32)     | middleware  |
| 130  | STATE_IS    | request, state                                            | middleware  |
| 131  | DONE        | request, number (64)                                      | middleware  |
| 132  | REFUSED     | request, code (16), text                                  | middleware  |
| 133  | UPDATE      | state, VNF id, update number (64), value                  | middleware  |
| 134  | PONG        | request                                                   | middleware  |
| 135  | ERROR       | code, text; then the connection is closed                 | middleware  |

Names and texts are UTF-8 up to the frame's end.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from msgspec import Struct

VERSION: Final = 1
LONGEST_TEXT: Final = 4096
LONGEST_FRAME: Final = 1 << 22  # far above the content of 64 packets

_LENGTH: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">IB")
_HELLO: Final = struct.Struct(">H")
_WELCOME: Final = struct.Struct(">HHI")
_REQUEST: Final = struct.Struct(">I")
_STATE: Final = struct.Struct(">II")
_DONE: Final = struct.Struct(">IQ")
_REFUSED: Final = struct.Struct(">IH")
_UPDATE: Final = struct.Struct(">IHQ")
_ERROR: Final = struct.Struct(">H")


class Type(enum.IntEnum):
    """A frame's type; those of the middleware have the top bit set."""

    HELLO = 1
    STATE = 2
    SUBSCRIBE = 3
    UNSUBSCRIBE = 4
    PUBLISH = 5
    PING = 6
    WELCOME = 129
    STATE_IS = 130
    DONE = 131
    REFUSED = 132
    UPDATE = 133
    PONG = 134
    ERROR = 135


class Code(enum.IntEnum):
    """Why something is refused."""

    PROTOCOL = 1  # the frames make no sense
    INVALID = 2  # the request is invalid
    TOO_LARGE = 3  # the state does not fit 64 packets
    LIMIT = 4  # too much already
    AWAY = 5  # the coordinator or the replica controller cannot be reached; try again
    INTERNAL = 6  # our own mistake; the daemon's log has it
    SLOW = 7  # the application does not read
    CLOSING = 8  # the daemon ends


class CodecError(Exception):
    """Bytes that are not frames."""


class Frame(Struct, frozen=True):
    """Any frame; its type determines which fields are used."""

    type: Type
    request: int = 0
    state: int = 0
    vnf: int = 0
    number: int = 0  # of DONE and UPDATE; the version of HELLO and WELCOME; the largest state of WELCOME
    version: int = 0
    code: int = 0
    text: str = ""
    value: bytes = b""


def encode(frame: Frame) -> bytes:
    """Returns the frame's bytes. Raises ValueError if a field does not fit, or it is too long."""
    try:
        body = _body(frame)
    except struct.error as error:
        raise ValueError(f"a field does not fit: {error}") from error
    if len(body) >= LONGEST_FRAME or len(frame.text.encode()) > LONGEST_TEXT:
        raise ValueError("the frame is too long")
    return _HEAD.pack(len(body) + 1, frame.type) + body


def _body(frame: Frame) -> bytes:
    match frame.type:
        case Type.HELLO:
            return _HELLO.pack(frame.version) + frame.text.encode()
        case Type.STATE:
            return _REQUEST.pack(frame.request) + frame.text.encode()
        case Type.SUBSCRIBE | Type.UNSUBSCRIBE | Type.STATE_IS:
            return _STATE.pack(frame.request, frame.state)
        case Type.PUBLISH:
            return _STATE.pack(frame.request, frame.state) + frame.value
        case Type.PING | Type.PONG:
            return _REQUEST.pack(frame.request)
        case Type.WELCOME:
            return _WELCOME.pack(frame.version, frame.vnf, frame.number)
        case Type.DONE:
            return _DONE.pack(frame.request, frame.number)
        case Type.REFUSED:
            return _REFUSED.pack(frame.request, frame.code) + frame.text.encode()
        case Type.UPDATE:
            return _UPDATE.pack(frame.state, frame.vnf, frame.number) + frame.value
        case Type.ERROR:
            return _ERROR.pack(frame.code) + frame.text.encode()


_LEAST: Final[dict[Type, int]] = {
    Type.HELLO: _HELLO.size,
    Type.STATE: _REQUEST.size,
    Type.SUBSCRIBE: _STATE.size,
    Type.UNSUBSCRIBE: _STATE.size,
    Type.STATE_IS: _STATE.size,
    Type.PUBLISH: _STATE.size,
    Type.PING: _REQUEST.size,
    Type.PONG: _REQUEST.size,
    Type.WELCOME: _WELCOME.size,
    Type.DONE: _DONE.size,
    Type.REFUSED: _REFUSED.size,
    Type.UPDATE: _UPDATE.size,
    Type.ERROR: _ERROR.size,
}
_OPEN_ENDED: Final = frozenset({Type.HELLO, Type.STATE, Type.PUBLISH, Type.REFUSED, Type.UPDATE, Type.ERROR})


def decode(type_number: int, body: bytes) -> Frame:
    """Returns a frame from its type and body. Raises CodecError if it is invalid."""
    try:
        kind = Type(type_number)
    except ValueError:
        raise CodecError(f"frame type {type_number} is unknown") from None
    least = _LEAST[kind]
    if len(body) < least or (len(body) > least and kind not in _OPEN_ENDED):
        raise CodecError(f"{len(body)} bytes are no body of a {kind.name}")
    match kind:
        case Type.HELLO:
            return Frame(kind, version=_HELLO.unpack_from(body)[0], text=_text(body, least))
        case Type.STATE:
            return Frame(kind, request=_REQUEST.unpack_from(body)[0], text=_text(body, least))
        case Type.SUBSCRIBE | Type.UNSUBSCRIBE | Type.STATE_IS | Type.PUBLISH:
            request, state = _STATE.unpack_from(body)
            return Frame(kind, request=request, state=state, value=body[least:])
        case Type.PING | Type.PONG:
            return Frame(kind, request=_REQUEST.unpack_from(body)[0])
        case Type.WELCOME:
            version, vnf, largest = _WELCOME.unpack_from(body)
            return Frame(kind, version=version, vnf=vnf, number=largest)
        case Type.DONE:
            request, number = _DONE.unpack_from(body)
            return Frame(kind, request=request, number=number)
        case Type.REFUSED:
            request, code = _REFUSED.unpack_from(body)
            return Frame(kind, request=request, code=code, text=_text(body, least))
        case Type.UPDATE:
            state, vnf, number = _UPDATE.unpack_from(body)
            return Frame(kind, state=state, vnf=vnf, number=number, value=body[least:])
        case Type.ERROR:
            return Frame(kind, code=_ERROR.unpack_from(body)[0], text=_text(body, least))


def _text(body: bytes, start: int) -> str:
    if len(body) - start > LONGEST_TEXT:
        raise CodecError(f"a name or text of {len(body) - start} bytes; at most {LONGEST_TEXT}")
    try:
        return body[start:].decode()
    except UnicodeDecodeError as error:
        raise CodecError(f"a name or text that is not UTF-8: {error}") from None


class Cutter:
    """Cuts received bytes into frames. `longest`: limit of a frame; longer ones are refused by their head."""

    def __init__(self, longest: int = LONGEST_FRAME) -> None:
        self._longest = longest
        self._held = bytearray()

    @property
    def held(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._held)

    def receive(self, data: bytes) -> list[Frame]:
        """Returns the frames that are whole now. CodecError; then the rest is of no use."""
        held = self._held
        held += data
        frames: list[Frame] = []
        at = 0
        while len(held) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(held, at)
            if not 1 <= length <= self._longest:
                raise CodecError(f"a frame of {length} bytes: from 1 to {self._longest}")
            end = at + _LENGTH.size + length
            if len(held) < end:
                break
            frames.append(decode(held[at + _LENGTH.size], bytes(held[at + _HEAD.size : end])))
            at = end
        del held[:at]
        return frames
