"""The bytes of the channel between two daemons: frames, hello, and what authenticates them.

All numbers are big-endian. A connection is frames in both directions, each

     0  length uint32: bytes of payload in this frame, at most 256 KiB
     4  kind uint8
     5  0
     6  number uint16: the method of a call or notice, the group of a credit
     8  call uint32: which call; the stamp of a ping
    12  head uint32: bytes of head of the whole message; 0 where the kind has no message
    16  body uint32: bytes of body of the whole message; the bytes of a credit
    20  tag, 16 bytes: from OPEN on, where authentication is on
     .  payload (length bytes)

A message (a call's request or answer, a notice) is its head and then its body. What is longer than one
frame is cut: the first frame says head and body of the whole, all but the last frame are full, and MORE
frames of the same call follow. Frames of different messages may stand between them.

A refusal (FAULT) has the fault's name as head and its detail as body, both UTF-8.

The payload of HELLO; its frame has no tag in any version, so that versions can tell each other apart:

     0  "TCch"                                   24  window uint32: see session.py
     4  version uint16, 2                        28  longest message taken uint32
     6  flags uint16: bit 0 authenticated        32  nonce, 16 bytes
     8  host id uint32                           48  last connection that was open, 8 bytes, or zeros
    12  the host meant uint32, 0 unknown         56  cluster id: length uint8, then UTF-8
    16  incarnation uint64

PROOF is keyed BLAKE2b over the dialling host's hello and then the accepting host's, 32 bytes; empty
where authentication is off. The keys of the two directions are made in the same way and differ, as the
proofs do, in BLAKE2's personalisation. REFUSE carries a reason as UTF-8, and is not authenticated.

A tag is BLAKE2b (RFC 7693), keyed, 128 bits, over the number of the frame in its direction (uint64), the
frame's header and its payload. So a frame that is left out, repeated, moved or of another connection
is found out.
"""

from __future__ import annotations

import enum
import struct
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.model.buffers import Buffer

VERSION: Final = 2  # 1: heads were protobuf
MAGIC: Final = b"TCch"
PURPOSE: Final = "fabric channel 1"
HEADER_SIZE: Final = 20
TAG_SIZE: Final = 16
MAX_PAYLOAD: Final = 256 * 1024
NONCE_SIZE: Final = 16
PROOF_SIZE: Final = 32
CONNECTION_SIZE: Final = 8
MAX_NUMBER: Final = 0xFFFF
MAX_CALL: Final = 0xFFFFFFFF
MAX_REASON: Final = 1024
NO_CONNECTION: Final = bytes(CONNECTION_SIZE)

_FRAME: Final = struct.Struct(">IBBHIII")
_HELLO: Final = struct.Struct(">4sHHIIQII16s8sB")
_COUNTER: Final = struct.Struct(">Q")
_AUTHENTICATED: Final = 0x0001


class Kind(enum.IntEnum):
    """The first three are not tagged: there is no key yet."""

    HELLO = 0
    PROOF = 1
    REFUSE = 2  # before the connection is open: the reason
    OPEN = 3  # the host with the lower id has chosen this connection
    CALL = 4  # a request that wants an answer
    NOTICE = 5  # a request that wants none
    REQUEST_MORE = 6  # of a call or notice
    ANSWER = 7
    FAULT = 8  # an answer that is a refusal
    ANSWER_MORE = 9  # of an answer or refusal
    DROPPED = 10  # the end of a call that was cancelled
    CANCEL = 11  # the caller does not wait any more
    CREDIT = 12  # this many bytes of notices are done with
    PING = 13
    PONG = 14
    GOODBYE = 15  # the reason why the connection ends in order


_KINDS: Final = tuple(Kind)


class Problem(enum.Enum):
    """Why a connection is refused or ended. Counted by name."""

    NOT_A_CHANNEL = "the other end does not speak the channel's protocol"
    VERSION = "the other end speaks another version of the channel"
    CLUSTER = "the other end is of another cluster"
    AUTHENTICATION = "authentication is on at one end and off at the other"
    PROOF = "the other end does not know the cluster's key: look at its join token"
    WRONG_HOST = "another host answers at the address"
    SELF = "the other end has this host's own id"
    STALE = "a newer incarnation of the host is known"
    DUPLICATE = "the two hosts are connected already"
    FORGED = "a frame's tag is wrong: it was changed, repeated or left out"
    LENGTH = "a frame or message longer than is allowed"
    KIND = "an unknown kind of frame"
    UNEXPECTED = "a frame that has no place here"
    WINDOW = "more requests than there is room for"
    ENCODING = "a frame whose contents make no sense"
    SILENT = "nothing was heard for too long"
    HANDSHAKE = "the other end did not finish its part of the handshake"
    CROWDED = "more connections than may be in their handshakes at a time"
    LOST = "the connection broke"
    CLOSED = "closed"
    REMOVED = "the host was taken from the cluster"
    REPLACED = "a newer connection took its place"
    REFUSED = "the other end refused the connection"
    UNREACHABLE = "nobody answers at the address"


class ChannelProtocolError(ValueError):
    """What came is refused; `problem` is what to count."""

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(f"{problem.value}: {detail}" if detail else problem.value)
        self.problem = problem


class Frame(Struct):
    """A frame's header. Field by field as above."""

    length: int
    kind: Kind
    number: int = 0
    call: int = 0
    head: int = 0
    body: int = 0


def pack_header(length: int, kind: int, number: int, call: int, head: int, body: int) -> bytes:
    return _FRAME.pack(length, kind, 0, number, call, head, body)


