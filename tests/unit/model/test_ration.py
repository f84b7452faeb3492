"""The limit on input from one connection in one turn of the event loop."""

from __future__ import annotations

from treecast.middleware.model.ration import Ration


def test_a_ration_is_of_one_turn() -> None:
    ration = Ration(100)
    assert [ration.eaten(40, 1.0), ration.eaten(40, 1.0), ration.eaten(40, 1.0)] == [False, False, True]
    assert not ration.eaten(40, 1.0)  # it had to wait, so this is its next turn
    assert [ration.eaten(80, turn) for turn in (2.0, 3.0, 4.0)] == [False] * 3


def test_one_read_may_be_more_than_a_ration() -> None:
    ration = Ration(100)
    assert ration.eaten(1000, 1.0)
    assert not ration.eaten(10, 1.0)
