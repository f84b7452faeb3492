"""A fault that lasts is said when it begins, changes and ends."""

from __future__ import annotations

from treecast.middleware.model.standing import Standing


def test_a_fault_is_said_once_per_change() -> None:
    standing = Standing()
    assert not standing.ends("a")
    assert [standing.begins("a", why) for why in ("away", "away", ValueError("odd"), "odd", "away")] == [
        True,
        False,
        True,
        False,
        True,
    ]
    assert standing.begins("b", "away")
    assert standing.ends("a")
    assert not standing.ends("a")
    assert standing.begins("a", "away")


def test_what_nobody_looks_at_is_forgotten() -> None:
    standing = Standing()
    standing.begins("a", "away")
    standing.begins("b", "away")
    standing.keep({"b"})
    assert standing.begins("a", "away")
    assert not standing.begins("b", "away")
