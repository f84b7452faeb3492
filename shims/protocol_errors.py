"""Clients that break a face's protocol: counted by kind, logged without flooding."""

from __future__ import annotations

import logging
from typing import Final

REPORT_SECONDS: Final = 10.0  # each kind is logged once in this time, with how often it came
_MAX_KINDS: Final = 100  # counted by name; later ones are counted together


class ProtocolErrors:
    """Adds to a face's counters, and logs the first of each kind in a while."""

    def __init__(self, counted: dict[str, int], log: logging.Logger) -> None:
        self._counted = counted
        self._log = log
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def count(self, kind: str) -> str:
        """Counts one that is not to be logged; answers the kind that it was counted as."""
        if kind not in self._counted and len(self._counted) >= _MAX_KINDS:
            kind = "other"
        self._counted[kind] = self._counted.get(kind, 0) + 1
        return kind

    def add(self, now: float, kind: str, peer: str, reason: str) -> None:
        """`peer` was closed for `reason`, which is of `kind`. `now` in seconds."""
        kind = self.count(kind)
        if now - self._last.get(kind, -REPORT_SECONDS) < REPORT_SECONDS:
            self._held[kind] = self._held.get(kind, 0) + 1
            return
        self._last[kind] = now
        held = self._held.pop(kind, 0)
        more = f" ({held} more of this kind before)" if held else ""
        self._log.warning("closed %s: %s%s", peer, reason, more)
