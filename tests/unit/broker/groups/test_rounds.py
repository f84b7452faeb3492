"""The deadline of a round of joins, compared with the rule in words."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from treecast.middleware.broker.groups.rounds import Round


def test_a_round_of_members_ends_at_its_timeout() -> None:
    round_ = Round()
    assert not round_.runs
    assert round_.begin(10.0, 60.0) == 70.0
    round_.grow()
    assert round_.runs
    assert not round_.extend(70.0)
    round_.end()
    assert not round_.runs


@given(st.integers(1, 20), st.integers(0, 100), st.lists(st.integers(0, 120), max_size=20).map(sorted))
def test_a_delayed_round_ends_after_the_first_delay_without_a_new_member(
    delay: int, timeout: int, arrivals: list[int]
) -> None:
    """Compared with a walk over all delays. Members that come at a deadline belong to the next delay."""
    round_ = Round()
    now = int(round_.begin(0.0, float(timeout), float(delay)))
    waiting = list(arrivals)
    while True:
        while waiting and waiting[0] < now:
            waiting.pop(0)
            round_.grow()
        if not round_.extend(float(now)):
            break
        now = int(round_.deadline)

    begin, end, left = 0, delay, max(timeout - delay, 0)
    while left > 0 and any(begin <= arrival < end for arrival in arrivals):
        begin, end, left = end, end + min(delay, left), left - min(delay, left)
    assert now == end
    assert now <= max(timeout, delay)
    round_.end()
    assert not round_.delayed
