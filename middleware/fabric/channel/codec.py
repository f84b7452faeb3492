"""The wire format of the channel between two daemons: frames, hello, authentication.

All numbers are big-endian. A connection carries frames in both directions:

     0  length uint32: bytes of payload in this frame, at most 256 KiB
     4  kind uint8
     5  0
     6  number uint16: the method of a call or notice, the group of a credit
     8  call uint32: which call; the stamp of a ping
    12  head uint32: bytes of head of the whole message; 0 for kinds without a message
    16  body uint32: bytes of body of the whole message; the bytes of a credit
    20  tag, 16 bytes: from OPEN on, if authentication is on
     .  payload (length bytes)

A message (a call's request or answer, a notice) is its head followed by its body. A message longer than one
frame is cut: the first frame gives the sizes of the whole, all frames but the last are full, and MORE frames
of the same call follow. Frames of other messages may come between them.

A refusal (FAULT) has the fault's name as head and its detail as body, both UTF-8.

The payload of HELLO. Its frame has no tag in any version, which lets different versions recognise each other:

     0  "TCch"                                   24  window uint32: see session.py
     4  version uint16, 3                        28  longest message accepted uint32
     6  flags uint16: bit 0 authenticated        32  nonce, 16 bytes
     8  host id uint32                           48  last connection that was open, 8 bytes, or zeros
    12  the host meant uint32, 0 unknown         56  cluster id: length uint8, then UTF-8
    16  incarnation uint64

PROOF is keyed BLAKE2b over the dialling host's hello and then the accepting host's, 32 bytes; empty if
authentication is off. The keys of the two directions are derived in the same way. They differ, as the proofs
do, in BLAKE2's personalisation. REFUSE carries a reason as UTF-8 and is not authenticated.

A tag is keyed BLAKE2b (RFC 7693), 128 bits, over the number of the frame in its direction (uint64), the
frame's header and its payload. It reveals frames that are missing, repeated, moved or from another
connection.
"""

from __future__ import annotations

import enum
import struct
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.model.buffers import Buffer

VERSION: Final = 3  # 1: heads were protobuf; 2: event streams had no runs
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
    """Frame kinds. The first three have no tag, because there is no key yet."""

    HELLO = 0
    PROOF = 1
    REFUSE = 2  # before the connection is open: the reason
    OPEN = 3  # the host with the lower id has chosen this connection
    CALL = 4  # a request with an answer
    NOTICE = 5  # a request without an answer
    REQUEST_MORE = 6  # of a call or notice
    ANSWER = 7
    FAULT = 8  # an answer that is a refusal
    ANSWER_MORE = 9  # of an answer or refusal
    DROPPED = 10  # the end of a call that was cancelled
    CANCEL = 11  # the caller no longer waits
    CREDIT = 12  # bytes of notices that have been handled
    PING = 13
    PONG = 14
    GOODBYE = 15  # the reason for an orderly end


_KINDS: Final = tuple(Kind)


class Problem(enum.Enum):
    """The reason to refuse or end a connection. Counted by name."""

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
    LENGTH = "a frame or message exceeds the limit"
    KIND = "an unknown kind of frame"
    UNEXPECTED = "a frame is not allowed in this state"
    WINDOW = "the requests exceed the window"
    ENCODING = "a frame cannot be decoded"
    SILENT = "the other end was silent for too long"
    HANDSHAKE = "the other end did not finish its part of the handshake"
    CROWDED = "the limit of connections in their handshake is reached"
    LOST = "the connection broke"
    CLOSED = "closed"
    REMOVED = "the host was removed from the cluster"
    REPLACED = "a newer connection took its place"
    CERTIFICATE = "the other end's certificate is not accepted"
    REFUSED = "the other end refused the connection"
    UNREACHABLE = "cannot connect"


class ChannelProtocolError(ValueError):
    """Received bytes violate the protocol. `problem` is the reason to count."""

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(f"{problem.value}: {detail}" if detail else problem.value)
        self.problem = problem


class Frame(Struct):
    """A frame's header, with the fields above."""

    length: int
    kind: Kind
    number: int = 0
    call: int = 0
    head: int = 0
    body: int = 0


def pack_header(length: int, kind: int, number: int, call: int, head: int, body: int) -> bytes:
    return _FRAME.pack(length, kind, 0, number, call, head, body)


