"""The new group protocol (KIP-848) as tables: the states of a group, and a member's way to its target.

Group: an entry is the next state (the same state: the event is accepted without a transition) or the fault
that refuses the event. Member: `MOVES` says whether a heartbeat takes a step, `MEMBER_TABLE` where the step
ends. Every pair has an entry. After Kafka's `ConsumerGroup` and `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.transitions import transitions


class State(enum.Enum):
    """A group's state. The values have Kafka's spelling, as in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"  # no members; lives on while it has offsets
    ASSIGNING = "Assigning"  # the group epoch is ahead of the target assignment
    RECONCILING = "Reconciling"  # not every member has reached the target
    STABLE = "Stable"  # every member has reached the target
    DEAD = "Dead"  # deleted, no longer on this host, or a classic group again


class Event(enum.Enum):
    """An event of a group. The value describes it for operators."""

    # requests
    JOIN = "a member joins, or joins again, by either protocol"
    HEARTBEAT = "a member is alive"
    SYNC = "a classic member asks for its assignment"
    LEAVE = "members are asked to be removed, or a static member leaves for a while"
    COMMIT = "a member commits offsets"
    COMMIT_ALONE = "offsets are committed by no member"  # simple consumers, administration
    COMMIT_IN_TRANSACTION = "offsets are added to a transaction"
    FETCH = "a member asks for committed offsets"
    DELETE_OFFSETS = "offsets are deleted"
    DELETE = "the group is deleted"
    # internal events
    CHANGED = "members, their subscriptions or the topics have changed"
    ASSIGNED = "the target assignment is computed"
    MOVED = "a member took a step, and not all have reached their target"
    RECONCILED = "all members have reached their target"
    LAST_GONE = "the last member is gone"
    DOWNGRADE = "only classic members are left"
    FORGET = "the last offset of the group expired"
    UNLOAD = "this host stops being the group's home"


EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD = State
_UNAVAILABLE = Fault.COORDINATOR_UNAVAILABLE
_UNKNOWN = Fault.UNKNOWN_MEMBER
_NOT_EMPTY = Fault.GROUP_NOT_EMPTY
_NEVER = Fault.INTERNAL  # cannot happen

_Entry = State | Fault

# event: (in EMPTY, ASSIGNING, RECONCILING, STABLE, DEAD)
_ROWS: dict[Event, tuple[_Entry, _Entry, _Entry, _Entry, _Entry]] = {
    Event.JOIN: (EMPTY, ASSIGNING, RECONCILING, STABLE, _UNAVAILABLE),
    Event.HEARTBEAT: (_UNKNOWN, ASSIGNING, RECONCILING, STABLE, _UNAVAILABLE),
    Event.SYNC: (_UNKNOWN, ASSIGNING, RECONCILING, STABLE, _UNAVAILABLE),
    Event.LEAVE: (_UNKNOWN, ASSIGNING, RECONCILING, STABLE, _UNAVAILABLE),
    # in any state, a member may commit the work of its epoch
    Event.COMMIT: (_UNKNOWN, ASSIGNING, RECONCILING, STABLE, _UNAVAILABLE),
    Event.COMMIT_ALONE: (EMPTY, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNAVAILABLE),
    Event.COMMIT_IN_TRANSACTION: (EMPTY, ASSIGNING, RECONCILING, STABLE, _UNAVAILABLE),
    Event.FETCH: (_UNKNOWN, ASSIGNING, RECONCILING, STABLE, _UNAVAILABLE),
    Event.DELETE_OFFSETS: (EMPTY, ASSIGNING, RECONCILING, STABLE, Fault.GROUP_NOT_FOUND),
    Event.DELETE: (DEAD, _NOT_EMPTY, _NOT_EMPTY, _NOT_EMPTY, Fault.GROUP_NOT_FOUND),
    Event.CHANGED: (ASSIGNING, ASSIGNING, ASSIGNING, ASSIGNING, _NEVER),
    Event.ASSIGNED: (_NEVER, RECONCILING, _NEVER, _NEVER, _NEVER),
    Event.MOVED: (_NEVER, ASSIGNING, RECONCILING, RECONCILING, _NEVER),
    Event.RECONCILED: (_NEVER, ASSIGNING, STABLE, STABLE, _NEVER),
    Event.LAST_GONE: (_NEVER, EMPTY, EMPTY, EMPTY, _NEVER),
    Event.DOWNGRADE: (_NEVER, DEAD, DEAD, DEAD, _NEVER),
    Event.FORGET: (DEAD, _NOT_EMPTY, _NOT_EMPTY, _NOT_EMPTY, DEAD),
    Event.UNLOAD: (DEAD, DEAD, DEAD, DEAD, DEAD),
}

