"""The standing of a host in a group: whether the group is known to reach it.

A host is reached once it has answered a probe. A host that was cut off, or has stopped answering, is out and
gets unicast. It returns when it has answered `answers` probes in a row and was out for its time. That time
doubles whenever the host is lost again soon after a return, so that a group that works now and then does not
swing between its carrier and unicast.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from treecast.middleware.model.timers import NEVER

from .core.states import StandingEvent, StandingState, standing_step

# A host that is lost again within the greater of these was not really back: seconds, and times the last time
# out. Switches forget a membership after 260 s (RFC 3376).
_SOON: Final = 300.0
_TIMES: Final = 10


class StandingSettings(Struct, frozen=True):
    """Times in seconds."""

    answers: int = 3  # in a row that a host which was out has to give
    missed: int = 3  # in a row that a reached host may leave out
    out: float = 5.0  # minimum time out; doubles ...
    out_longest: float = 600.0  # ... up to this


class Standing:
    """One host. `why`: why it is out; empty otherwise. `since`: when it was reached, or lost, or began."""

    __slots__ = (
        "_answered",
        "_back_at",
        "_missed",
        "_out",
        "_returned",
        "_settings",
        "since",
        "state",
        "why",
    )

    def __init__(self, settings: StandingSettings, now: float) -> None:
        self.state = StandingState.NEW
        self.why = ""
        self.since = now
        self._settings = settings
        self._answered = 0  # in a row
        self._missed = 0
        self._out = 0.0  # how long it was out at least, the last time
        self._back_at = -NEVER
        self._returned = -NEVER

    @property
    def reached(self) -> bool:
        return self.state is StandingState.REACHED

    @property
    def lost(self) -> bool:
        """Whether it was reached before, and is not now."""
        return self.state in (StandingState.OUT, StandingState.RETURNING)

    def asks(self, now: float) -> float:
        """Seconds between two questions to a host that is out: 0 if it may return as soon as it has answered
        often enough, else the more the longer it is out. NEVER: it needs no questions of its own."""
        if self.state is StandingState.OUT:
            return max(self._settings.out, now - self.since)
        return 0.0 if self.state is StandingState.RETURNING and now >= self._back_at else NEVER

    def asked(self, now: float, *, counts: bool = True) -> bool:
        """Notes that it is asked once more. Returns whether it is lost by that. `counts`: an earlier question
        that it has not answered counts against a reached host."""
        self._missed += counts or self.state is not StandingState.REACHED
        if self._missed <= self._settings.missed:
            return False
        was = self.reached
        self._lose(StandingEvent.QUIET, "it has stopped answering probes", now)
        return was

    def answered(self, now: float) -> bool:
        """Notes that it has answered. Returns whether it is reached by that."""
        was = self.reached
        self._missed = 0
        self._answered += 1
        self._step(StandingEvent.ANSWERED, now)
        if self._answered >= self._settings.answers and now >= self._back_at and self.lost:
            self._step(StandingEvent.PROVEN, now)
        if self.reached and not was:
            self.why, self._returned = "", now
        return self.reached and not was

    def cut_off(self, why: str, now: float) -> bool:
        """Notes that what is sent to the group does not arrive. Returns whether it is lost by that."""
        was = self.reached
        self._lose(StandingEvent.CUT_OFF, why, now)
        return was

    def begins_anew(self, now: float) -> None:
        """Notes that the host has joined again, and may be another run. Its next time out is kept."""
        self.state, self.since, self.why = StandingState.NEW, now, ""
        # `_out` and `_back_at` stay: a host that restarts does not make a bad path better.
        self._answered = self._missed = 0

    def _lose(self, event: StandingEvent, why: str, now: float) -> None:
        if self.reached:
            settings, held = self._settings, now - self._returned
            # Measured against its last time out: a host that was out for long has to hold for long.
            again = held < max(_SOON, _TIMES * self._out)
            self._out = min(2 * self._out, settings.out_longest) if again and self._out else settings.out
            self._back_at = now + self._out
            self.why = why
        self._answered = self._missed = 0
        self._step(event, now)

    def _step(self, event: StandingEvent, now: float) -> None:
        before, was_lost = self.state, self.lost
        self.state = standing_step(before, event)
        if self.state is not before and not (was_lost and self.lost):
            self.since = now
