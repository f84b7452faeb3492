"""Whether a store lacks an update of a host's view, against a model that knows every update by name."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from treecast.middleware.api.entries import Position
from treecast.middleware.control.lineage import (
    REIGNS,
    Lineage,
    Past,
    Reign,
    epoch_by_clock,
    producer_floor,
)

PAST = Past("h", (Reign(5, 0), Reign(9, 100)), 130)


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        (Position("h", 100, 5), False),
        (Position("h", 101, 5), True),  # epoch 5 ends here with revision 100
        (Position("h", 130, 9), False),
        (Position("h", 131, 9), True),
        (Position("h", 101, 7), True),  # a leadership that this store never had
        (Position("h", 100, 7), False),
        (Position("h", 120, 12), True),
        (Position("h", 130, 0), False),  # a host of an earlier version, which knows no epoch
        (Position("h", 131, 0), True),
    ],
)
def test_a_leadership_ends_where_the_next_one_began(told: Position, lacks: bool) -> None:
    assert PAST.lacks(told) == lacks


def test_an_adopted_view_is_not_lacking_any_more() -> None:
    lineage = Lineage((Reign(5, 0),)).turned("h", 100, 9, 120)
    first, second = Position("h", 120, 5), Position("h", 130, 5)
    assert lineage.lacks("new", 120, first)
    lineage = lineage.adopted(first, 121)
    assert not lineage.lacks("new", 121, first)
    assert lineage.lacks("new", 121, second)
    assert not lineage.lacks("new", 121, Position("of another cluster", 999, 5))
    assert Lineage.of(lineage.text()) == lineage
    assert Lineage.of("") == Lineage()
    with pytest.raises(ValueError, match="broken lineage"):
        Lineage.of("[")


def test_the_oldest_leaderships_are_forgotten() -> None:
    lineage = Lineage()
    for number in range(REIGNS + 5):
        lineage = lineage.led(number + 1, number * 10)
    assert len(lineage.reigns) == REIGNS
    assert not lineage.lacks("h", 10**5, Position("h", 30, 4))
    assert lineage.lacks("h", 10**5, Position("h", 60, 4))


class Old(Struct, frozen=True):
    """A copy of a store: the names of its updates, and its lineage."""

    updates: tuple[int, ...]
    lineage: Lineage


@given(st.lists(st.sampled_from(["update", "start", "copy", "restore", "told"]), max_size=60), st.data())
@settings(max_examples=300, deadline=None)
def test_what_is_lacking_is_what_a_model_says(steps: list[str], data: st.DataObject) -> None:
    """A restore discards the state before, with the copies made since its own."""
    names, epochs = itertools.count(), itertools.count(1)
    updates: tuple[int, ...] = ()
    epoch = next(epochs)
    lineage = Lineage().led(epoch, 0)
    copies: list[Old] = []
    hosts: list[tuple[Position, tuple[int, ...]]] = []
    for step in steps:
        if step == "update":
            updates = (*updates, next(names))
        elif step == "copy":
            copies.append(Old(updates, lineage))
        elif step == "told":
            hosts.append((Position("h", len(updates), epoch), updates))
        elif step == "start" or copies:
            if step == "restore":
                del copies[data.draw(st.integers(1, len(copies))) :]
                updates, lineage = copies[-1].updates, copies[-1].lineage
            epoch = next(epochs)
            lineage = lineage.led(epoch, len(updates))
        for told, known in hosts:
            assert lineage.lacks("h", len(updates), told) == (updates[: len(known)] != known)


def test_numbers_by_the_clock_rise_and_have_room() -> None:
    times = [1_700_000_000, 1_800_000_000, 1_800_000_001, 3_900_000_000, 2**40]
    assert [epoch_by_clock(now) for now in times] == sorted(epoch_by_clock(now) for now in times)
    assert epoch_by_clock(times[0]) == 1
    assert producer_floor(times[2]) - producer_floor(times[1]) == 2**31
    assert producer_floor(times[-1]) + 2**40 < 2**63
