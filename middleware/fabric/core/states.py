"""State tables of a receiver, of a receiver as seen by its sender, and of a host as a carrier reaches it.

An entry is the next state (the same state: no change), or `None`: the event cannot happen in that state, and
`step` raises. Every pair of state and event has an entry.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from treecast.middleware.model.transitions import transitions


class ReceiverState(enum.Enum):
    LIVE = "receives, and asks for what is missing"
    CATCHING_UP = "is too far behind, and is replayed to"
    ORPHANED = "hears nothing of the origin, and asks other holders"
    DONE = "the stream is closed, and all of it is settled"


class ReceiverEvent(enum.Enum):
    FALL_BEHIND = "more is missing than live delivery can repair"
    CATCH_UP = "it is near the end again"
    ORIGIN_SILENT = "the origin has been silent for too long"
    ORIGIN_HEARD = "a segment of the origin arrives"
    COMPLETE = "the stream is closed, and all of it is settled"


class PeerState(enum.Enum):
    LIVE = "gets what is sent to all"
    CATCHING_UP = "is replayed to by unicast"
    SILENT = "has not reported for long, so nothing is sent to it and nobody waits for it"


class PeerEvent(enum.Enum):
    NEAR = "it reports, and is near the end"
    FAR = "it reports, and is far behind"
    REPLAYED = "all has been replayed to it"
    SLOW = "the others wait for it alone for most of the time"
    SILENCE = "it has not reported for too long"


class ArrivalState(enum.Enum):
    ARRIVES = "what a carrier sends to all arrives at the host"
    MISSED = "nothing of it has arrived, although the host reports"
    MISSED_TWICE = "the same twice in a row"
    CUT_OFF = "the same three times in a row: the carrier does not reach the host"


class ArrivalEvent(enum.Enum):
    ARRIVED = "the host reports that something sent to all has arrived"
    NOTHING = "it reports, and nothing sent to all has arrived since"


class StandingState(enum.Enum):
    NEW = "it has not answered a probe yet"
    REACHED = "it gets what is sent to the group"
    OUT = "the group did not reach it: it gets unicast"
    RETURNING = "it answers probes again, and still gets unicast"


class StandingEvent(enum.Enum):
    ANSWERED = "it answers a probe"
    PROVEN = "it has answered often enough, and was out for long enough"
    QUIET = "it has left too many probes unanswered"
    CUT_OFF = "what is sent to the group does not arrive at it"


class PaceState(enum.Enum):
    OPENING = "the window doubles with every round"
    STEADY = "it grows by a step with every round"
    HELD = "it was made smaller, and stays so for one round"


class PaceEvent(enum.Enum):
    REACHED = "it is as large as it may be, or as where losses began"
    LOSS = "more was lost than the path always loses"
    LATE = "all that arrived in a round has waited in a queue on its way"
    TURN = "a round has passed since it was made smaller"
    CLEARED = "losses have stopped it while it opened, and were not its fault"
    STALL = "nothing has arrived for long"


class PathState(enum.Enum):
    """The search for a path's longest packet. RFC 8899 has the names DISABLED, -, BASE, SEARCHING,
    SEARCH_COMPLETE and ERROR."""

    WAITING = "the host cannot be reached: nothing is sent"
    CHECKING = "whether packets of the size in use arrive"
    BASE = "whether the shortest arrive"
    SEARCHING = "for the longest that arrive"
    COMPLETE = "the size in use is the longest that arrive; it is checked from time to time"
    NARROW = "not even the shortest arrive"


class PathEvent(enum.Enum):
    REACHED = "there is a channel to the host"
    LEFT = "there is none any longer"
    ANSWERED = "a probe has arrived"
    UNANSWERED = "none of several probes of one size has arrived"
    FOUND = "the longest that arrive are known well enough"
    SUSPECT = "data of the size in use seems not to arrive"
    CHECK = "it is time to check the size in use"
    RAISE = "it is time to look whether longer packets arrive by now"


_R, _E = ReceiverState, ReceiverEvent
LIVE, CATCHING_UP, ORPHANED, DONE = ReceiverState

# event: (in LIVE, CATCHING_UP, ORPHANED, DONE)
_RECEIVER_ROWS: dict[ReceiverEvent, tuple[ReceiverState | None, ...]] = {
    _E.FALL_BEHIND: (CATCHING_UP, CATCHING_UP, ORPHANED, None),
    _E.CATCH_UP: (LIVE, LIVE, ORPHANED, None),
    _E.ORIGIN_SILENT: (ORPHANED, ORPHANED, ORPHANED, DONE),
    # An orphan becomes live even if it was far behind before: the next segment shows its lag.
    _E.ORIGIN_HEARD: (LIVE, CATCHING_UP, LIVE, DONE),
    # Also of an orphan: members may bring the rest of a stream that was closed before its origin went.
    _E.COMPLETE: (DONE, DONE, DONE, DONE),
}

# event: (in LIVE, CATCHING_UP, SILENT)
_PEER_ROWS: dict[PeerEvent, tuple[PeerState | None, ...]] = {
    # Only `REPLAYED` ends a replay: data sent to all in the meantime was not sent to this receiver.
    PeerEvent.NEAR: (PeerState.LIVE, PeerState.CATCHING_UP, PeerState.CATCHING_UP),
    PeerEvent.FAR: (PeerState.CATCHING_UP, PeerState.CATCHING_UP, PeerState.CATCHING_UP),
    PeerEvent.REPLAYED: (None, PeerState.LIVE, None),
    PeerEvent.SLOW: (PeerState.CATCHING_UP, PeerState.CATCHING_UP, PeerState.SILENT),
    PeerEvent.SILENCE: (PeerState.SILENT, PeerState.SILENT, PeerState.SILENT),
}

# event: (in ARRIVES, MISSED, MISSED_TWICE, CUT_OFF)
_A = ArrivalState
_ARRIVAL_ROWS: dict[ArrivalEvent, tuple[ArrivalState | None, ...]] = {
    ArrivalEvent.ARRIVED: (_A.ARRIVES, _A.ARRIVES, _A.ARRIVES, _A.ARRIVES),
    ArrivalEvent.NOTHING: (_A.MISSED, _A.MISSED_TWICE, _A.CUT_OFF, _A.CUT_OFF),
}

# event: (in NEW, REACHED, OUT, RETURNING)
_S = StandingState
_STANDING_ROWS: dict[StandingEvent, tuple[StandingState | None, ...]] = {
    # The first answer is enough for a host that never was out: a group has to be ready before a burst.
    StandingEvent.ANSWERED: (_S.REACHED, _S.REACHED, _S.RETURNING, _S.RETURNING),
    StandingEvent.PROVEN: (None, None, None, _S.REACHED),
    StandingEvent.QUIET: (_S.NEW, _S.OUT, _S.OUT, _S.OUT),
    StandingEvent.CUT_OFF: (_S.NEW, _S.OUT, _S.OUT, _S.OUT),
}

# event: (in OPENING, STEADY, HELD)
_PACE_ROWS: dict[PaceEvent, tuple[PaceState | None, ...]] = {
    PaceEvent.REACHED: (PaceState.STEADY, None, None),
    PaceEvent.LOSS: (PaceState.HELD, PaceState.HELD, PaceState.HELD),
    PaceEvent.LATE: (PaceState.HELD, PaceState.HELD, PaceState.HELD),
    PaceEvent.TURN: (None, None, PaceState.STEADY),
    PaceEvent.CLEARED: (None, PaceState.OPENING, None),
    # As TCP after a time-out: the window opens again, up to half of what it was.
    PaceEvent.STALL: (PaceState.OPENING, PaceState.OPENING, PaceState.OPENING),
}

_P = PathState
# event: (in WAITING, CHECKING, BASE, SEARCHING, COMPLETE, NARROW)
_PATH_ROWS: dict[PathEvent, tuple[PathState | None, ...]] = {
    PathEvent.REACHED: (_P.CHECKING,) * 6,
    PathEvent.LEFT: (_P.WAITING,) * 6,
    # An answer may be late, of a probe that counted as lost.
    PathEvent.ANSWERED: (_P.WAITING, _P.COMPLETE, _P.SEARCHING, _P.SEARCHING, _P.COMPLETE, _P.SEARCHING),
    PathEvent.UNANSWERED: (None, _P.BASE, _P.NARROW, _P.SEARCHING, None, None),
    PathEvent.FOUND: (None, None, None, _P.COMPLETE, None, None),
    PathEvent.SUSPECT: (_P.WAITING, _P.CHECKING, _P.BASE, _P.SEARCHING, _P.CHECKING, _P.NARROW),
    PathEvent.CHECK: (None, None, None, None, _P.CHECKING, _P.BASE),
    PathEvent.RAISE: (None, None, None, None, _P.SEARCHING, None),
}

RECEIVER_TABLE = transitions(ReceiverState, _RECEIVER_ROWS)
PEER_TABLE = transitions(PeerState, _PEER_ROWS)
PACE_TABLE = transitions(PaceState, _PACE_ROWS)
PATH_TABLE = transitions(PathState, _PATH_ROWS)
ARRIVAL_TABLE = transitions(ArrivalState, _ARRIVAL_ROWS)
STANDING_TABLE = transitions(StandingState, _STANDING_ROWS)


S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class ImpossibleEvent(Exception):
    """An event that the table does not allow: a programming error."""


def _following(table: Mapping[S, Mapping[E, S | None]], state: S, event: E) -> S:
    following = table[state][event]
    if following is None:
        raise ImpossibleEvent(f"{event.name} in {state.name}")
    return following


def receiver_step(state: ReceiverState, event: ReceiverEvent) -> ReceiverState:
    return _following(RECEIVER_TABLE, state, event)


def peer_step(state: PeerState, event: PeerEvent) -> PeerState:
    return _following(PEER_TABLE, state, event)


def pace_step(state: PaceState, event: PaceEvent) -> PaceState:
    return _following(PACE_TABLE, state, event)


def path_step(state: PathState, event: PathEvent) -> PathState:
    return _following(PATH_TABLE, state, event)


def arrival_step(state: ArrivalState, event: ArrivalEvent) -> ArrivalState:
    return _following(ARRIVAL_TABLE, state, event)


def standing_step(state: StandingState, event: StandingEvent) -> StandingState:
    return _following(STANDING_TABLE, state, event)
