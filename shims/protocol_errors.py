"""Protocol errors of a face's clients: counted by kind, logged at a limited rate."""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.logs import Log

REPORT_SECONDS: Final = 10.0  # each kind is logged once per interval, with the number not logged before
_MAX_KINDS: Final = 100  # kinds counted by name; any further ones are counted together


class ProtocolErrors:
    """Counts a face's protocol errors, and logs at most one of each kind per `REPORT_SECONDS`."""

    def __init__(self, counted: dict[str, int], log: Log) -> None:
        self._counted = counted
        self._log = log
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def count(self, kind: str) -> str:
        """Counts an error without logging it. Returns the kind as which it was counted."""
        if kind not in self._counted and len(self._counted) >= _MAX_KINDS:
            kind = "other"
        self._counted[kind] = self._counted.get(kind, 0) + 1
        return kind

    def add(self, now: float, kind: str, peer: str, reason: str) -> None:
        """Counts an error of `kind` and logs that `peer` was closed for `reason`. `now` is in seconds."""
        kind = self.count(kind)
        if now - self._last.get(kind, -REPORT_SECONDS) < REPORT_SECONDS:
            self._held[kind] = self._held.get(kind, 0) + 1
            return
        self._last[kind] = now
        held = self._held.pop(kind, None)
        self._log.warning("connection closed", peer=peer, reason=reason, left_out=held)
