"""The table is total and agrees with Kafka's coordinator."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.groups.state import TABLE, Event, State, step
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


def test_nothing_else_is_in_the_table() -> None:
    assert set(TABLE) == set(State)
    assert all(set(row) == set(Event) for row in TABLE.values())


def test_transitions_are_those_of_kafka() -> None:
    """Compared with `validPreviousStates` of GroupMetadata.scala; staying in a state is allowed as well."""
    may_follow = {
        State.EMPTY: {State.PREPARING},
        State.PREPARING: {State.STABLE, State.COMPLETING, State.EMPTY},
        State.COMPLETING: {State.PREPARING},
        State.STABLE: {State.COMPLETING},
        State.DEAD: set(State),
    }
    for state, row in TABLE.items():
        for following in row.values():
            if isinstance(following, State) and following is not state:
                assert state in may_follow[following], (state, following)


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
    assert [state.value for state in State] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
