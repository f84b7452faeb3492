"""Repeated log lines are due at growing intervals."""

from __future__ import annotations

from treecast.middleware.model.rarely import Rarely


def test_the_first_time_and_then_once_in_a_while() -> None:
    rarely = Rarely(10.0)
    assert [second for second in range(35) if rarely.due(float(second))] == [0, 10, 20, 30]
    assert rarely.left_out() == 31
    assert rarely.left_out() is None


def test_a_clock_that_is_set_back_keeps_nothing_quiet() -> None:
    rarely = Rarely(10.0)
    assert rarely.due(1000.0)
    assert rarely.due(500.0)
    assert not rarely.due(501.0)
