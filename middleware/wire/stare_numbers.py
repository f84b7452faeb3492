"""Update numbers: 14 bits on the wire, compared as serial numbers (RFC 1982), and counted on beside it.

A VNF's updates of a state count 0, 1, 2, ... and the wire carries the low 14 bits. Who follows them knows
which whole number is next, and takes what arrives for the one nearest to it: right as long as the two are
less than 8,192 apart.
"""

from __future__ import annotations

from typing import Final

CYCLE: Final = 1 << 14
_HALF: Final = CYCLE // 2


def on_wire(number: int) -> int:
    """The 14 bits of a whole number."""
    return number % CYCLE


def step(one: int, other: int) -> int:
    """How far 14 bits `one` lie after `other`: from -8192 to 8191."""
    return (one - other + _HALF) % CYCLE - _HALF


def newer(one: int, other: int) -> bool:
    """Whether 14 bits `one` come after `other`. Of two that are 8,192 apart neither does (RFC 1982, 3.2)."""
    return 0 < (one - other) % CYCLE < _HALF


def nearest(wire: int, expected: int) -> int:
    """The whole number that ends in these 14 bits and is nearest to `expected`; may be below 0."""
    return expected + step(wire, on_wire(expected))


def rebase(number: int, towards: int) -> int:
    """The multiple of 16,384 that brings `number` nearest to `towards`."""
    return (towards - number + _HALF) // CYCLE * CYCLE
