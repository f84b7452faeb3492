"""The tables are total and agree with Kafka's coordinator."""

from __future__ import annotations

import itertools

import pytest

from treecast.middleware.broker.groups.consumer.state import (
    MEMBER_TABLE,
    MOVES,
    TABLE,
    Event,
    Outcome,
    Standing,
    State,
    follow,
    step,
)
from treecast.middleware.model.errors import Fault, TreecastError


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", Event)
def test_every_pair_is_listed_or_refused(state: State, event: Event) -> None:
    entry = TABLE[state][event]
    if isinstance(entry, State):
        assert step(state, event) is entry
    else:
        assert isinstance(entry, Fault)
        with pytest.raises(TreecastError) as refused:
            step(state, event)
        assert refused.value.fault is entry


@pytest.mark.parametrize("standing", Standing)
@pytest.mark.parametrize("outcome", Outcome)
def test_every_step_of_a_member_is_listed_or_refused(standing: Standing, outcome: Outcome) -> None:
    entry = MEMBER_TABLE[standing][outcome]
    if isinstance(entry, Standing):
        assert follow(standing, outcome) is entry
    else:
        with pytest.raises(TreecastError) as refused:
            follow(standing, outcome)
        assert refused.value.fault is entry


def test_nothing_else_is_in_the_tables() -> None:
    assert set(TABLE) == set(State)
    assert all(set(row) == set(Event) for row in TABLE.values())
    assert set(MEMBER_TABLE) == set(Standing)
    assert all(set(row) == set(Outcome) for row in MEMBER_TABLE.values())
    assert set(MOVES) == set(itertools.product(Standing, (True, False), (True, False)))


def test_a_member_that_is_away_takes_no_step() -> None:
    assert not any(moves for (standing, _, _), moves in MOVES.items() if standing is Standing.AWAY)
    for outcome in (Outcome.MUST_REVOKE, Outcome.MUST_WAIT, Outcome.REACHED):
        assert MEMBER_TABLE[Standing.AWAY][outcome] is Fault.INTERNAL


def test_who_has_not_given_up_takes_no_step() -> None:
    assert not MOVES[Standing.UNREVOKED, True, False]
    assert not MOVES[Standing.UNREVOKED, False, False]


def test_a_group_is_stable_only_after_it_has_reconciled() -> None:
    into = {
        (state, event)
        for state, row in TABLE.items()
        for event, entry in row.items()
        if entry is State.STABLE and state is not State.STABLE
    }
    assert into == {(State.RECONCILING, Event.RECONCILED)}


def test_dead_is_final() -> None:
    assert {entry for entry in TABLE[State.DEAD].values() if isinstance(entry, State)} == {State.DEAD}


def test_every_state_is_reached() -> None:
    reached, frontier = {State.EMPTY}, [State.EMPTY]
    while frontier:
        for entry in TABLE[frontier.pop()].values():
            if isinstance(entry, State) and entry not in reached:
                reached.add(entry)
                frontier.append(entry)
    assert reached == set(State)


def test_states_are_spelled_as_kafka_does() -> None:
    assert [state.value for state in State] == ["Empty", "Assigning", "Reconciling", "Stable", "Dead"]
