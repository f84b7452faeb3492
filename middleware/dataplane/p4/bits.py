"""Operations on bits of packets and integers, for interpreted and generated P4 code.

Values of `bit<W>` are plain ints from 0 to 2^W - 1, values of `int<W>` signed ints; no value carries its
width. The code is typed and free of closures, so that mypyc compiles it; the same source also runs
interpreted.
"""

from __future__ import annotations

import binascii

MASK64 = 0xFFFFFFFFFFFFFFFF


# --- bit fields in bytes; bit 0 is the first on the wire (the highest of the first byte)


def extract(data: bytes, offset: int, width: int) -> int:
    """Returns the `width` bits that begin at bit `offset`. The caller has checked that they are there."""
    end = offset + width
    first = offset >> 3
    last = (end + 7) >> 3
    value = int.from_bytes(data[first:last], "big")
    return (value >> (last * 8 - end)) & ((1 << width) - 1)


# --- numbers


def to_signed(value: int, width: int) -> int:
    """Returns the low `width` bits of `value` as an `int<width>` (two's complement)."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def saturate(value: int, width: int) -> int:
    """Returns `value` limited to the range of `bit<width>`, as |+| and |-| do."""
    if value < 0:
        return 0
    top = (1 << width) - 1
    return top if value > top else value


def saturate_signed(value: int, width: int) -> int:
    """Returns `value` limited to the range of `int<width>`."""
    top = (1 << (width - 1)) - 1
    if value > top:
        return top
    return -top - 1 if value < -top - 1 else value


def shift_left(value: int, by: int, width: int) -> int:
    """Returns `value << by` in `width` bits; a shift by the width or more gives 0 and takes no memory."""
    return (value << by) & ((1 << width) - 1) if by < width else 0


def prefix_mask(prefix: int, width: int) -> int:
    """Returns a mask of `width` bits whose first `prefix` bits are set."""
    return ((1 << prefix) - 1) << (width - prefix)


# --- checksums and hashes, over the bits of a list of fields. `width` is their sum; the last byte is filled
# with zero bits, as the behavioral model does. Each is checked against its published test vector.


def packed(value: int, width: int) -> bytes:
    """Returns the bits of `value` as bytes, zero bits behind."""
    size = (width + 7) >> 3
    return (value << (size * 8 - width)).to_bytes(size, "big")


def csum16(value: int, width: int) -> int:
    """Returns the Internet checksum (RFC 1071): the ones' complement of the ones' complement sum of 16 bit
    words.
    """
    spare = -width & 15
    total = (value << spare) % 0xFFFF
    if total == 0 and value != 0:
        total = 0xFFFF
    return total ^ 0xFFFF


def csum16_bytes(data: bytes) -> int:
    """Returns the same of bytes, an odd one filled with a zero byte."""
    return csum16(int.from_bytes(data, "big"), len(data) * 8)


def xor16(value: int, width: int) -> int:
    """Returns the exclusive or of 16 bit words."""
    value <<= -width & 15
    total = 0
    while value:
        total ^= value & 0xFFFF
        value >>= 16
    return total


def identity(value: int, width: int) -> int:
    """Returns the first 64 bits, as the behavioral model has it."""
    size = (width + 7) >> 3
    value <<= size * 8 - width
    return value >> (size * 8 - 64) if size > 8 else value


def crc32(value: int, width: int) -> int:
    """Returns CRC-32 (polynomial 0x04C11DB7, reflected; that of Ethernet)."""
    return binascii.crc32(packed(value, width))


def _crc16_table() -> list[int]:
    table = []
    for byte in range(256):
        rest = byte
        for _ in range(8):
            rest = (rest >> 1) ^ (0xA001 if rest & 1 else 0)
        table.append(rest)
    return table


_CRC16: list[int] = _crc16_table()


def crc16(value: int, width: int) -> int:
    """Returns CRC-16/ARC (polynomial 0x8005, reflected, initially 0)."""
    rest = 0
    for byte in packed(value, width):
        rest = (rest >> 8) ^ _CRC16[(rest ^ byte) & 0xFF]
    return rest


def crc_any(data: bytes, width: int, polynomial: int, initial: int, final: int, reflected: bool) -> int:
    """Returns a CRC of `width` (8 or more) bits by its parameters, bit by bit: `crc16_custom` and
    `crc32_custom`, and the reference of the others.
    """
    top = 1 << (width - 1)
    mask = (1 << width) - 1
    rest = initial
    for byte in data:
        rest ^= (reverse(byte, 8) if reflected else byte) << (width - 8)
        for _ in range(8):
            rest = ((rest << 1) ^ polynomial if rest & top else rest << 1) & mask
    return (reverse(rest, width) if reflected else rest) ^ final


def reverse(value: int, width: int) -> int:
    """Returns the `width` bits in opposite order."""
    result = 0
    for _ in range(width):
        result = (result << 1) | (value & 1)
        value >>= 1
    return result


def in_range(hashed: int, base: int, size: int, width: int) -> int:
    """Returns the result of `hash`: base + hashed % size, or base if size is 0, in `width` bits."""
    return (base + (hashed % size if size > 0 else 0)) & ((1 << width) - 1)


# --- a seeded generator


class Generator:
    """SplitMix64 (Steele, Lea, Flood 2014): small, its own state, the same on every machine."""

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK64

    def next64(self) -> int:
        """Returns 64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK64
        return mixed ^ (mixed >> 31)

    def between(self, low: int, high: int) -> int:
        """Returns a uniform number, both bounds included; `low` if high < low, which v1model leaves open."""
        span = high - low + 1
        if span <= 1:
            return low
        value = 0
        for _ in range((span.bit_length() + 127) >> 6):  # 64 bits more than needed: no visible bias
            value = (value << 64) | self.next64()
        return low + value % span
