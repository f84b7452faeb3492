"""How long this host waits for a word of others: longer while machines are so busy that it waits in vain."""

from __future__ import annotations

from typing import Final

from .settings import ChannelSettings

_MOST: Final = 4.0
_FACTOR: Final = 2.0


class Patience:
    """How many times the settings' times others may take, from 1 to 4.

    It doubles with each connection that ended because nothing was heard, as ending it helps nobody where the
    other end is only slow; without such an end for `patience_for` seconds it is halved again.
    """

    def __init__(self, settings: ChannelSettings) -> None:
        self._settings = settings
        self._value = 1.0
        self._since = 0.0

    def in_vain(self, now: float) -> None:
        """A connection ended for silence. Several that end together are one sign."""
        if self._value == 1.0 or now - self._since >= self._settings.silent_after:
            self._value = min(_MOST, self._value * _FACTOR)
            self._since = now

    def now(self, now: float) -> float:
        if self._value > 1.0 and now - self._since >= self._settings.patience_for:
            self._value /= _FACTOR
            self._since = now
        return self._value
