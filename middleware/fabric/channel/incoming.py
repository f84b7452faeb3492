"""A message that arrives in several frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .codec import MAX_PAYLOAD, ChannelProtocolError, Frame, Problem

_GROWTH: Final = 4  # memory for a message is at most this multiple of its received bytes


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
