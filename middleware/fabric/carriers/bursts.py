"""Datagrams to one address, gathered into the bursts that one UDP_SEGMENT call can send. Pure.

Such a call takes one buffer and a size: the kernel cuts it into datagrams of that size, of which the last
may be shorter. It takes at most 64 of them, and no more bytes than one datagram may have.
"""

from __future__ import annotations

from typing import Final

MOST_DATAGRAMS: Final = 64  # UDP_MAX_SEGMENTS of kernels before 6.9; later ones take 128
MOST_BYTES: Final = 65_507 - 20  # of a burst, with room for an IPv6 header


class Burst:
    """Datagrams for one call. All are `size` bytes, but the last, which may have less."""

    __slots__ = ("datagrams", "length", "size")

    def __init__(self, datagram: bytes) -> None:
        self.datagrams = [datagram]
        self.size = len(datagram)
        self.length = len(datagram)

    def add(self, datagram: bytes) -> bool:
        """Whether it fits: the last one must not be shorter, the burst not too long."""
        size = len(datagram)
        count = len(self.datagrams)
        whole = self.length == count * self.size
        if not whole or size > self.size or count >= MOST_DATAGRAMS or self.length + size > MOST_BYTES:
            return False
        self.datagrams.append(datagram)
        self.length += size
        return True


def bursts(datagrams: list[bytes]) -> list[Burst]:
    """All of them in their order, in as few bursts as that allows."""
    found: list[Burst] = []
    last: Burst | None = None
    for datagram in datagrams:
        if last is None or not last.add(datagram):
            last = Burst(datagram)
            found.append(last)
    return found


def split(length: int, size: int) -> range:
    """Where the datagrams of a received burst begin: `size` bytes each, the last may be shorter."""
    return range(0, length, size if size > 0 else max(1, length))
