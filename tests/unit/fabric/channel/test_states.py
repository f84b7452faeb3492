"""Every state and every kind of frame is listed or refused."""

from __future__ import annotations

import pytest

from treecast.middleware.fabric.channel.codec import Kind
from treecast.middleware.fabric.channel.states import OWN, STEPS, TABLE, Own, State


def test_every_pair_has_an_entry() -> None:
    assert list(TABLE) == list(OWN) == list(State)
    for state in State:
        assert sorted(TABLE[state]) == sorted(Kind)
        assert list(OWN[state]) == list(Own)
        assert STEPS[state] == tuple(TABLE[state][kind] for kind in Kind)


def test_every_state_is_reached() -> None:
    reached = {State.HELLO}
    while more := {to for s in reached for to in TABLE[s].values() if to is not None} - reached:
        reached |= more
    assert reached == set(State)


def test_nothing_is_read_at_the_end() -> None:
    assert set(TABLE[State.CLOSED].values()) == {None}
    assert OWN[State.CLOSED] == {Own.CHOOSE: None, Own.END: State.CLOSED}


@pytest.mark.parametrize("state", [State.HELLO, State.PROOF, State.CHOICE])
def test_no_call_before_the_connection_is_open(state: State) -> None:
    for kind in set(Kind) - {Kind.HELLO, Kind.PROOF, Kind.REFUSE, Kind.OPEN, Kind.GOODBYE}:
        assert TABLE[state][kind] is None
