"""The states of a followed partition, and what each answer of its leader does: a table, without I/O.

lost --leader known--> fetching --records--> fetching          fetching --parted, out of range--> seeking
 ^                        |                                    seeking --bounds known--> fetching
 +----- moved, failed ----+                                    all: --topic gone--> gone
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final


class State(enum.Enum):
    """`LOST`: no leader is known that answers. `SEEKING`: the bounds of the leader's log are asked for."""

    LOST = "lost"
    FETCHING = "fetching"
    SEEKING = "seeking"
    GONE = "gone"


class Event(enum.Enum):
    """An answer of the leader, or news of it. `OLD`: it answers with an epoch older than one already
    known."""

    LED = "led"
    RECORDS = "records"
    NOTHING = "nothing"
    PARTED = "parted"
    OUT_OF_RANGE = "out of range"
    BOUNDS = "bounds"
    MOVED = "moved"
    OLD = "old"
    FAILED = "failed"
    GONE = "gone"


class Step(enum.Enum):
    """The effect on the copy. `CUT`: the end of the copy is not the leader's. `PLACE`: the copy is put
    between bounds."""

    NONE = "none"
    APPEND = "append"
    CUT = "cut"
    ASK_BOUNDS = "ask bounds"
    PLACE = "place"
    ASK_LEADER = "ask leader"
    END = "end"


_S, _E = State, Event
TABLE: Final[Mapping[tuple[State, Event], tuple[State, Step]]] = MappingProxyType(
    {
        (_S.LOST, _E.LED): (_S.FETCHING, Step.NONE),
        (_S.LOST, _E.RECORDS): (_S.LOST, Step.NONE),
        (_S.LOST, _E.NOTHING): (_S.LOST, Step.NONE),
        (_S.LOST, _E.PARTED): (_S.LOST, Step.NONE),
        (_S.LOST, _E.OUT_OF_RANGE): (_S.LOST, Step.NONE),
        (_S.LOST, _E.BOUNDS): (_S.LOST, Step.NONE),
        (_S.LOST, _E.MOVED): (_S.LOST, Step.ASK_LEADER),
        (_S.LOST, _E.OLD): (_S.LOST, Step.ASK_LEADER),
        (_S.LOST, _E.FAILED): (_S.LOST, Step.ASK_LEADER),
        (_S.FETCHING, _E.LED): (_S.FETCHING, Step.NONE),
        (_S.FETCHING, _E.RECORDS): (_S.FETCHING, Step.APPEND),
        (_S.FETCHING, _E.NOTHING): (_S.FETCHING, Step.NONE),
        (_S.FETCHING, _E.PARTED): (_S.FETCHING, Step.CUT),
        (_S.FETCHING, _E.OUT_OF_RANGE): (_S.SEEKING, Step.ASK_BOUNDS),
        (_S.FETCHING, _E.BOUNDS): (_S.FETCHING, Step.NONE),
        (_S.FETCHING, _E.MOVED): (_S.LOST, Step.ASK_LEADER),
        (_S.FETCHING, _E.OLD): (_S.LOST, Step.ASK_LEADER),
        (_S.FETCHING, _E.FAILED): (_S.LOST, Step.ASK_LEADER),
        (_S.SEEKING, _E.LED): (_S.SEEKING, Step.NONE),
        (_S.SEEKING, _E.RECORDS): (_S.SEEKING, Step.NONE),
        (_S.SEEKING, _E.NOTHING): (_S.SEEKING, Step.NONE),
        (_S.SEEKING, _E.PARTED): (_S.SEEKING, Step.NONE),
        (_S.SEEKING, _E.OUT_OF_RANGE): (_S.SEEKING, Step.NONE),
        (_S.SEEKING, _E.BOUNDS): (_S.FETCHING, Step.PLACE),
        (_S.SEEKING, _E.MOVED): (_S.LOST, Step.ASK_LEADER),
        (_S.SEEKING, _E.OLD): (_S.LOST, Step.ASK_LEADER),
        (_S.SEEKING, _E.FAILED): (_S.LOST, Step.ASK_LEADER),
        **{(state, _E.GONE): (_S.GONE, Step.END) for state in (_S.LOST, _S.FETCHING, _S.SEEKING)},
        **{(_S.GONE, event): (_S.GONE, Step.NONE) for event in Event},
    }
)
