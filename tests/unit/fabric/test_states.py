"""Every state and event is listed or refused."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from treecast.middleware.fabric.core.states import (
    ARRIVAL_TABLE,
    PACE_TABLE,
    PATH_TABLE,
    PEER_TABLE,
    RECEIVER_TABLE,
    STANDING_TABLE,
    ArrivalEvent,
    ArrivalState,
    ImpossibleEvent,
    PaceEvent,
    PaceState,
    PathEvent,
    PathState,
    PeerEvent,
    PeerState,
    ReceiverEvent,
    ReceiverState,
    StandingEvent,
    StandingState,
    arrival_step,
    pace_step,
    path_step,
    peer_step,
    receiver_step,
    standing_step,
)

Table = Mapping[Any, Mapping[Any, Any]]
TABLES: list[tuple[Table, type[enum.Enum], type[enum.Enum], Callable[[Any, Any], Any]]] = [
    (RECEIVER_TABLE, ReceiverState, ReceiverEvent, receiver_step),
    (PEER_TABLE, PeerState, PeerEvent, peer_step),
    (PACE_TABLE, PaceState, PaceEvent, pace_step),
    (PATH_TABLE, PathState, PathEvent, path_step),
    (ARRIVAL_TABLE, ArrivalState, ArrivalEvent, arrival_step),
    (STANDING_TABLE, StandingState, StandingEvent, standing_step),
]


@pytest.mark.parametrize(("table", "states", "events", "step"), TABLES)
def test_every_pair_has_an_entry_which_step_follows(
    table: Table, states: type[enum.Enum], events: type[enum.Enum], step: Callable[[Any, Any], Any]
) -> None:
    assert list(table) == list(states)
    for state in states:
        assert list(table[state]) == list(events)
        for event, following in table[state].items():
            if following is None:
                with pytest.raises(ImpossibleEvent):
                    step(state, event)
            else:
                assert step(state, event) is following


@pytest.mark.parametrize(
    ("table", "begins"),
    [
        (RECEIVER_TABLE, {ReceiverState.LIVE}),
        (PEER_TABLE, {PeerState.LIVE, PeerState.CATCHING_UP}),
        (PACE_TABLE, {PaceState.OPENING}),
        (PATH_TABLE, {PathState.WAITING}),
        (ARRIVAL_TABLE, {ArrivalState.ARRIVES}),
        (STANDING_TABLE, {StandingState.NEW}),
    ],
)
def test_every_state_is_reached_from_where_a_life_begins(table: Table, begins: set[Any]) -> None:
    reached = set(begins)
    while more := {to for state in reached for to in table[state].values() if to} - reached:
        reached |= more
    assert reached == set(table)


def test_done_is_final() -> None:
    assert set(RECEIVER_TABLE[ReceiverState.DONE].values()) == {ReceiverState.DONE, None}
