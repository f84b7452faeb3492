"""Announcements to the replica controller, repeated until answered: wanted states, published pairs, VNFs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from treecast.middleware.wire.stare_signals import MOST_ENTRIES, Signal, SignalKind

from .published import Pair
from .settings import StareSettings
from .timers import Random, Timers, Wait


class About(enum.Enum):
    """The subject of an announcement. The comment gives the other part of its key."""

    WANT = SignalKind.WANT  # state
    TAIL = SignalKind.TAIL  # (state, VNF)
    OPEN = SignalKind.OPEN  # token
    CLOSED = SignalKind.CLOSED  # VNF


Key = tuple[About, int | Pair]


_RESTING: Final = -1


class Announcements:
    """The announcements of one host by key, each with its timer."""

    def __init__(self, settings: StareSettings, random: Random) -> None:
        self._timers: Timers[Key] = Timers()
        self._attempts: dict[Key, int] = {}
        self._refresh = settings.refresh
        self._wait = Wait(settings.signal_first, settings.signal_longest, settings.spread, random)

    def tell(self, about: About, what: int | Pair, now: float) -> None:
        """Announces at the next `due`, and again until `answered`."""
        key = about, what
        self._attempts[key] = 0
        self._timers.set(key, now)

    def tell_later(self, about: About, what: int | Pair, now: float) -> None:
        """Like `tell`, but after a wait. A running announcement is left unchanged."""
        key = about, what
        if key not in self._attempts:
            self._attempts[key] = 0
            self._timers.set(key, now + self._wait.after(0))

    def answered(self, about: About, what: int | Pair) -> bool:
        """Ends an announcement. Returns whether there was one."""
        key = about, what
        self._timers.clear(key)
        return self._attempts.pop(key, None) is not None

    def settled(self, about: About, what: int | Pair) -> bool:
        """Whether nothing is outstanding: it was answered, or never announced."""
        return self._attempts.get((about, what), _RESTING) == _RESTING

    def rest(self, about: About, what: int | Pair, now: float) -> None:
        """Marks an announcement as answered and repeats it after `refresh`: the controller may lose state."""
        key = about, what
        if self._refresh and key in self._attempts:
            self._attempts[key] = _RESTING
            self._timers.set(key, now + self._wait.spread(self._refresh))
        else:
            self.answered(about, what)

    def due(self, now: float, signal: Callable[[About, list[int | Pair]], Signal]) -> list[Signal]:
        """Returns the signals to send now. `signal` builds one from due keys of one kind."""
        by_kind: dict[About, list[int | Pair]] = {}
        for key in self._timers.due(now):
            attempts = max(self._attempts[key], 0)
            self._attempts[key] = attempts + 1
            self._timers.set(key, now + self._wait.after(attempts))
            by_kind.setdefault(key[0], []).append(key[1])
        return [
            signal(about, keys[at : at + MOST_ENTRIES])
            for about, keys in by_kind.items()
            for at in range(0, len(keys), MOST_ENTRIES)
        ]

    def next_deadline(self) -> float:
        return self._timers.next()

    def __len__(self) -> int:
        """Returns the number of unanswered announcements."""
        return sum(attempts >= 0 for attempts in self._attempts.values())
