"""The states of a connection as a table: which frame is allowed in which state.

An entry is the next state. None means that the frame is refused and the connection ends. Every pair of state
and frame kind has an entry. `OWN` is the table of an end's own actions.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from .codec import Kind


class State(enum.IntEnum):
    HELLO = 0  # waits for the other end's hello
    PROOF = 1  # waits for the other end's proof
    CHOICE = 2  # both ends are authenticated; the host with the lower id chooses
    OPEN = 3
    CLOSED = 4


class Own(enum.IntEnum):
    """An end's own action."""

    CHOOSE = 0  # only the host with the lower id
    END = 1


_H, _P, _C, _O, _X = State

# kind: (next state in HELLO, PROOF, CHOICE, OPEN); nothing is read in CLOSED
_ROWS: dict[Kind, tuple[State | None, ...]] = {
    Kind.HELLO: (_P, None, None, None),
    Kind.PROOF: (None, _C, None, None),
    # REFUSE also ends CHOICE: the other end may still wait for the proof, and has no seal until then.
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

# TABLE by number, for the lookup of every received frame.
STEPS: tuple[tuple[State | None, ...], ...] = tuple(
    tuple(TABLE[state][kind] for kind in Kind) for state in State
)
