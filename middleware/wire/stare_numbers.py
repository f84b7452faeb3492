"""Update numbers: 14 bits on the wire, compared as serial numbers (RFC 1982), extended to whole numbers
locally.

A VNF's updates of a state count 0, 1, 2, ... and the wire carries the low 14 bits. A receiver knows the next
whole number and maps a wire number to the nearest whole one. That is right while both are less than 8,192
apart.
"""

from __future__ import annotations

from typing import Final

CYCLE: Final = 1 << 14
_HALF: Final = CYCLE // 2


def on_wire(number: int) -> int:
    """Returns the low 14 bits of a whole number."""
    return number % CYCLE


def step(one: int, other: int) -> int:
    """Returns the distance from `other` to `one`, both of 14 bits: -8192 to 8191."""
    return (one - other + _HALF) % CYCLE - _HALF


def newer(one: int, other: int) -> bool:
    """Returns whether `one` comes after `other`, both of 14 bits; never for two that are 8,192 apart (RFC
    1982, 3.2).
    """
    return 0 < (one - other) % CYCLE < _HALF


def nearest(wire: int, expected: int) -> int:
    """Returns the whole number that ends in these 14 bits and is nearest to `expected`; may be negative."""
    return expected + step(wire, on_wire(expected))


def rebase(number: int, towards: int) -> int:
    """Returns the multiple of 16,384 that brings `number` nearest to `towards`."""
    return (towards - number + _HALF) // CYCLE * CYCLE
