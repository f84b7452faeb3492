"""Whether a group is worth the state that it takes in the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treecast.middleware.model.timers import NEVER

if TYPE_CHECKING:
    from .carrier_group import CarrierSettings


class GroupRate:
    """The rate of a group's live records."""

    def __init__(self, sent: int, now: float) -> None:
        self._sent = sent  # bytes, at the last check
        self._at = now
        self._enough = -NEVER  # when the rate was last high enough

    def look(self, sent: int, settings: CarrierSettings, now: float) -> bool:
        """Whether the rate justifies a group, or keeping one. `sent` falls when a stream ends."""
        if now > self._at:
            if max(0, sent - self._sent) >= settings.earns * (now - self._at):
                self._enough = now
            self._sent, self._at = sent, now
        return now - self._enough < settings.keeps
