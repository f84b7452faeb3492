"""What one connection may bring in one turn of the event loop, so that the others have their turn.

libuv reads a socket up to 32 times before it looks at the next one, as long as each read fills its buffer.
Of a client that sends as fast as it can, that is 8 to 32 MB, and others waited 50 to 100 ms for an answer.
"""

from __future__ import annotations

from typing import Final

RATION_BYTES: Final = 1 << 20


class Ration:
    """One connection's. A turn is told by the loop's clock, which stands still in it."""

    __slots__ = ("_at", "_left", "_most")

    def __init__(self, most: int = RATION_BYTES) -> None:
        """`most`: bytes in one turn."""
        self._most = most
        self._left = most
        self._at = 0.0

    def eaten(self, size: int, now: float) -> bool:
        """`size` bytes were read at `now`, by the loop's clock. Whether the rest has to wait for the next
        turn: then the next call restarts.
        """
        if now != self._at:
            self._at = now
            self._left = self._most
        self._left -= size
        if self._left > 0:
            return False
        self._left = self._most
        return True
