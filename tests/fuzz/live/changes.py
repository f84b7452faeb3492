"""Random values, and changes of bytes. Everything comes from a seeded generator."""

from __future__ import annotations

import random
from typing import Final

# So few that topics, queues and sessions come and go instead of growing without end.
NAMES: Final = ("a", "b", "c.d", "e/f", "g-1", "#", "+", "", "long" * 60, "*", "\u00e4\u6f22", "..", "a b")
_EDGES: Final = (
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
)


def name(rng: random.Random) -> str:
    return rng.choice(NAMES)


def blob(rng: random.Random, most: int = 64) -> bytes:
    return rng.randbytes(rng.randrange(most))


def number(rng: random.Random, bits: int, *, signed: bool = True) -> int:
    """A number of so many bits, small ones and those at edges more often than others."""
    way = rng.random()
    if way < 0.5:
        found = rng.randrange(-1, 4)
    elif way < 0.8:
        found = rng.choice(_EDGES) + rng.randrange(-1, 2)
    else:
        found = rng.getrandbits(bits)
    found %= 1 << bits
    return found - (1 << bits) if signed and found >= 1 << (bits - 1) else found


def changed(data: bytes, rng: random.Random) -> bytes:
    """Returns the bytes with up to three changes."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if not found:
            return rng.randbytes(4)
        at = rng.randrange(len(found))
        match rng.randrange(6):
            case 0:
                found[at] = rng.randrange(256)
            case 1:
                found[at] ^= 1 << rng.randrange(8)
            case 2:
                del found[at : at + rng.randrange(1, 9)]
            case 3:
                found[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                width = rng.choice((1, 2, 4, 8))
                found[at : at + width] = (rng.choice(_EDGES) % (1 << 8 * width)).to_bytes(width, "big")
            case _:
                found[at:at] = found[: rng.randrange(1, 33)]
    return bytes(found)


def sometimes_changed(data: bytes, rng: random.Random, share: float = 0.5) -> bytes:
    return changed(data, rng) if rng.random() < share else data
