"""The difference of two states leads from one to the other, has no needless write, and refers to nothing
removed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.control.switches.difference import Change, Kind, apply, diff
from treecast.middleware.control.switches.state import EntryKey, SwitchState
from treecast.middleware.dataplane.p4 import (
    ActionCall,
    CloneSession,
    Entry,
    ExactMatch,
    GroupEntry,
    GroupMember,
    MemberEntry,
    MeterConfig,
    MulticastGroup,
    Replica,
    TernaryMatch,
    ValueSetMember,
)

_CALLS = st.builds(ActionCall, st.sampled_from(["forward", "drop"]), st.just({"port": 1}) | st.just({}))
_ENTRIES = st.lists(
    st.tuples(
        st.sampled_from(["t", "u"]),
        st.builds(
            Entry,
            st.dictionaries(st.sampled_from("ab"), st.builds(ExactMatch, st.integers(0, 2)), max_size=2),
            _CALLS,
            st.integers(0, 2),
        ),
    ),
    max_size=6,
    unique_by=lambda pair: EntryKey.of(pair[0], pair[1].matches, pair[1].priority),
)
_REPLICAS = st.lists(st.builds(Replica, st.integers(0, 3)), max_size=3, unique=True).map(tuple)
_GROUPS = st.lists(
    st.builds(MulticastGroup, st.integers(1, 4), _REPLICAS), max_size=4, unique_by=lambda one: one.group
)
_SESSIONS = st.lists(
    st.builds(CloneSession, st.integers(1, 3), _REPLICAS), max_size=3, unique_by=lambda one: one.session
)


@st.composite
def _states(draw: st.DrawFn) -> SwitchState:
    numbers = draw(st.lists(st.integers(1, 4), unique=True, max_size=4))
    members = [("p", MemberEntry(number, draw(_CALLS))) for number in numbers]
    chosen = st.lists(st.sampled_from(numbers), unique=True) if numbers else st.just([])
    selections = [
        ("p", GroupEntry(group, tuple(GroupMember(member) for member in draw(chosen))))
        for group in draw(st.lists(st.integers(1, 3), unique=True, max_size=3))
    ]
    return SwitchState.of(
        entries=draw(_ENTRIES),
        defaults=draw(st.dictionaries(st.sampled_from("tu"), _CALLS)),
        members=members,
        selections=selections,
        groups=draw(_GROUPS),
        sessions=draw(_SESSIONS),
        value_sets=draw(
            st.dictionaries(st.just("v"), st.just([ValueSetMember({"x": ExactMatch(1)})]), max_size=1)
        ),
        registers=draw(st.dictionaries(st.tuples(st.just("r"), st.integers(0, 2)), st.integers(0, 3))),
        meters=draw(
            st.dictionaries(
                st.tuples(st.just("m"), st.integers(0, 1)), st.builds(MeterConfig, *[st.integers(0, 1)] * 4)
            )
        ),
    )


def _without_cells(state: SwitchState) -> dict[str, Any]:
    return {
        name: getattr(state, name) for name in state.__struct_fields__ if name not in ("registers", "meters")
    }


@settings(max_examples=80)
@given(_states(), _states())
def test_applied_it_gives_what_is_desired(actual: SwitchState, desired: SwitchState) -> None:
    changes = diff(actual, desired)
    reached = apply(actual, changes)  # `apply` refuses every step that a switch would refuse
    assert _without_cells(reached) == _without_cells(desired)
    assert reached.registers == {**actual.registers, **desired.registers}
    assert reached.meters == {**actual.meters, **desired.meters}
    assert diff(reached, desired) == ()


@settings(max_examples=80)
@given(_states(), _states())
def test_it_is_minimal_and_in_order(actual: SwitchState, desired: SwitchState) -> None:
    changes = diff(actual, desired)
    assert len({(change.field, change.key) for change in changes}) == len(changes)
    assert [change.stage for change in changes] == sorted(change.stage for change in changes)
    for left_out in range(len(changes)):
        rest = [change for at, change in enumerate(changes) if at != left_out]
        fields = {name: dict(getattr(actual, name)) for name in SwitchState.__struct_fields__}
        for change in rest:
            if change.kind is Kind.DELETE or change.value is None:
                fields[change.field].pop(change.key, None)
            else:
                fields[change.field][change.key] = change.value
        assert diff(SwitchState(**fields), desired) != ()


@settings(max_examples=30)
@given(_states())
def test_a_state_differs_from_itself_in_nothing(state: SwitchState) -> None:
    assert diff(state, state) == ()
    assert apply(SwitchState(), diff(SwitchState(), state)) == state


def test_make_before_break() -> None:
    """A group exists before an entry moves to it, and the old one is removed after the move."""
    key, call = {"a": ExactMatch(1)}, "multicast"
    actual = SwitchState.of(
        groups=[MulticastGroup(1, (Replica(1),))], entries=[("t", Entry(key, ActionCall(call, {"group": 1})))]
    )
    desired = SwitchState.of(
        groups=[MulticastGroup(2, (Replica(2),))], entries=[("t", Entry(key, ActionCall(call, {"group": 2})))]
    )
    assert [(one.kind, one.field) for one in diff(actual, desired)] == [
        (Kind.INSERT, "groups"),
        (Kind.MODIFY, "entries"),
        (Kind.DELETE, "groups"),
    ]


def test_the_order_of_replicas_is_no_difference() -> None:
    one = SwitchState.of(groups=[MulticastGroup(1, (Replica(2), Replica(1)))])
    other = SwitchState.of(groups=[MulticastGroup(1, (Replica(1), Replica(2)))])
    assert diff(one, other) == ()


def test_two_things_with_one_key_are_refused() -> None:
    entry = Entry({"a": TernaryMatch(1, 1)}, ActionCall("drop"), 5)
    with pytest.raises(ValueError, match="two entries have the same key"):
        SwitchState.of(entries=[("t", entry), ("t", entry)])


def test_the_model_refuses_what_a_switch_refuses() -> None:
    group = Change(0, Kind.INSERT, "selections", ("p", 1), GroupEntry(1, (GroupMember(7),)))
    with pytest.raises(ValueError, match="names member 7"):
        apply(SwitchState(), [group])
    with pytest.raises(ValueError, match="is not there"):
        apply(SwitchState(), [Change(5, Kind.DELETE, "groups", 1, None)])
