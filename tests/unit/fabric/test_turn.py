"""The budgets of a turn."""

from __future__ import annotations

from treecast.middleware.fabric.core.turn import FLOOR, SHARE, Turn

MOST, LIVE = 32 * 1024, 256 * 1024


def replayed(turn: Turn, turns: int, *, waits: bool, live: int = 0, now: float = 0.0) -> tuple[int, float]:
    """Replays all that each of `turns` turns allows. Returns (bytes, the time then)."""
    total = 0
    for _ in range(turns):
        now += 0.001
        turn.begin(now)
        if waits:
            turn.live_waits(now)
            turn.live -= live
        size = max(0, turn.replays)
        turn.replayed(size)
        total += size
    return total, now


def test_beside_live_data_that_waits_replays_have_a_share_of_its_bytes() -> None:
    turn = Turn(MOST, LIVE)
    _, now = replayed(turn, 100, waits=True, live=LIVE // 8)  # uses up the saved share
    total, _ = replayed(turn, 1000, waits=True, live=LIVE // 8, now=now)
    allowed = SHARE * 1000 * LIVE // 8 + FLOOR
    assert 0.95 * allowed < total < 1.05 * allowed + MOST


def test_where_no_live_data_waits_a_replay_has_all_of_each_turn() -> None:
    assert replayed(Turn(MOST, LIVE), 1000, waits=False)[0] == 1000 * MOST


def test_what_nobody_waited_behind_is_not_held_against_later_replays() -> None:
    """32 MB are replayed without live data; then live data waits, and replays get their share at once."""
    turn = Turn(MOST, LIVE)
    _, now = replayed(turn, 1000, waits=False)
    total, _ = replayed(turn, 100, waits=True, live=LIVE // 8, now=now)
    assert total > 0.9 * SHARE * 100 * LIVE // 8
