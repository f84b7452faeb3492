"""The bytes that one connection may deliver in one turn of the event loop, so that the others have their
turn.

libuv reads a socket up to 32 times before it continues with the next one, as long as each read fills its
buffer. From a client that sends at full speed, that is 8 to 32 MB, and others waited 50 to 100 ms for an
answer.
"""

from __future__ import annotations

from typing import Final

RATION_BYTES: Final = 1 << 20
_READS: Final = 32  # maximum of one connection in a turn


class Ration:
    """The ration of one connection. The loop's clock, which stands still during a turn, identifies
    the turn.
    """

    __slots__ = ("_at", "_left", "_most", "free")

    def __init__(self, most: int = RATION_BYTES) -> None:
        """`most`: bytes per turn."""
        self._most = most
        self.free = most // _READS  # bytes of a read that need not be counted
        self._left = most
        self._at = 0.0

    def eaten(self, size: int, now: float) -> bool:
        """Counts `size` bytes read at `now`, by the loop's clock. Returns whether the rest must wait for the
        next turn; the next call then starts a new ration.
        """
        if now != self._at:
            self._at = now
            self._left = self._most
        self._left -= size
        if self._left > 0:
            return False
        self._left = self._most
        return True
