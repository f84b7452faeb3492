"""The bytes that one connection may deliver in one turn of the event loop, so that the others have their
turn.

libuv reads a socket up to 32 times before it continues with the next one, as long as each read fills its
buffer. From a client that sends at full speed, that is 8 to 32 MB, and others waited 50 to 100 ms for an
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RATION_BYTES: Final = 1 << 20
_READS: Final = 32  # maximum of one connection in a turn


class Ration:
    """The ration of one connection. A callback of the loop begins the next turn: the loop's clock does not
    tell turns apart, since it moves on within a turn.
    """

    __slots__ = ("_begun", "_left", "_most", "_soon", "free")

    def __init__(self, soon: Callable[[Callable[[], None]], object], most: int = RATION_BYTES) -> None:
        """`soon`: calls its argument in the next pass of the loop, before sockets are read again. `most`:
        bytes per turn.
        """
        self._soon = soon
        self._most = most
        self.free = most // _READS  # bytes of a read that need not be counted
        self._left = most
        self._begun = False  # bytes of this turn are counted

    def eaten(self, size: int) -> bool:
        """Counts `size` bytes read. Returns whether the rest must wait for the next turn; the caller then
        stops reading until the next pass of the loop.
        """
        if not self._begun:
            self._begun = True
            self._soon(self._renew)
        self._left -= size
        return self._left <= 0

    def _renew(self) -> None:
        self._begun = False
        self._left = self._most
