"""Allotment of numbers, and the record of interest."""

from __future__ import annotations

from msgspec.structs import replace

from treecast.middleware.api.entries import (
    Change,
    Counter,
    CounterEntry,
    InterestEntry,
    Kind,
    StateEntry,
    put,
)
from treecast.middleware.model.errors import Fault, TreecastError

from .cluster_state import ClusterState
from .commands import AllotState, Done, ProducerBlock, PutInterest, ReleaseState, TakeProducerIds
from .decision import Decision, check_room, check_size
from .hosts import caller
from .values import FIRST_STATE_ID, LAST_STATE_ID, PRODUCER_ID_MAX


def take_producer_ids(state: ClusterState, command: TakeProducerIds) -> Decision[ProducerBlock]:
    """Returns a block of ids that is never given again, used or not."""
    caller(state, command.session)
    limit = state.settings.limits.producer_block
    count = command.count or state.settings.producer_block
    if not 1 <= count <= limit:
        raise TreecastError(Fault.INVALID_REQUEST, f"a block has 1 to {limit} producer ids, not {count}")
    first = max(state.counter(Counter.PRODUCER_ID), state.producer_floor, command.at_least)
    check_room("producer ids", first, count, PRODUCER_ID_MAX)
    return Decision(ProducerBlock(first, count), (put(CounterEntry(Counter.PRODUCER_ID, first + count)),))


def allot_state(state: ClusterState, command: AllotState) -> Decision[StateEntry]:
    """Returns the topic's state id, with the caller added to its holders. A topic always has the same id."""
    host = caller(state, command.session)
    _check_levels(command.levels, state.settings.limits.levels_bytes)
    held = state.state_of(command.levels)
    if held is not None:
        if host.host_id in held.holders:
            return Decision(held)
        shared = replace(held, holders=tuple(sorted((*held.holders, host.host_id))))
        return Decision(shared, (put(shared),))
    room = min(state.settings.limits.states, LAST_STATE_ID - FIRST_STATE_ID + 1)
    check_room("state ids", state.size(Kind.STATE), 1, room)
    state_id = _free_state_id(state)
    allotted = StateEntry(state_id, command.levels, (host.host_id,))
    return Decision(allotted, (put(CounterEntry(Counter.STATE_ID, _after(state_id))), put(allotted)))


def _free_state_id(state: ClusterState) -> int:
    """Returns the next free id in turn, so that a released one is reused as late as possible."""
    candidate = max(state.counter(Counter.STATE_ID), FIRST_STATE_ID)
    while state.state(candidate) is not None:
        candidate = _after(candidate)
    return candidate


def _after(state_id: int) -> int:
    return FIRST_STATE_ID if state_id >= LAST_STATE_ID else state_id + 1


def release_state(state: ClusterState, command: ReleaseState) -> Decision[Done]:
    """Removes the caller from the holders. Without holders, or by force, the id becomes free."""
    host = caller(state, command.session)
    held = state.state(command.state_id)
    if held is None:
        return Decision(Done())  # repeat of a call whose answer was lost
    holders = tuple(holder for holder in held.holders if holder != host.host_id)
    if command.force or not holders:
        return Decision(Done(), (Change(Kind.STATE, str(held.state_id), None),))
    if holders == held.holders:
        return Decision(Done())
    return Decision(Done(), (put(replace(held, holders=holders)),))


def put_interest(state: ClusterState, command: PutInterest) -> Decision[InterestEntry]:
    """Records the host's interest. A version older than the recorded one changes nothing."""
    host = caller(state, command.session)
    limits = state.settings.limits
    if len(command.patterns) > limits.patterns:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"{len(command.patterns)} patterns; at most {limits.patterns} are recorded"
        )
    size = 0
    for pattern in command.patterns:
        check_size("a topic pattern", pattern, limits.levels_bytes)
        size += len(pattern.encode())
    if size > limits.interest_bytes:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"patterns of {size} bytes; at most {limits.interest_bytes} are recorded"
        )
    known = state.interest(host.host_id)
    if known is not None and (known.incarnation, known.version) >= (host.incarnation, command.version):
        return Decision(known)
    entry = InterestEntry(host.host_id, host.incarnation, command.version, command.patterns)
    return Decision(entry, (put(entry),))


def _check_levels(levels: tuple[str, ...], limit: int) -> None:
    if levels in ((), ("",)):
        raise TreecastError(Fault.INVALID_TOPIC, "the topic is empty: send its levels")
    size = sum(len(level.encode()) + 1 for level in levels)
    if size > limit or any("\0" in level for level in levels):
        raise TreecastError(
            Fault.INVALID_TOPIC, f"a topic has at most {limit} bytes, and none of them zero; this has {size}"
        )
