"""What a host sends in one turn of its event loop, of all its streams together.

Whoever else the loop serves waits for a turn to end. So live data, repairs and replays each share what one
turn may cost, however many streams and hosts there are. A message that is sent again costs more than its
bytes: a small one takes the processor as long as 8 KiB of a large one (measured: 45 us, and 0.35 ms for 64
KiB).

Replays also share the link: while live data waits for receivers, they may send a share of its bytes, and no
less than a floor. Otherwise who is slow would take the link from those who are not.
"""

from __future__ import annotations

from typing import Final

from .pacing import Paths

OF_MESSAGE: Final = 8192  # bytes that are as dear as that there is one message more
SHARE: Final = 0.25  # replayed bytes for each live one, while live data waits
FLOOR: Final = 1e6  # replayed bytes per second in any case
_LEAST_OF_STREAM: Final = 32 * 1024  # bytes
_SAVED: Final = 256.0 * 1024  # of the share, at most
_RECENT: Final = 0.05  # seconds: live data that waited so lately counts as waiting


class Turn:
    """What is left of this turn, in bytes: of `live`, `repairs` and `replays`; none where it is 0 or less."""

    __slots__ = (
        "_at",
        "_most",
        "_most_live",
        "_share",
        "_waited",
        "live",
        "of_stream",
        "paths",
        "repairs",
        "replays",
    )

    def __init__(self, most: int, most_live: int) -> None:
        """`most`: of replays, and as much of repairs."""
        self.paths = Paths()  # to other hosts, as all streams of this one have found them
        self._most = most
        self._most_live = most_live
        self.live = most_live
        self.of_stream = most_live  # live bytes that one stream may send, so that all have their turn
        self.repairs = most
        self.replays = most
        self._share = _SAVED  # bytes that replays may still have beside live data
        self._waited = -1e18  # when live data waited last
        self._at = -1e18

    def begin(self, now: float, streams: int = 1) -> None:
        """The next one, in which so many streams may have something to send."""
        self.live = self._most_live
        self.of_stream = max(min(_LEAST_OF_STREAM, self._most_live), self._most_live // max(streams, 1))
        self.repairs = self._most
        self._share = min(_SAVED, self._share + FLOOR * max(0.0, min(now - self._at, 1.0)))
        self._at = now
        if self.shares(now):
            self.replays = min(self._most, int(self._share))
        else:
            self.replays = self._most
            self._share = max(self._share, 0.0)  # what nobody waited behind is no debt

    def sent_live(self, size: int) -> None:
        """So many bytes of what goes to all were sent."""
        self.live -= size
        self._share = min(_SAVED, self._share + SHARE * size)

    def replayed(self, size: int) -> None:
        """So many bytes were replayed."""
        self._share -= size

    def live_waits(self, now: float) -> None:
        """There is live data that may not be sent yet."""
        self._waited = now

    def shares(self, now: float) -> bool:
        """Whether replays are bound to their share now."""
        return now - self._waited < _RECENT

    def replays_at(self, now: float) -> float:
        """When replays may send something."""
        if self._share > 0 or not self.shares(now):
            return now
        return now + min(_RECENT, (1 - self._share) / FLOOR)

    @property
    def over(self) -> bool:
        """Whether somebody may have to wait for the next."""
        return self.live <= 0 or self.repairs <= 0 or self.replays <= 0
