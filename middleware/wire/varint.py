"""Variable-length integers of record batches: zigzag, then 7 bits a byte, lowest first.

Source: Kafka's protocol guide, "Record" (varint: up to 5 bytes, varlong: up to 10), after Protocol Buffers'
encoding.

A reader takes `data` cut to the readable part and raises IndexError if it ends too soon; the caller knows
whose fault that is. A number longer than its type allows raises ValueError.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

_LOW_63_BITS: Final = 0x7FFF_FFFF_FFFF_FFFF


def read_varint(data: bytes, position: i64) -> tuple[i64, i64]:
    """Returns (number, position after it) of a varint of 32 bits; bits beyond 32 are kept in the number."""
    byte: i64 = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw: i64 = byte & 0x7F
    shift: i64 = 7
    while shift < 35:
        position += 1
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
        shift += 7
    raise ValueError("a varint is longer than 5 bytes")


def read_varlong(data: bytes, position: i64) -> tuple[i64, i64]:
    """Returns (number, position after it) of a varlong of 64 bits."""
    byte: i64 = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw: i64 = byte & 0x7F
    shift: i64 = 7
    while shift < 70:
        position += 1
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                raise ValueError("a varlong is longer than 64 bits")
            return ((raw >> 1) & _LOW_63_BITS) ^ -(raw & 1), position + 1
        shift += 7
    raise ValueError("a varlong is longer than 10 bytes")


def write_varlong(out: bytearray, number: int) -> None:
    """Appends `number` (64 bits, signed) as a varlong; a varint has the same encoding."""
    raw = (number << 1) ^ (number >> 63)
    while raw >= 0x80:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)


def varlong_size(number: int) -> int:
    """Returns the number of bytes that `write_varlong` appends."""
    raw = (number << 1) ^ (number >> 63)
    size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size