def encode_frame(frame: Frame) -> bytes:
    """Returns the header's bytes. Raises ValueError if a field does not fit."""
    if not 0 <= frame.length <= MAX_PAYLOAD:
        raise ValueError(f"payload of {frame.length} bytes exceeds {MAX_PAYLOAD}")
    try:
        return pack_header(frame.length, frame.kind, frame.number, frame.call, frame.head, frame.body)
    except struct.error as error:
        raise ValueError(f"field does not fit the frame header: {error}") from error


def decode_frame(data: Buffer, position: int = 0) -> Frame | None:
    """Returns the header at `position`, or None if it is incomplete. The payload is left to the caller.

    Raises for a length above the limit, before any allocation.
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
    """The identity of the sender and its limits. `to` is 0 if the host at the other end is unknown."""

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
        """Returns the payload. Raises ValueError if a field does not fit."""
        cluster = self.cluster_id.encode()
        if len(self.nonce) != NONCE_SIZE or len(self.last) != CONNECTION_SIZE or len(cluster) > 255:
            raise ValueError("wrong length of nonce, last connection or cluster id in a hello")
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
            raise ValueError(f"field does not fit the hello: {error}") from error
        return fixed + cluster

    @classmethod
    def decode(cls, data: Buffer) -> Hello:
        """Decodes a whole payload. Raises for another version before it reads the rest."""
        if bytes(data[:4]) != MAGIC:
            raise ChannelProtocolError(Problem.NOT_A_CHANNEL)
        if len(data) < 6:
            raise ChannelProtocolError(Problem.ENCODING, "a hello that ends early")
        version = int.from_bytes(data[4:6], "big")
        if version != VERSION:
            raise ChannelProtocolError(Problem.VERSION, f"version {version} there, {VERSION} here")
        if len(data) < _HELLO.size:
            raise ChannelProtocolError(Problem.ENCODING, "a hello that ends early")
        _, _, flags, host, to, incarnation, window, longest, nonce, last, size = _HELLO.unpack_from(data)
        if len(data) != _HELLO.size + size or flags & ~_AUTHENTICATED:
            raise ChannelProtocolError(Problem.ENCODING, "a hello with a wrong length or unknown flags")
        try:
            cluster_id = bytes(data[_HELLO.size :]).decode()
        except UnicodeDecodeError as error:
            raise ChannelProtocolError(Problem.ENCODING, "a cluster id that is not UTF-8") from error
        authenticated = bool(flags & _AUTHENTICATED)
        return cls(cluster_id, host, incarnation, nonce, to, window, longest, last, authenticated)


def channel_key(token: JoinToken | None) -> bytes | None:
    """Returns the key of a cluster's channels. Returns None for None: authentication is off."""
    return None if token is None else token.derive(PURPOSE)


class Handshake:
    """Values that both ends derive from the payloads of the two hellos."""

    def __init__(self, key: bytes | None, dialler: bytes, acceptor: bytes) -> None:
        self._key = key
        self._hellos = len(dialler).to_bytes(4, "big") + dialler + acceptor

    def proof(self, by_dialler: bool) -> bytes:
        """Returns the proof of one end."""
        return self._made(b"proof of dialler" if by_dialler else b"proof acceptor")

    def connection(self) -> bytes:
        """Returns a name for this connection, equal at both ends."""
        return blake2b(self._hellos, digest_size=CONNECTION_SIZE, person=b"connection").digest()

    def seal(self, by_dialler: bool) -> Seal | None:
        """Returns the tagger for one direction; None if authentication is off."""
        if self._key is None:
            return None
        return Seal(self._made(b"key of dialler" if by_dialler else b"key of acceptor"))

    def _made(self, purpose: bytes) -> bytes:
        if self._key is None:
            return b""
        return blake2b(self._hellos, digest_size=PROOF_SIZE, key=self._key, person=purpose).digest()


class Seal:
    """Tags of one direction. Each call tags the next frame."""

    def __init__(self, key: bytes) -> None:
        # Copying a keyed hash is cheaper than keying a new one.
        self._keyed = blake2b(digest_size=TAG_SIZE, key=key)
        self._frames = 0

    def tag(self, header: bytes, payload: Buffer) -> bytes:
        hashed = self._keyed.copy()
        hashed.update(_COUNTER.pack(self._frames) + header)
        hashed.update(payload)
        self._frames += 1
        return hashed.digest()

    def tag_parts(self, header: bytes, first: Buffer, second: Buffer) -> bytes:
        """Like `tag`, for a payload in two parts."""
        hashed = self._keyed.copy()
        hashed.update(_COUNTER.pack(self._frames) + header)
        hashed.update(first)
        hashed.update(second)
        self._frames += 1
        return hashed.digest()
