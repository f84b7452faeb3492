"""Cuts frames out of what arrives, and checks their tags.

As in the faces, the kernel writes where `receive_buffer()` says, and `received(n)` is called right
after: all connections share one scratch buffer. A frame that has arrived in part gets memory of its own
(`_place`), which the kernel then fills directly. Whether a frame has a place here is asked (`_admit`)
before there is memory for it, and it is used (`_take`) only after its tag was found right.
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
    """The receive buffer that all connections of a host share."""

    def __init__(self, size: int = SCRATCH_BYTES) -> None:
        self.memory = memoryview(bytearray(size))


class Cutter:
    """One direction of one connection. `Session` is made of it."""

    def __init__(self, scratch: Scratch) -> None:
        self.closed = False  # nothing more is read
        self._scratch = scratch
        self._seal_in: Seal | None = None
        self._part = bytearray()  # of a header
        self._frame: Frame | None = None  # has arrived in part
        self._header = b""
        self._tag = b""
        self._memory = memoryview(b"")  # where its payload goes
        self._have = 0

    # --- what a session adds

    def _admit(self, frame: Frame) -> None:
        """Raises where the frame has no place here, by its header alone."""
        raise NotImplementedError

    def _place(self, frame: Frame) -> memoryview:
        """Where the payload of an admitted frame goes, `frame.length` bytes."""
        raise NotImplementedError

    def _take(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        """A frame that is whole. `placed`: its payload lies where `_place` said, else in the scratch."""
        raise NotImplementedError

    # --- cutting

    def receive_buffer(self) -> memoryview:
        """Where the next bytes go."""
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
        while end - position >= HEADER_SIZE and not self.closed:
            header = bytes(data[position : position + HEADER_SIZE])
            frame = decode_frame(header)
            assert frame is not None
            self._admit(frame)
            start = position + HEADER_SIZE
            if self._seal_in is not None and frame.kind > Kind.REFUSE:
                start += TAG_SIZE
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
