"""A message that arrives in several frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .codec import MAX_PAYLOAD, ChannelProtocolError, Frame, Problem

_GROWTH: Final = 4  # memory for a message is this many times what has arrived of it


class Incoming:
    """A message and what has arrived of it. The bytes announced cost nothing until they come."""

    def __init__(self, frame: Frame, payload: memoryview, placed: bool) -> None:
        """Its first frame; the payload is kept where it has memory of its own, else copied."""
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
        """Memory for the next `length` bytes."""
        have = self._have
        if self._discarded:
            return memoryview(bytearray(length))
        if len(self._memory) < have + length:
            larger = memoryview(bytearray(min(self.size, max(_GROWTH * have, have + length))))
            larger[:have] = self._memory[:have]
            self._memory = larger
        return self._memory[have : have + length]

    def add(self, payload: memoryview, placed: bool) -> None:
        """The next frame's payload; it lies where `room` said if it was `placed`."""
        if not placed and not self._discarded:
            self.room(len(payload))[:] = payload
        self._have += len(payload)

    def discard(self) -> None:
        """Nobody wants it: what still comes is let go."""
        self._discarded = True
        self._memory = memoryview(b"")

    def contents(self) -> tuple[bytes, memoryview]:
        """Head and body."""
        memory = self._memory
        return bytes(memory[: self.head_size]), memory[self.head_size :]


def check_message(frame: Frame, longest: int) -> None:
    """The first frame of a message: its sizes are allowed, and agree with each other."""
    size = frame.head + frame.body
    if size > longest:
        raise ChannelProtocolError(Problem.LENGTH, f"a message of {size} bytes, at most {longest} are taken")
    if frame.length != min(size, MAX_PAYLOAD):
        raise ChannelProtocolError(Problem.ENCODING, f"{frame.length} of {size} bytes in a first frame")


def check_more(frame: Frame, parts: Mapping[int, Incoming]) -> None:
    """A frame that continues a message of `parts`."""
    incoming = parts.get(frame.call)
    if incoming is None:
        raise ChannelProtocolError(Problem.UNEXPECTED, f"{frame.kind.name} of no message")
    if frame.length != min(incoming.missing, MAX_PAYLOAD):
        raise ChannelProtocolError(
            Problem.ENCODING, f"{frame.length} bytes where {incoming.missing} are missing"
        )
