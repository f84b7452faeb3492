"""The capacity of a host's sockets, shared among the streams that it receives.

All streams arrive at the same sockets, so the data that all their origins have in flight to this host must
fit into them together. Each stream in use gets an equal share, and reports no more room than that.
"""

from __future__ import annotations

from typing import Final

_IN_USE: Final = 1.0  # seconds after the last segment
_LOOK: Final = 0.25  # seconds between counts
_LEAST: Final = 16 * 1024  # minimum bytes of a share, whatever the number of streams


class Room:
    """`total` bytes, shared among the streams that have recently reported being in use."""

    __slots__ = ("_counted", "_seen", "_share", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self._seen: dict[tuple[int, int, int], float] = {}
        self._share = total
        self._counted = -1e18

    def used(self, stream: tuple[int, int, int], now: float) -> None:
        """Notes that data of `stream` has arrived."""
        new = stream not in self._seen
        self._seen[stream] = now
        if new or now - self._counted >= _LOOK:
            self._count(now)

    def _count(self, now: float) -> None:
        self._counted = now
        self._seen = {stream: at for stream, at in self._seen.items() if now - at < _IN_USE}
        self._share = max(_LEAST, self.total // max(1, len(self._seen)))

    @property
    def share(self) -> int:
        """Bytes for each stream in use."""
        return self._share
