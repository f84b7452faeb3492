"""Cuts frames out of received bytes and checks their tags.

As in the faces, the kernel writes into `receive_buffer()`, and `received(n)` follows at once: all connections
share one scratch buffer. A partly received frame gets memory of its own (`_place`), which the kernel then
fills directly. `_admit` accepts a frame before any memory is allocated for it. `_take` gets it only after its
tag was verified.
"""

from __future__ import annotations

from hmac import compare_digest
from typing import Final

from .codec import (
    HEADER_SIZE,
    TAG_SIZE,
    ChannelProtocolError,
    Frame,
    Kind,
    Problem,
    Seal,
    decode_frame,
)

SCRATCH_BYTES: Final = 256 * 1024


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
