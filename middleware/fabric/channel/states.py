"""The life of a connection as a table: which frame has a place in which state.

An entry is the state that follows, or None: the frame is refused there and the connection ends. Every
pair of state and kind has its entry. What an end does of itself are the rows of `OWN`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from .codec import Kind


class State(enum.IntEnum):
    HELLO = 0  # waits for the other's hello
    PROOF = 1  # waits for the other's proof
    CHOICE = 2  # both have proven themselves; the host with the lower id chooses
    OPEN = 3
    CLOSED = 4


class Own(enum.IntEnum):
    """What an end does."""

    CHOOSE = 0  # only the host with the lower id
    END = 1


_H, _P, _C, _O, _X = State

# kind: (in HELLO, PROOF, CHOICE, OPEN); nothing is read in CLOSED
_ROWS: dict[Kind, tuple[State | None, ...]] = {
    Kind.HELLO: (_P, None, None, None),
    Kind.PROOF: (None, _C, None, None),
    Kind.REFUSE: (_X, _X, _X, None),
    Kind.OPEN: (None, None, _O, None),
    Kind.CALL: (None, None, None, _O),
    Kind.NOTICE: (None, None, None, _O),
    Kind.REQUEST_MORE: (None, None, None, _O),
    Kind.ANSWER: (None, None, None, _O),
    Kind.FAULT: (None, None, None, _O),
    Kind.ANSWER_MORE: (None, None, None, _O),
    Kind.DROPPED: (None, None, None, _O),
    Kind.CANCEL: (None, None, None, _O),
    Kind.CREDIT: (None, None, None, _O),
    Kind.PING: (None, None, None, _O),
    Kind.PONG: (None, None, None, _O),
    Kind.GOODBYE: (None, None, _X, _X),
}

TABLE: Mapping[State, Mapping[Kind, State | None]] = MappingProxyType(
    {state: MappingProxyType({kind: (*row, None)[state] for kind, row in _ROWS.items()}) for state in State}
)

OWN: Mapping[State, Mapping[Own, State | None]] = MappingProxyType(
    {state: MappingProxyType({Own.CHOOSE: _O if state is _C else None, Own.END: _X}) for state in State}
)

# The same as TABLE, by number: a frame is looked up in it for each that arrives.
STEPS: tuple[tuple[State | None, ...], ...] = tuple(
    tuple(TABLE[state][kind] for kind in Kind) for state in State
)
