"""The stacks of the source-based schemes (the thesis' chapters 3 and 4), with configurable field widths.

  | entry count (16) | entry ...       entry: switch (s bits) | tag (t bits) | value (v bits), whole bytes

All entries of a network have the same width, so that a switch can skip entries of other switches. The thesis'
sizes: switch/port 8 + 8 bits, switch/bitmask and switch/multicast group 8 + 16 bits, hops and destinations 16
bits (no switch). `tag` states the kind of value in mixed stacks. Big-endian.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

COUNT_SIZE: Final = 2
# The space behind the count in a frame's 1500 bytes.
MOST_BYTES: Final = 1498

_COUNT: Final = struct.Struct(">H")


class EntryError(ValueError):
    """Bytes that are not a stack of this format."""


class Entry(Struct, frozen=True, order=True):
    """One entry. A field of width 0 is 0."""

    switch: int
    value: int
    tag: int = 0


class EntryFormat(Struct, frozen=True):
    """Field widths in bits; their sum is a whole number of bytes."""

    switch_bits: int
    value_bits: int
    tag_bits: int = 0

    def __post_init__(self) -> None:
        if min(self.switch_bits, self.value_bits, self.tag_bits) < 0 or self.bits % 8 or not self.bits:
            raise ValueError(f"an entry of {self.bits} bits; whole bytes are needed")

    @property
    def bits(self) -> int:
        return self.switch_bits + self.value_bits + self.tag_bits

    @property
    def size(self) -> int:
        """The size of one entry in bytes."""
        return self.bits // 8

    def stack_size(self, entries: int) -> int:
        """Returns the size in bytes of a stack of `entries` entries."""
        return COUNT_SIZE + entries * self.size

    def encode(self, entries: list[Entry]) -> bytes:
        """Returns count and entries. Raises ValueError if a field exceeds its width or there are too many."""
        if len(entries) * self.size > MOST_BYTES:
            raise ValueError(f"{len(entries)} entries of {self.size} bytes do not fit a frame")
        return _COUNT.pack(len(entries)) + b"".join(self._pack(entry) for entry in entries)

    def _pack(self, entry: Entry) -> bytes:
        for value, bits in ((entry.switch, self.switch_bits), (entry.tag, self.tag_bits)):
            if value < 0 or value >> bits:
                raise ValueError(f"{value} does not fit {bits} bits")
        if entry.value < 0 or entry.value >> self.value_bits:
            raise ValueError(f"{entry.value} does not fit {self.value_bits} bits")
        packed = (entry.switch << self.tag_bits | entry.tag) << self.value_bits | entry.value
        return packed.to_bytes(self.size)

    def decode(self, data: bytes | bytearray | memoryview, position: int = 0) -> tuple[list[Entry], int]:
        """Returns the entries at `position`, and the position after them. Raises EntryError if the bytes end
        early.
        """
        if position < 0 or len(data) - position < COUNT_SIZE:
            raise EntryError("the bytes end before the entry count does")
        (count,) = _COUNT.unpack_from(data, position)
        start, end = position + COUNT_SIZE, position + COUNT_SIZE + count * self.size
        if count * self.size > MOST_BYTES:
            raise EntryError(f"{count} entries of {self.size} bytes do not fit a frame")
        if len(data) < end:
            raise EntryError(f"the bytes end before {count} entries do")
        return [self._unpack(data[at : at + self.size]) for at in range(start, end, self.size)], end

    def _unpack(self, data: bytes | bytearray | memoryview) -> Entry:
        packed = int.from_bytes(data)
        value = packed & (1 << self.value_bits) - 1
        packed >>= self.value_bits
        return Entry(packed >> self.tag_bits, value, packed & (1 << self.tag_bits) - 1)


# The thesis' own widths (3.5.3). Larger networks need wider fields.
SWITCH_PORT: Final = EntryFormat(8, 8)
SWITCH_BITMASK: Final = EntryFormat(8, 16)
SWITCH_GROUP: Final = EntryFormat(8, 16)
MIXED: Final = EntryFormat(14, 16, 2)
NODES: Final = EntryFormat(0, 16)
