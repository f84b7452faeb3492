"""Sets of small integers as bits of one int; nodes, edges and links are numbered from 0.

A union is one operation whatever the number of members, and a set is its own dictionary key.
"""

from __future__ import annotations

from collections.abc import Iterable


def mask_of(members: Iterable[int]) -> int:
    """Returns the set as bits."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members(mask: int) -> list[int]:
    """Returns the members, ascending."""
    found: list[int] = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found
