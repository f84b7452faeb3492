"""An update of a state as packets, and back: cut into at most 64 segments, put together within bounds."""

from __future__ import annotations

from typing import Final

from .stare import MOST_SEGMENTS, StareHeader, StareKind, encode_header
from .stare_numbers import on_wire


class TooLargeError(ValueError):
    """A state that does not fit 64 segments."""


def largest(segment_bytes: int) -> int:
    """Bytes of the largest state whose segments carry `segment_bytes` each."""
    return MOST_SEGMENTS * segment_bytes


def cut(state: int, vnf: int, number: int, value: bytes, segment_bytes: int) -> list[bytes]:
    """The datagrams of an update, header and bytes; an empty value is one segment without any.

    `number` is the whole update number, of which the wire carries 14 bits. TooLargeError.
    """
    if len(value) > largest(segment_bytes):
        raise TooLargeError(
            f"a state of {len(value)} bytes: at most {largest(segment_bytes)} fit 64 segments on this path"
        )
    total = max(-(-len(value) // segment_bytes), 1)
    wire = on_wire(number)
    return [
        encode_header(StareHeader(StareKind.PUBLISH, state, vnf, wire, total, n))
        + value[n * segment_bytes : (n + 1) * segment_bytes]
        for n in range(total)
    ]


_ABSENT: Final = None


class Parts:
    """The segments of one update as they come, in any order. `size`: bytes that are held."""

    __slots__ = ("_missing", "_parts", "size")

    def __init__(self, total: int) -> None:
        self._parts: list[bytes | None] = [_ABSENT] * total
        self._missing = total
        self.size = 0

    @property
    def total(self) -> int:
        return len(self._parts)

    @property
    def count(self) -> int:
        """Segments that are there."""
        return len(self._parts) - self._missing

    @property
    def whole(self) -> bool:
        return not self._missing

    def add(self, number: int, part: bytes) -> bool:
        """Whether it is new: one that was there stays as it was."""
        if self._parts[number] is not None:
            return False
        self._parts[number] = part
        self._missing -= 1
        self.size += len(part)
        return True

    def joined(self) -> bytes:
        """The value, once it is whole."""
        return b"".join([part for part in self._parts if part is not None])
