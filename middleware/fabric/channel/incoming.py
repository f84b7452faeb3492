"""The input of a connection: cuts frames out of received bytes, joins them to messages, and has the events
for the owner of the session.

As in the faces, the kernel writes into `receive_buffer()`, and `received(n)` follows at once: all connections
share one scratch buffer. A partly received frame gets memory of its own (`_place`), which the kernel then
fills directly. `_admit` accepts a frame before any memory is allocated for it. `_take` gets it only after its
tag was verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest
from typing import Final

from .codec import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    TAG_SIZE,
    ChannelProtocolError,
    Frame,
    Kind,
    Problem,
    Seal,
    decode_frame,
)
from .outgoing import Call

SCRATCH_BYTES: Final = 256 * 1024
_GROWTH: Final = 4  # memory for a message is at most this multiple of its received bytes

# --- events


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


# --- messages of one frame, or several


class Incoming:
    """A partly received message. Announced bytes cost no memory until they arrive."""

    def __init__(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        """Takes the first frame. Keeps a payload that has its own memory, else copies it."""
        self.kind = frame.kind
        self.number = frame.number
        self.call = frame.call
        self.head_size = frame.head
        self.size = frame.head + frame.body
        self._have = len(payload)
        self._memory: memoryview
        self._discarded = False
        if placed:
            self._memory = payload
        else:
            self._memory = memoryview(bytearray(payload))

    @property
    def missing(self) -> int:
        return self.size - self._have

    def room(self, length: int) -> memoryview:
        """Returns memory for the next `length` bytes."""
        have = self._have
        if self._discarded:
            # The kernel has to write what is discarded somewhere.
            return memoryview(bytearray(length))
        if len(self._memory) < have + length:
            larger = memoryview(bytearray(min(self.size, max(_GROWTH * have, have + length))))
            larger[:have] = self._memory[:have]
            self._memory = larger
        return self._memory[have : have + length]

    def add(self, payload: memoryview, placed: bool) -> None:
        """Adds the payload of the next frame. `placed`: it is already in the memory of `room`."""
        if not placed and not self._discarded:
            self.room(len(payload))[:] = payload
        self._have += len(payload)

    def discard(self) -> None:
        """Discards the message and its further frames."""
        self._discarded = True
        self._memory = memoryview(b"")

    def contents(self) -> tuple[bytes, memoryview]:
        """Returns head and body."""
        memory = self._memory
        return bytes(memory[: self.head_size]), memory[self.head_size :]


def whole_message(frame: Frame, payload: memoryview, placed: bool) -> tuple[bytes, memoryview]:
    """Returns head and body of a message of one frame. Copies a payload that has no memory of its own."""
    size = frame.head
    body = payload[size:] if placed else memoryview(bytearray(payload[size:]))
    return bytes(payload[:size]), body


def check_message(frame: Frame, longest: int) -> None:
    """Checks the first frame of a message: sizes within limits and consistent."""
    size = frame.head + frame.body
    if size > longest:
        raise ChannelProtocolError(Problem.LENGTH, f"message of {size} bytes exceeds {longest}")
    if frame.length != min(size, MAX_PAYLOAD):
        raise ChannelProtocolError(Problem.ENCODING, f"first frame has {frame.length} of {size} bytes")


def check_more(frame: Frame, parts: Mapping[int, Incoming]) -> None:
    """Checks a frame that continues a message in `parts`."""
    incoming = parts.get(frame.call)
    if incoming is None:
        raise ChannelProtocolError(Problem.UNEXPECTED, f"{frame.kind.name} without a message")
    if frame.length != min(incoming.missing, MAX_PAYLOAD):
        raise ChannelProtocolError(
            Problem.ENCODING, f"{frame.length} bytes, but {incoming.missing} are missing"
        )


# --- frames


class Scratch:
    """The receive buffer shared by all connections of a host."""

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self.memory = memoryview(bytearray(size))


class Cutter:
    """The receiving direction of one connection. The base of `Session`."""

    def __init__(self, scratch: Scratch) -> None:
        self.closed = False  # nothing more is read
        self._scratch = scratch
        self._seal_in: Seal | None = None
        self._part = bytearray()  # of a header
        self._frame: Frame | None = None  # partly received
        self._header = b""
        self._tag = b""
        self._memory = memoryview(b"")  # where its payload goes
        self._have = 0

    # --- hooks of the session

    def _admit(self, frame: Frame) -> None:
        """Checks a header. Raises if the frame is not allowed here."""
        raise NotImplementedError

    def _place(self, frame: Frame) -> memoryview:
        """Returns `frame.length` bytes of memory for the payload of an admitted frame."""
        raise NotImplementedError

    def _take(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        """Takes a complete frame. `placed`: its payload is in the memory of `_place`, else in the scratch."""
        raise NotImplementedError

    # --- cutting

    def receive_buffer(self) -> memoryview:
        """Returns the buffer for the next bytes."""
        if self._frame is not None:
            return self._memory[self._have :]
        memory = self._scratch.memory
        part = len(self._part)
        if part == 0:
            return memory
        memory[:part] = self._part
        return memory[part:]

    def _received(self, size: int) -> None:
        frame = self._frame
        if frame is None:
            end = len(self._part) + size
            self._part.clear()
            self._cut(self._scratch.memory, end)
            return
        self._have += size
        if self._have == frame.length:
            self._frame = None
            memory = self._memory
            self._memory = memoryview(b"")
            self._finish(frame, self._header, self._tag, memory, True)

    def _cut(self, data: memoryview, end: int) -> None:
        position = 0
        # A frame may have ended the connection: what follows it is not looked at.
        while end - position >= HEADER_SIZE and not self.closed:
            header = bytes(data[position : position + HEADER_SIZE])
            frame = decode_frame(header)
            assert frame is not None
            self._admit(frame)
            start = position + HEADER_SIZE
            if self._seal_in is not None and frame.kind > Kind.REFUSE:
                start += TAG_SIZE
                # The tag is incomplete. The header is cut again with it: `_admit` changes nothing, and may
                # see it twice.
                if end < start:
                    break
            tag = bytes(data[position + HEADER_SIZE : start])
            stop = start + frame.length
            if end < stop:
                self._begin(frame, header, tag, data[start:end])
                return
            self._finish(frame, header, tag, data[start:stop], False)
            position = stop
        self._part += data[position:end]

    def _begin(self, frame: Frame, header: bytes, tag: bytes, part: memoryview) -> None:
        have = len(part)
        memory = self._place(frame)
        memory[:have] = part
        self._memory = memory
        self._have = have
        self._frame = frame
        self._header = header
        self._tag = tag

    def _finish(self, frame: Frame, header: bytes, tag: bytes, payload: memoryview, placed: bool) -> None:
        if tag and self._seal_in is not None and not compare_digest(self._seal_in.tag(header, payload), tag):
            raise ChannelProtocolError(Problem.FORGED)
        self._take(frame, payload, placed)