TABLE: Mapping[State, Mapping[Event, State | Fault]] = transitions(State, _ROWS)


def step(state: State, event: Event) -> State:
    """Returns the state after `event` in `state`. Raises the fault that refuses the event."""
    following = TABLE[state][event]
    if isinstance(following, Fault):
        raise TreecastError(following)
    return following


# --- one member


class Standing(enum.Enum):
    """A member's position on the way to its target. The values are stored on disk."""

    STABLE = "stable"  # has the whole target of its epoch
    UNREVOKED = "unrevoked"  # was told to give partitions up and has not confirmed it
    UNRELEASED = "unreleased"  # has its target except for partitions that others still hold
    AWAY = "away"  # a static member that will return: keeps its partitions; its member epoch is -2


class Outcome(enum.Enum):
    """The outcome of a step."""

    MUST_REVOKE = "it has to give partitions up first"
    MUST_WAIT = "it has to wait for partitions of others"
    REACHED = "it has its whole target"
    DEPARTS = "it leaves for a while"
    RETURNS = "it is back, in place of its former self or with nothing"


_Place = Standing | Fault

# outcome: (of STABLE, UNREVOKED, UNRELEASED, AWAY)
_OUTCOMES: dict[Outcome, tuple[_Place, _Place, _Place, _Place]] = {
    Outcome.MUST_REVOKE: (Standing.UNREVOKED, Standing.UNREVOKED, Standing.UNREVOKED, _NEVER),
    Outcome.MUST_WAIT: (Standing.UNRELEASED, Standing.UNRELEASED, Standing.UNRELEASED, _NEVER),
    Outcome.REACHED: (Standing.STABLE, Standing.STABLE, Standing.STABLE, _NEVER),
    Outcome.DEPARTS: (Standing.AWAY, Standing.AWAY, Standing.AWAY, Standing.AWAY),
    Outcome.RETURNS: (Standing.STABLE, Standing.STABLE, Standing.STABLE, Standing.STABLE),
}

MEMBER_TABLE: Mapping[Standing, Mapping[Outcome, Standing | Fault]] = transitions(Standing, _OUTCOMES)

# (standing, at the target's epoch, has given up the revoked partitions) -> whether a heartbeat takes a step
MOVES: Mapping[tuple[Standing, bool, bool], bool] = MappingProxyType(
    {
        (Standing.STABLE, True, True): False,
        (Standing.STABLE, True, False): False,  # the same, because it has nothing to give up
        (Standing.STABLE, False, True): True,
        (Standing.STABLE, False, False): True,
        (Standing.UNREVOKED, True, True): True,
        (Standing.UNREVOKED, True, False): False,
        (Standing.UNREVOKED, False, True): True,
        (Standing.UNREVOKED, False, False): False,  # one revocation at a time, even if the target has changed
        (Standing.UNRELEASED, True, True): True,  # others may have released meanwhile
        (Standing.UNRELEASED, True, False): True,
        (Standing.UNRELEASED, False, True): True,
        (Standing.UNRELEASED, False, False): True,
        (Standing.AWAY, True, True): False,
        (Standing.AWAY, True, False): False,
        (Standing.AWAY, False, True): False,
        (Standing.AWAY, False, False): False,
    }
)


def follow(standing: Standing, outcome: Outcome) -> Standing:
    """Returns a member's standing after `outcome`."""
    following = MEMBER_TABLE[standing][outcome]
    if isinstance(following, Fault):
        raise TreecastError(following)
    return following
