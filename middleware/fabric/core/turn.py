"""The sending budget of a host for one turn of its event loop, for all streams together.

Everything else in the loop waits for a turn to end. Live data, repairs and replays therefore each share a
fixed budget per turn, however many streams and hosts there are. Resending a message costs more than its
bytes: a small message takes as much processor time as 8 KiB of a large one (measured: 45 us, and 0.35 ms for
64 KiB).

Replays also share the link: while live data waits for receivers, they may send a share of its bytes, and at
least a floor. Otherwise slow receivers would take the link from the others.
"""

from __future__ import annotations

from typing import Final

from .pacing import Paths
from .pairs import Pairs

OF_MESSAGE: Final = 8192  # bytes that cost as much as one more message
SHARE: Final = 0.25  # replayed bytes per live byte while live data waits
FLOOR: Final = 1e6  # replayed bytes per second in any case
_LEAST_OF_STREAM: Final = 32 * 1024  # bytes
_SAVED: Final = 256.0 * 1024  # maximum saved share
_RECENT: Final = 0.05  # seconds: live data that waited this recently counts as waiting
STOOD: Final = 0.2  # seconds of delay in a host's own work that show that it was stopped


class Turn:
    """The remaining bytes of this turn for `live`, `repairs` and `replays`; exhausted at 0 or less."""

    __slots__ = (
        "_at",
        "_counted",
        "_most",
        "_most_live",
        "_share",
        "_waited",
        "live",
        "of_stream",
        "pairs",
        "paths",
        "repairs",
        "replays",
        "stood",
    )

    def __init__(self, most: int, most_live: int, pairs: Pairs | None = None) -> None:
        """`most`: bytes for replays, and as many for repairs. `pairs`: None: no stream rests."""
        self.pairs = pairs
        self.paths = Paths()  # to other hosts, as measured by all streams of this one
        self._most = most
        self._most_live = most_live
        self.live = most_live  # whoever sends live data takes its bytes off
        self._counted = most_live  # `live` when its bytes were last added to the share
        self.of_stream = most_live  # live bytes that one stream may send, so that all get their turn
        self.repairs = most
        self.replays = most
        self._share = _SAVED  # bytes that replays may still send beside live data
        self._waited = -1e18  # when live data last waited
        self._at = -1e18
        # Until when this host was stopped, or had no processor, the last time: its work was overdue. What
        # arrived meanwhile waited in its sockets, and says nothing about a path.
        self.stood = -1e18

    def stood_lately(self, now: float) -> bool:
        """Whether sockets may still hold what arrived while the host was stopped."""
        return now - self.stood < STOOD

    def begin(self, now: float, streams: int = 1) -> None:
        """Begins a turn in which `streams` streams may have something to send."""
        self._add_to_share()
        self.live = self._counted = self._most_live
        self.of_stream = max(min(_LEAST_OF_STREAM, self._most_live), self._most_live // max(streams, 1))
        self.repairs = self._most
        self._share = min(_SAVED, self._share + FLOOR * max(0.0, min(now - self._at, 1.0)))
        self._at = now
        if self.shares(now):
            self.replays = min(self._most, int(self._share))
        else:
            self.replays = self._most
            self._share = max(self._share, 0.0)  # bytes that nothing waited behind are no debt

    def _add_to_share(self) -> None:
        """Adds the live bytes sent since the last call to what replays may send."""
        self._share = min(_SAVED, self._share + SHARE * (self._counted - self.live))
        self._counted = self.live

    def replayed(self, size: int) -> None:
        """Accounts for replayed bytes."""
        self._add_to_share()
        self._share -= size

    def live_waits(self, now: float) -> None:
        """Notes that live data is waiting."""
        self._waited = now

    def shares(self, now: float) -> bool:
        """Whether replays are limited to their share now."""
        return now - self._waited < _RECENT

    def replays_at(self, now: float) -> float:
        """When replays may send something."""
        self._add_to_share()
        if self._share > 0 or not self.shares(now):
            return now
        return now + min(_RECENT, (1 - self._share) / FLOOR)

    @property
    def over(self) -> bool:
        """Whether a stream may have to wait for the next turn."""
        return self.live <= 0 or self.repairs <= 0 or self.replays <= 0
