"""Numbers as P4Runtime's byte strings: big-endian, without leading zero bytes, at least one byte.

Input may be longer or shorter than the field, as the specification (8.4) requires; only its value counts.
"""

from __future__ import annotations

from .errors import Code, P4RuntimeError, invalid


def encode(value: int) -> bytes:
    """Returns the canonical form."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def decode(data: bytes, width: int, what: str) -> int:
    """Returns the number. Raises INVALID_ARGUMENT for an empty string, OUT_OF_RANGE if it exceeds `width`
    bits.
    """
    if not data:
        raise invalid(f"{what}: the value is empty")
    value = int.from_bytes(data, "big")
    if value >> width:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{what}: {value:#x} does not fit into {width} bits")
    return value
