"""A host's subscriptions with its switch: SUB-register and SUB-remove, repeated until SUB-ack.

                     want                          ack
    (nothing) ---------------> REGISTERING ---------------> REGISTERED
        ^                        |    ^  \\                    |    |
        |                 unwant |    |   \\ tries used up     |    | refresh: again REGISTERING
        | ack, or         want   v    |    v                  |    |
        +--------------------- REMOVING   UNANSWERED <--------|----+   (asks on, once per refresh)
          tries used up          ^_________/  unwant _________/

The acknowledgement repeats the request's number (14 bits, in the header's update number), so a late
acknowledgement of an earlier request is recognised. The numbers of a state's requests rise by one, so a
switch can tell which of two is later, regardless of requests for other states. The count continues for a
while after the state is forgotten, for the same reason. In a network without STARE switches nobody answers;
the subscription becomes UNANSWERED and uses plain multicast.

A user with very many subscriptions can refresh them in rounds instead of by a timer each (`settings.round`).
"""

from __future__ import annotations

import enum
import math
from typing import Final

from msgspec import Struct

from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.stare import LAST_UPDATE, StareHeader, StareKind

from .recent import LATE, Recent
from .settings import StareSettings
from .timers import Random, Timers, Wait

_ROUND_STEP: Final = 1.0  # seconds


class SubState(enum.Enum):
    """The subscription of one state id."""

    REGISTERING = "registering"
    REGISTERED = "registered"
    UNANSWERED = "unanswered"
    REMOVING = "removing"


class SubEvent(enum.Enum):
    """An event of a subscription."""

    WANT = "the first local subscriber"
    UNWANT = "the last local subscriber has gone"
    ACK = "the switch has acknowledged this request"
    DUE = "the timer"
    TIRED = "the timer, and all tries are used up"


class _Do(enum.Enum):
    NOTHING = 0
    BEGIN = 1  # a new request
    AGAIN = 2  # the same request
    REST = 3  # wait for the next refresh
    FORGET = 4


_S, _E, _D = SubState, SubEvent, _Do

# Every pair of state and event.
TRANSITIONS: Final[dict[SubState, dict[SubEvent, tuple[SubState, _Do]]]] = {
    _S.REGISTERING: {
        _E.WANT: (_S.REGISTERING, _D.NOTHING),
        _E.UNWANT: (_S.REMOVING, _D.BEGIN),
        _E.ACK: (_S.REGISTERED, _D.REST),
        _E.DUE: (_S.REGISTERING, _D.AGAIN),
        _E.TIRED: (_S.UNANSWERED, _D.REST),
    },
    _S.REGISTERED: {
        _E.WANT: (_S.REGISTERED, _D.NOTHING),
        _E.UNWANT: (_S.REMOVING, _D.BEGIN),
        _E.ACK: (_S.REGISTERED, _D.NOTHING),
        # A refresh has a number of its own: a late answer to the request before must not stand for it.
        _E.DUE: (_S.REGISTERING, _D.BEGIN),
        _E.TIRED: (_S.REGISTERING, _D.BEGIN),
    },
    _S.UNANSWERED: {
        _E.WANT: (_S.UNANSWERED, _D.NOTHING),
        _E.UNWANT: (_S.REMOVING, _D.BEGIN),
        _E.ACK: (_S.REGISTERED, _D.REST),
        # The same number each time, so that a late answer to any of these requests counts.
        _E.DUE: (_S.UNANSWERED, _D.AGAIN),
        _E.TIRED: (_S.UNANSWERED, _D.AGAIN),
    },
    _S.REMOVING: {
        _E.WANT: (_S.REGISTERING, _D.BEGIN),
        _E.UNWANT: (_S.REMOVING, _D.NOTHING),
        _E.ACK: (_S.REMOVING, _D.FORGET),
        _E.DUE: (_S.REMOVING, _D.AGAIN),
        _E.TIRED: (_S.REMOVING, _D.FORGET),
    },
}

_KNOWN: Final = {_E.ACK: True, _E.UNWANT: False, _E.TIRED: False}


class _Entry(Struct, gc=False):  # without references; there may be a million
    state: SubState
    number: int  # of the last request; before the first, the number that it follows
    tries: int = 0
    known: bool = False  # acknowledged by the switch since it was last wanted


class SubChange(Struct, frozen=True):
    """The new state of a subscription; None if it has ended."""

    state_id: int
    state: SubState | None


