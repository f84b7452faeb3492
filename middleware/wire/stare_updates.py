"""Updates of a state as packets: cutting into at most 64 segments, and bounded reassembly."""

from __future__ import annotations

from typing import Final

from .stare import MOST_SEGMENTS, StareHeader, StareKind, encode_header
from .stare_numbers import on_wire


class TooLargeError(ValueError):
    """A state that does not fit 64 segments."""


def largest(segment_bytes: int) -> int:
    """Returns the size in bytes of the largest state whose segments carry `segment_bytes` each."""
    return MOST_SEGMENTS * segment_bytes


def cut(state: int, vnf: int, number: int, value: bytes, segment_bytes: int) -> list[bytes]:
    """Returns the datagrams of an update, header and bytes. An empty value is one segment without bytes.

    `number` is the whole update number, of which the wire carries 14 bits. Raises TooLargeError.
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
    """The segments of one update, received in any order. `size` counts the bytes held."""

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
        """The number of segments received."""
        return len(self._parts) - self._missing

    @property
    def whole(self) -> bool:
        return not self._missing

    def add(self, number: int, part: bytes) -> bool:
        """Returns whether the segment is new; a duplicate does not replace the first one."""
        if self._parts[number] is not None:
            return False
        self._parts[number] = part
        self._missing -= 1
        self.size += len(part)
        return True

    def joined(self) -> bytes:
        """Returns the value. All segments must have been received."""
        return b"".join([part for part in self._parts if part is not None])
