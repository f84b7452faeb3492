"""How soon one turn of a busy loop may follow another."""

from __future__ import annotations

import random

import pytest

from treecast.middleware.model.pace import Pace


def test_turns_that_are_far_enough_apart_never_rest() -> None:
    pace = Pace(apart=1.0, ahead=10.0)
    assert not any(pace.rest(1000.0 + turn) for turn in range(100))


def test_a_burst_does_not_rest() -> None:
    pace = Pace(apart=1.0, ahead=10.0)
    assert [pace.rest(1000.0) for _ in range(13)] == [0.0] * 11 + [1.0, 2.0]
    pace = Pace(apart=1.0, ahead=10.0)
    for start in (1000.0, 1020.0, 1040.0):
        assert not any(pace.rest(start) for _ in range(11))


def test_a_long_rest_is_made_up_for() -> None:
    pace = Pace(apart=1.0, ahead=0.0)
    assert pace.rest(10.0) == 0.0
    assert pace.rest(10.0) == 1.0
    assert pace.rest(11.75) == 0.25  # it slept 0.75 too long: the next is due at 12
    assert pace.rest(20.0) == 0.0


@pytest.mark.parametrize("seed", range(5))
def test_turns_in_a_row_keep_the_distance_over_time(seed: int) -> None:
    rng = random.Random(seed)
    pace, now, turns = Pace(apart=1.0, ahead=5.0), 100.0, 1000
    for _ in range(turns):
        now += rng.random() * 0.9  # work
        rest = pace.rest(now)
        now += rest + (rng.random() * 0.5 if rest else 0.0)  # a sleep ends late
    assert turns - 6 <= now - 100.0 <= turns + 6