class Subscriptions:
    """All subscriptions of a host. The user takes and empties `changes` and `requests`."""

    def __init__(self, settings: StareSettings, random: Random) -> None:
        self.changes: list[SubChange] = []
        self.requests: list[StareHeader] = []  # to the group of their kind and state
        self._entries: dict[int, _Entry] = {}
        self._timers: Timers[int] = Timers()
        self._settings = settings
        self._wait = Wait(settings.resend_first, settings.resend_longest, settings.spread, random)
        # last numbers of forgotten states, kept longer than a switch keeps them
        self._ended = Recent(4 * LATE)
        self._random = random
        self._round: list[int] = []  # states not yet registered again in this round
        self._round_due = self._step_due = NEVER

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def waiting(self) -> bool:
        """Whether a request other than a refresh waits for its acknowledgement."""
        busy = (SubState.REGISTERING, SubState.REMOVING)
        return any(entry.state in busy and not entry.known for entry in self._entries.values())

    def state(self, state_id: int) -> SubState | None:
        """Returns the state of a subscription; None if there is none."""
        entry = self._entries.get(state_id)
        return None if entry is None else entry.state

    def want(self, state_id: int, now: float) -> None:
        """Subscribes to a state. Does nothing if it is subscribed already."""
        if state_id in self._entries:
            self._step(state_id, SubEvent.WANT, now)
            return
        number = self._ended.get(state_id, now)
        if number is None:
            number = int(self._random.random() * (LAST_UPDATE + 1))  # differs from the one before a restart
        if not self._entries and self._settings.round and self._round_due == NEVER:
            self._round_due = self._step_due = now + self._settings.round
        entry = self._entries[state_id] = _Entry(SubState.REGISTERING, number)
        self.changes.append(SubChange(state_id, entry.state))
        self._begin(state_id, entry, now)

    def unwant(self, state_id: int, now: float) -> None:
        """Ends the subscription to a state, if there is one."""
        if state_id in self._entries:
            self._step(state_id, SubEvent.UNWANT, now)

    def acknowledged(self, header: StareHeader, now: float) -> bool:
        """Takes a SUB-ack. Returns False if it matches no current request."""
        entry = self._entries.get(header.state)
        if entry is None or entry.number != header.update:
            return False
        self._step(header.state, SubEvent.ACK, now)
        return True

    def farewell(self) -> list[StareHeader]:
        """Returns a SUB-remove for each state. The host leaves without waiting for answers."""
        return [
            # A number of its own: of two requests, a switch takes the higher for the later.
            StareHeader(StareKind.SUB_REMOVE, state_id, 0, (e.number + 1) & LAST_UPDATE)
            for state_id, e in self._entries.items()
        ]

    def work(self, now: float) -> None:
        """Sends what is due."""
        for state_id in self._timers.due(now):
            entry = self._entries[state_id]
            tired = entry.tries >= self._settings.resend_tries
            self._step(state_id, SubEvent.TIRED if tired else SubEvent.DUE, now)
        if now >= self._step_due < NEVER:
            self._ask_again(now)

    def _ask_again(self, now: float) -> None:
        """Takes a step of a round, which registers each state again once."""
        if now >= self._round_due and not self._round:
            self._round = list(self._entries)
            self._round_due = now + self._settings.round
        share = math.ceil(len(self._entries) * _ROUND_STEP / self._settings.round)
        for state_id in self._round[: -share - 1 : -1]:
            if self.state(state_id) is SubState.REGISTERED:
                self._step(state_id, SubEvent.DUE, now)
        del self._round[-share:]
        self._step_due = now + _ROUND_STEP if self._round else self._round_due

    def next_deadline(self) -> float:
        return min(self._timers.next(), self._step_due)

    def _step(self, state_id: int, event: SubEvent, now: float) -> None:
        entry = self._entries[state_id]
        before = entry.state
        entry.state, do = TRANSITIONS[before][event]
        entry.known = _KNOWN.get(event, entry.known)
        match do:
            case _Do.BEGIN:
                self._begin(state_id, entry, now)
            case _Do.AGAIN:
                self._send(state_id, entry, now)
            case _Do.REST:
                self._rest(state_id, entry, now)
            case _Do.FORGET:
                del self._entries[state_id]
                self._ended.put(state_id, entry.number, now)
                self._timers.clear(state_id)
                self.changes.append(SubChange(state_id, None))
                return
            case _Do.NOTHING:
                pass
        if entry.state is not before:
            self.changes.append(SubChange(state_id, entry.state))

    def _begin(self, state_id: int, entry: _Entry, now: float) -> None:
        entry.number = (entry.number + 1) & LAST_UPDATE
        entry.tries = 0
        self._send(state_id, entry, now)

    def _send(self, state_id: int, entry: _Entry, now: float) -> None:
        removing = entry.state is SubState.REMOVING
        kind = StareKind.SUB_REMOVE if removing else StareKind.SUB_REGISTER
        self.requests.append(StareHeader(kind, state_id, 0, entry.number))
        if entry.state is SubState.UNANSWERED:
            self._rest(state_id, entry, now)
        else:
            self._timers.set(state_id, now + self._wait.after(entry.tries))
            entry.tries += 1

    def _rest(self, state_id: int, entry: _Entry, now: float) -> None:
        entry.tries = 0
        if self._settings.refresh:
            self._timers.set(state_id, now + self._wait.spread(self._settings.refresh))
        else:
            self._timers.clear(state_id)

    def check_invariants(self) -> None:
        """For tests: each subscription that waits for an answer has a timer."""
        for state_id, entry in self._entries.items():
            if entry.state in (SubState.REGISTERING, SubState.REMOVING):
                assert state_id in self._timers, (state_id, entry)
        assert set(TRANSITIONS) == set(SubState)
        assert all(set(row) == set(SubEvent) for row in TRANSITIONS.values())
