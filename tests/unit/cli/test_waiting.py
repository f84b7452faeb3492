"""A waiting command reports it after a while, then rarely, and never while it makes progress."""

from __future__ import annotations

from treecast.middleware.cli.waiting import AGAIN, PATIENCE, Patience, waiting_text


def test_who_makes_progress_waits_for_nothing() -> None:
    patience = Patience()
    assert not any(patience.look(done, 100) for done in range(100))
    assert not any(patience.look(100, 0) for _ in range(100))


def test_it_is_said_after_a_while_and_then_rarely() -> None:
    patience = Patience()
    said = [number for number in range(1, 80) if patience.look(3, number)]
    assert said == [1 + PATIENCE, 1 + PATIENCE + AGAIN, 1 + PATIENCE + 2 * AGAIN]
    assert not patience.look(4, 1)
    assert [patience.look(4, 1) for _ in range(PATIENCE)] == [False] * (PATIENCE - 1) + [True]


def test_the_text_says_what_the_daemon_says() -> None:
    assert waiting_text(1, "h:1", []) == "waiting for h:1 to acknowledge 1 record: no reason given"
    assert waiting_text(2000, "h:1", ["full", "no files"]) == (
        "waiting for h:1 to acknowledge 2,000 records: full; no files"
    )
