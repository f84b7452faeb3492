"""Payloads with their due times, and the account of arrivals.

A stamped payload begins with MARK (8 bytes), its number (uint64) and its due time (uint64, nanoseconds of
CLOCK_MONOTONIC), little-endian, followed by letters up to its size. The mark is found within any container,
such as a rewritten record batch or a body frame.
"""

from __future__ import annotations

import re
import struct
from array import array

from treecast.middleware.load.frames import LoadError

MARK = b"\xf1TCast\x9a\xf2"
STAMP = struct.Struct("<QQ")
SMALLEST = len(MARK) + STAMP.size
_FOUND = re.compile(re.escape(MARK) + b"(.{16})", re.DOTALL)
_LETTERS = b"abcdefghijklmnopqrstuvwxyz0123456789"


def payload(size: int) -> bytes:
    """Returns a payload of `size` bytes with an empty stamp."""
    if size < SMALLEST:
        raise ValueError(f"a stamped payload takes at least {SMALLEST} bytes")
    rest = size - SMALLEST
    return MARK + bytes(STAMP.size) + (_LETTERS * (rest // len(_LETTERS) + 1))[:rest]


class Arrivals:
    """When each of `count` payloads arrived, in nanoseconds after it was due. Each may come once."""

    def __init__(self, count: int) -> None:
        self.delays = array("q", [-1]) * count
        self.arrived = 0

    def scan(self, data: bytes | bytearray | memoryview, now: int) -> int:
        """Takes all stamps in `data`, which came at `now` (ns); returns their number.

        Raises LoadError for a payload that came twice or was never sent.
        """
        found = 0
        for match in _FOUND.finditer(data):
            number, due = STAMP.unpack(match[1])
            if number >= len(self.delays):
                raise LoadError(f"record {number} arrived, which was not sent in this run")
            if self.delays[number] >= 0:
                raise LoadError(f"record {number} arrived twice")
            self.delays[number] = now - due
            found += 1
        self.arrived += found
        return found
