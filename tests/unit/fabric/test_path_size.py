"""The search for the longest packets of a path, on paths in memory that drop longer ones."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.fabric.core.path_size import (
    AGAIN_EVERY,
    CHECK_EVERY,
    CLOSE,
    LEAST,
    RAISE_EVERY,
    PathSize,
)
from treecast.middleware.fabric.core.states import PathState
from treecast.middleware.model.timers import NEVER


class Path:
    """A path that carries packets of at most `carries` bytes, loses some, and answers in `trip` seconds."""

    def __init__(
        self, most: int, carries: int, *, loss: float = 0.0, trip: float = 0.01, seed: int = 1
    ) -> None:
        self.search = PathSize(most)
        self.carries = carries
        self.loss = loss
        self.trip = trip
        self.now = 100.0
        self.sent: list[int] = []
        self._random = random.Random(seed)
        self._answers: list[tuple[float, int]] = []

    def reach(self) -> Path:
        self.search.reached(self.now)
        return self

    def run(self, seconds: float) -> Path:
        end = self.now + seconds
        while True:
            answer = self._answers[0][0] if self._answers else NEVER
            at = min(answer, self.search.next_deadline())
            if at > end:
                self.now = end
                return self
            self.now = max(self.now, at)
            if answer <= self.now:
                self.search.answered(self._answers.pop(0)[1], self.now)
            else:
                self._probe()

    def _probe(self) -> None:
        size = self.search.to_send(self.now)
        if not size:
            return
        self.sent.append(size)
        if size <= self.carries and self._random.random() >= self.loss:
            self._answers.append((self.now + self.trip, size))


def close_to(carries: int) -> range:
    """The sizes with which a search may end on a path that carries so much."""
    return range(carries - max(CLOSE, carries // 64), carries + 1)


@given(most=st.integers(LEAST, 65_535), data=st.data())
def test_the_longest_that_arrive_are_found_from_any_size(most: int, data: st.DataObject) -> None:
    carries = data.draw(st.integers(LEAST, 65_535))
    path = Path(most, carries).reach().run(20.0)
    assert path.search.state is PathState.COMPLETE
    assert path.search.size in close_to(min(most, carries))
    assert path.search.size <= carries
    assert len(path.sent) < 60


def test_a_path_that_carries_all_is_asked_once_and_checked_from_time_to_time() -> None:
    path = Path(9000, 9000).reach().run(1.0)
    assert (path.sent, path.search.size, path.search.is_short) == ([9000], 9000, False)
    path.run(3 * CHECK_EVERY)
    assert path.sent == [9000] * 4


def test_data_uses_the_shortest_until_the_longest_are_known() -> None:
    path = Path(9000, 4000).reach()
    assert path.search.size == 9000
    sizes = [path.run(0.1).search.size for _ in range(100)]
    assert sorted(set(sizes), key=sizes.index) == [9000, LEAST, path.search.size]


def test_a_path_that_shrinks_is_found_when_data_does_not_arrive() -> None:
    path = Path(9000, 9000).reach().run(5.0)
    path.carries = 1500
    path.search.suspect(path.now)
    path.run(15.0)
    assert path.search.size in close_to(1500)


def test_a_path_that_shrinks_is_found_by_the_next_check_without_data() -> None:
    path = Path(1500, 1500).reach().run(5.0)
    path.carries = 1400
    path.run(CHECK_EVERY + 10.0)
    assert path.search.size in close_to(1400)


def test_a_path_that_carries_more_again_is_found_in_time() -> None:
    path = Path(1500, 1280).reach().run(10.0)
    assert path.search.size == 1280
    path.carries = 1500
    path.run(RAISE_EVERY + CHECK_EVERY + 5.0)
    assert path.search.size == 1500


def test_a_host_that_is_away_makes_nothing_shorter() -> None:
    path = Path(1500, 0).reach().run(5.0)
    assert (path.search.state, path.search.size) == (PathState.NARROW, 1500)
    path.search.left(path.now)
    before = len(path.sent)
    path.run(1000.0)
    assert len(path.sent) == before
    path.carries = 1500
    path.reach().run(1.0)
    assert (path.search.state, path.search.size) == (PathState.COMPLETE, 1500)


def test_a_path_on_which_nothing_arrives_is_tried_again() -> None:
    path = Path(1500, 1000).reach().run(5.0)
    assert path.search.state is PathState.NARROW
    path.carries = 1300
    path.run(AGAIN_EVERY + 10.0)
    assert path.search.size in close_to(1300)


@pytest.mark.parametrize("trip", [0.3, 0.7, 1.2])
def test_answers_of_a_long_path_are_not_too_late(trip: float) -> None:
    path = Path(1500, 1500, trip=trip).reach().run(10.0)
    assert (path.search.state, path.search.size) == (PathState.COMPLETE, 1500)


def test_a_late_answer_of_the_size_that_counted_as_lost_ends_the_search_for_less() -> None:
    path = Path(1500, 1500, trip=1.6).reach().run(20.0)
    assert path.search.size == 1500


@pytest.mark.parametrize("seed", range(20))
def test_losses_rarely_look_like_a_narrow_path(seed: int) -> None:
    path = Path(1500, 1500, loss=0.1, seed=seed).reach().run(20 * CHECK_EVERY)
    assert path.search.size == 1500


def test_another_mtu_of_the_other_end_begins_with_that() -> None:
    path = Path(9000, 9000).reach().run(1.0)
    path.search.limit(1500, path.now)
    assert (path.search.state, path.search.size) == (PathState.CHECKING, 1500)
    path.run(1.0)
    assert path.sent == [9000, 1500]
    path.search.limit(9000, path.now)
    assert path.run(1.0).search.size == 9000


def test_before_the_host_is_reached_nothing_is_sent() -> None:
    path = Path(9000, 1500)
    path.search.limit(4000, path.now)
    path.search.suspect(path.now)
    path.search.answered(4000, path.now)
    assert path.run(1000.0).sent == []
    assert path.search.size == 4000


@given(
    events=st.lists(
        st.tuples(
            st.sampled_from(["reach", "left", "suspect", "answer", "limit", "run"]), st.integers(0, 9000)
        ),
        max_size=60,
    )
)
def test_any_order_of_events_keeps_the_size_within_its_bounds(events: list[tuple[str, int]]) -> None:
    path = Path(1500, 1400)
    for what, number in events:
        search = path.search
        match what:
            case "reach":
                search.reached(path.now)
            case "left":
                search.left(path.now)
            case "suspect":
                search.suspect(path.now)
            case "answer":
                search.answered(min(number, search.most), path.now)
            case "limit":
                search.limit(max(number, LEAST), path.now)
            case "run":
                path.run(number / 1000)
        assert search.least <= search.size <= search.most
        assert (search.state is PathState.WAITING) <= (search.next_deadline() == NEVER)
