"""The life of a classic group as a table: the effect of each event in each state.

Follows Kafka's classic group coordinator (`GroupMetadata.scala`; KIP-62, KIP-134, KIP-345, KIP-394). An entry
is the next state (possibly the same), or the fault that refuses the event and changes nothing. Every pair has
an entry.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.transitions import transitions


class State(enum.Enum):
    """Values are Kafka's spelling in DescribeGroups and ListGroups."""

    EMPTY = "Empty"  # no members; exists while it has offsets. Also a group that only commits
    PREPARING = "PreparingRebalance"  # collects the joins of the next generation
    COMPLETING = "CompletingRebalance"  # the generation is known, the leader's assignment is not
    STABLE = "Stable"  # every member can fetch its assignment
    DEAD = "Dead"  # deleted, or no longer on this host


class Event(enum.Enum):
    """An event of a group. The value is its text in the operator's log."""

    # requested
    RESERVE = "a new member is given an id to join with"  # KIP-394
    JOIN = "a new member joins"
    REJOIN = "a member joins again with what is known of it"
    CHANGE = "a member joins again and changes the group, or leads and asks for a new generation"
    TAKE_OVER = "a static member restarts without changing the group"  # KIP-345
    SYNC = "a member asks for its assignment, the leader with everybody's"
    HEARTBEAT = "a member is alive"
    LEAVE = "members are asked to be removed"
    COMMIT = "a member commits offsets"
    COMMIT_ALONE = "offsets are committed by no member"  # simple consumers, administration
    COMMIT_IN_TRANSACTION = "offsets are added to a transaction"
    DELETE_OFFSETS = "offsets are deleted"
    DELETE = "the group is deleted"
    # internal
    MEMBER_GONE = "a member left, or was silent for too long"
    GENERATION = "the joins are complete"
    NO_GENERATION = "the joins are complete and nobody is left"
    ASSIGNED = "the leader's assignment is on disk"
    UNASSIGNED = "the leader's assignment cannot be written"
    FORGET = "the last offset of the group expired"
    UNLOAD = "this host stops being the group's home"
    UPGRADE = "a member of the new protocol joins, and the group goes on by that"  # KIP-848
    ADOPT = "only classic members are left of a group of the new protocol"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State
_UNAVAILABLE = Fault.COORDINATOR_UNAVAILABLE
_REBALANCING = Fault.REBALANCE_IN_PROGRESS
_UNKNOWN = Fault.UNKNOWN_MEMBER
_NOT_EMPTY = Fault.GROUP_NOT_EMPTY
_NEVER = Fault.INTERNAL  # cannot happen: the state has no members

# event: (in EMPTY, PREPARING, COMPLETING, STABLE, DEAD)
_ROWS: dict[Event, tuple[State | Fault, State | Fault, State | Fault, State | Fault, State | Fault]] = {
    Event.RESERVE: (EMPTY, PREPARING, COMPLETING, STABLE, _UNAVAILABLE),
    Event.JOIN: (PREPARING, PREPARING, PREPARING, PREPARING, _UNAVAILABLE),
    Event.REJOIN: (_UNKNOWN, PREPARING, COMPLETING, STABLE, _UNAVAILABLE),
    Event.CHANGE: (_UNKNOWN, PREPARING, PREPARING, PREPARING, _UNAVAILABLE),
    # The leader may already assign to the old member id; only a new round reaches the new id.
    Event.TAKE_OVER: (_UNKNOWN, PREPARING, PREPARING, STABLE, _UNAVAILABLE),
    Event.SYNC: (_UNKNOWN, _REBALANCING, COMPLETING, STABLE, _UNAVAILABLE),
    Event.HEARTBEAT: (_UNKNOWN, _REBALANCING, COMPLETING, STABLE, _UNAVAILABLE),
    Event.LEAVE: (EMPTY, PREPARING, COMPLETING, STABLE, _UNAVAILABLE),
    # While joins are collected, members of the old generation may still commit.
    Event.COMMIT: (_UNKNOWN, PREPARING, _REBALANCING, STABLE, _UNAVAILABLE),
    Event.COMMIT_ALONE: (EMPTY, _UNKNOWN, _UNKNOWN, _UNKNOWN, _UNAVAILABLE),
    Event.COMMIT_IN_TRANSACTION: (EMPTY, PREPARING, COMPLETING, STABLE, _UNAVAILABLE),
    Event.DELETE_OFFSETS: (EMPTY, PREPARING, COMPLETING, STABLE, Fault.GROUP_NOT_FOUND),
    Event.DELETE: (DEAD, _NOT_EMPTY, _NOT_EMPTY, _NOT_EMPTY, Fault.GROUP_NOT_FOUND),
    Event.MEMBER_GONE: (_NEVER, PREPARING, PREPARING, PREPARING, _NEVER),
    Event.GENERATION: (_NEVER, COMPLETING, _NEVER, _NEVER, _NEVER),
    Event.NO_GENERATION: (_NEVER, EMPTY, _NEVER, _NEVER, _NEVER),
    # Results of writes for an overtaken round are ignored.
    Event.ASSIGNED: (EMPTY, PREPARING, STABLE, STABLE, DEAD),
    Event.UNASSIGNED: (EMPTY, PREPARING, PREPARING, STABLE, DEAD),
    Event.FORGET: (DEAD, _NOT_EMPTY, _NOT_EMPTY, _NOT_EMPTY, DEAD),
    Event.UNLOAD: (DEAD, DEAD, DEAD, DEAD, DEAD),
    Event.UPGRADE: (DEAD, DEAD, DEAD, DEAD, _NEVER),
    Event.ADOPT: (PREPARING, _NEVER, _NEVER, _NEVER, _NEVER),
}

TABLE: Mapping[State, Mapping[Event, State | Fault]] = transitions(State, _ROWS)


def step(state: State, event: Event) -> State:
    """Returns the state after `event` in `state`. Raises the fault that refuses the event."""
    following = TABLE[state][event]
    if isinstance(following, Fault):
        raise TreecastError(following)
    return following