def encode_frame(frame: Frame) -> bytes:
    """The header's bytes. ValueError where a field does not fit."""
    if not 0 <= frame.length <= MAX_PAYLOAD:
        raise ValueError(f"a payload of {frame.length} bytes: at most {MAX_PAYLOAD}")
    try:
        return pack_header(frame.length, frame.kind, frame.number, frame.call, frame.head, frame.body)
    except struct.error as error:
        raise ValueError(f"a field does not fit the frame's header: {error}") from error


def decode_frame(data: Buffer, position: int = 0) -> Frame | None:
    """The header at `position`, None where it is not all there; what follows it is the caller's.

    A length that is too large raises before anybody could allocate it.
    """
    if len(data) - position < HEADER_SIZE:
        return None
    length, kind, zero, number, call, head, body = _FRAME.unpack_from(data, position)
    if kind >= len(_KINDS):
        raise ChannelProtocolError(Problem.KIND, f"kind {kind}")
    if length > MAX_PAYLOAD:
        raise ChannelProtocolError(Problem.LENGTH, f"a frame of {length} bytes")
    if zero:
        raise ChannelProtocolError(Problem.ENCODING, "byte 5 is not 0")
    return Frame(length, _KINDS[kind], number, call, head, body)


class Hello(Struct, frozen=True):
    """Who speaks, and what it takes. `to` is 0 where the host at the other end is not known yet."""

    cluster_id: str
    host_id: int
    incarnation: int
    nonce: bytes
    to: int = 0
    window: int = 0  # bytes
    longest: int = 0  # bytes
    last: bytes = NO_CONNECTION
    authenticated: bool = True
    version: int = VERSION

    def encode(self) -> bytes:
        """The payload. ValueError where a field does not fit."""
        cluster = self.cluster_id.encode()
        if len(self.nonce) != NONCE_SIZE or len(self.last) != CONNECTION_SIZE or len(cluster) > 255:
            raise ValueError("nonce, last connection or cluster id of a hello has a wrong length")
        flags = _AUTHENTICATED if self.authenticated else 0
        try:
            fixed = _HELLO.pack(
                MAGIC,
                self.version,
                flags,
                self.host_id,
                self.to,
                self.incarnation,
                self.window,
                self.longest,
                self.nonce,
                self.last,
                len(cluster),
            )
        except struct.error as error:
            raise ValueError(f"a field does not fit the hello: {error}") from error
        return fixed + cluster

    @classmethod
    def decode(cls, data: Buffer) -> Hello:
        """Reads a payload whole; a version other than ours raises before the rest is looked at."""
        if bytes(data[:4]) != MAGIC:
            raise ChannelProtocolError(Problem.NOT_A_CHANNEL)
        if len(data) < 6:
            raise ChannelProtocolError(Problem.ENCODING, "a hello that ends early")
        version = int.from_bytes(data[4:6], "big")
        if version != VERSION:
            raise ChannelProtocolError(Problem.VERSION, f"{version} there, {VERSION} here")
        if len(data) < _HELLO.size:
            raise ChannelProtocolError(Problem.ENCODING, "a hello that ends early")
        _, _, flags, host, to, incarnation, window, longest, nonce, last, size = _HELLO.unpack_from(data)
        if len(data) != _HELLO.size + size or flags & ~_AUTHENTICATED:
            raise ChannelProtocolError(Problem.ENCODING, "a hello of a wrong length, or with unknown flags")
        try:
            cluster_id = bytes(data[_HELLO.size :]).decode()
        except UnicodeDecodeError as error:
            raise ChannelProtocolError(Problem.ENCODING, "a cluster id that is not UTF-8") from error
        authenticated = bool(flags & _AUTHENTICATED)
        return cls(cluster_id, host, incarnation, nonce, to, window, longest, last, authenticated)


def channel_key(token: JoinToken | None) -> bytes | None:
    """The key of a cluster's channels; None, where authentication is off, for None."""
    return None if token is None else token.derive(PURPOSE)


class Handshake:
    """What both ends compute from the two hellos (their payloads, as they crossed)."""

    def __init__(self, key: bytes | None, dialler: bytes, acceptor: bytes) -> None:
        self._key = key
        self._hellos = len(dialler).to_bytes(4, "big") + dialler + acceptor

    def proof(self, by_dialler: bool) -> bytes:
        """What the one end shows to the other."""
        return self._made(b"proof of dialler" if by_dialler else b"proof acceptor")

    def connection(self) -> bytes:
        """A name for this connection, the same at both ends."""
        return blake2b(self._hellos, digest_size=CONNECTION_SIZE, person=b"connection").digest()

    def seal(self, by_dialler: bool) -> Seal | None:
        """What tags the frames of one direction; None where authentication is off."""
        if self._key is None:
            return None
        return Seal(self._made(b"key of dialler" if by_dialler else b"key of acceptor"))

    def _made(self, purpose: bytes) -> bytes:
        if self._key is None:
            return b""
        return blake2b(self._hellos, digest_size=PROOF_SIZE, key=self._key, person=purpose).digest()


class Seal:
    """The tags of one direction. Each call is for the next frame."""

    def __init__(self, key: bytes) -> None:
        # copying a hash that has taken its key in is cheaper than keying one anew
        self._keyed = blake2b(digest_size=TAG_SIZE, key=key)
        self._frames = 0

    def tag(self, header: bytes, payload: Buffer) -> bytes:
        hashed = self._keyed.copy()
        hashed.update(_COUNTER.pack(self._frames) + header)
        hashed.update(payload)
        self._frames += 1
        return hashed.digest()

    def tag_parts(self, header: bytes, first: Buffer, second: Buffer) -> bytes:
        """The same for a payload that lies in two places."""
        hashed = self._keyed.copy()
        hashed.update(_COUNTER.pack(self._frames) + header)
        hashed.update(first)
        hashed.update(second)
        self._frames += 1
        return hashed.digest()
