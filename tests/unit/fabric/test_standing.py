"""When a host is lost by its group, and when it returns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.fabric.core.states import StandingState
from treecast.middleware.fabric.standing import Standing, StandingSettings
from treecast.middleware.model.timers import NEVER

SETTINGS = StandingSettings(answers=3, missed=3, out=5.0, out_longest=600.0)
WHY = "packets of the group do not arrive"


def reached(now: float = 0.0) -> Standing:
    standing = Standing(SETTINGS, now)
    assert standing.answered(now)
    return standing


def back(standing: Standing, now: float) -> float:
    """Lets it answer every 0.2 s until it is reached again. Returns when it is."""
    while not standing.answered(now):
        now += 0.2
        standing.asked(now, counts=False)
    return now


def test_one_answer_is_enough_for_a_host_that_never_was_out() -> None:
    standing = Standing(SETTINGS, 0.0)
    assert (standing.state, standing.asks(0.0)) == (StandingState.NEW, NEVER)
    assert not standing.cut_off(WHY, 1.0)
    assert not any(standing.asked(float(n)) for n in range(20))
    assert not standing.lost
    assert standing.answered(20.0)
    assert standing.reached


def test_a_reached_host_is_lost_by_unanswered_probes_or_by_evidence() -> None:
    quiet = reached()
    assert [quiet.asked(float(n)) for n in range(1, 5)] == [False, False, False, True]
    assert (quiet.lost, quiet.why, quiet.since) == (True, "it has stopped answering probes", 4.0)
    quick = reached()
    assert not any(quick.asked(float(n), counts=False) for n in range(20))
    deaf = reached()
    assert deaf.cut_off(WHY, 3.0)
    assert not deaf.cut_off(WHY, 4.0)
    assert (deaf.lost, deaf.why, deaf.since) == (True, WHY, 3.0)


def test_a_lost_host_returns_after_its_time_and_three_answers() -> None:
    standing = reached()
    standing.cut_off(WHY, 100.0)
    assert not any(standing.answered(100.0 + n) for n in range(5))
    assert standing.asks(104.0) == NEVER  # its time is not over
    assert standing.asks(106.0) == 0.0
    assert standing.answered(106.0)
    assert standing.why == ""
    few = reached()
    few.cut_off(WHY, 100.0)
    assert [few.answered(200.0), few.answered(200.2), few.answered(200.4)] == [False, False, True]
    gaps = reached()
    gaps.cut_off(WHY, 100.0)
    for at in range(200, 260, 2):
        gaps.answered(float(at))
        gaps.answered(at + 0.2)
        for _ in range(4):
            gaps.asked(at + 1.0)
    assert gaps.state is StandingState.OUT


def test_it_is_asked_the_more_seldom_the_longer_it_is_out() -> None:
    standing = reached()
    standing.cut_off(WHY, 100.0)
    assert [standing.asks(at) for at in (100.0, 103.0, 110.0, 160.0)] == [5.0, 5.0, 10.0, 60.0]


def test_its_time_out_doubles_only_if_it_is_lost_again_soon() -> None:
    standing, now, times = reached(), 10.0, []
    for _ in range(10):
        standing.cut_off(WHY, now)
        returned = back(standing, now)
        times.append(round(returned - now))
        now = returned + 20.0
    assert times == [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]
    now += 10 * 600.0
    standing.cut_off(WHY, now)
    assert round(back(standing, now) - now) == 5


@pytest.mark.parametrize("seconds", [3600.0])
@given(st.lists(st.floats(0.1, 60.0), min_size=1, max_size=30))
def test_a_group_that_works_now_and_then_does_not_make_it_swing(seconds: float, holds: list[float]) -> None:
    """However it is lost and however willingly it answers, it changes seldom, and returns in the end."""
    standing, now, changes, at = reached(), 0.0, 0, 0
    while now < seconds:
        now += holds[at % len(holds)]
        at += 1
        changes += standing.cut_off(WHY, now)
        now = back(standing, now)
        changes += 1
    assert changes <= 2 * (8 + seconds / 300.0)
    assert standing.reached


def test_a_new_run_is_asked_at_once_and_its_time_out_is_remembered() -> None:
    standing = reached()
    standing.cut_off(WHY, 100.0)
    standing.begins_anew(101.0)
    assert (standing.state, standing.why) == (StandingState.NEW, "")
    assert standing.answered(101.1)
    standing.cut_off(WHY, 102.0)
    assert round(back(standing, 102.0) - 102.0) == 10
