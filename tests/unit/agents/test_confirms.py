"""Confirms: parts are settled in order, whichever way the server confirms."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.rabbitmq.confirms import Confirms


@given(st.lists(st.integers(0, 4), max_size=8), st.data())
def test_each_part_is_settled_once_and_in_order(counts: list[int], data: st.DataObject) -> None:
    confirms: Confirms[int] = Confirms()
    settled: list[int] = []
    for part, count in enumerate(counts):
        settled += confirms.wrote(count, part)
    confirmed: set[int] = set()
    ends = [sum(counts[: part + 1]) for part in range(len(counts))]
    while confirms.waiting:
        open_ones = sorted(set(range(1, sum(counts) + 1)) - confirmed)
        tag = data.draw(st.sampled_from(open_ones))
        multiple = data.draw(st.booleans())
        confirmed |= set(range(1, tag + 1)) if multiple else {tag}
        settled += confirms.confirmed(tag, multiple)
        floor = next(one for one in range(sum(counts) + 1) if one + 1 not in confirmed)
        assert settled == [part for part, end in enumerate(ends) if end <= floor]
        assert confirms.waiting == sum(counts) - len(confirmed)
    assert settled == list(range(len(counts)))
    assert confirms.left() == []


def test_a_tag_of_zero_confirms_all_so_far() -> None:
    confirms: Confirms[str] = Confirms()
    confirms.wrote(2, "a")
    confirms.wrote(1, "b")
    assert confirms.confirmed(0, True) == ["a", "b"]


def test_what_is_left_begins_again_with_the_first_number() -> None:
    confirms: Confirms[str] = Confirms()
    confirms.wrote(2, "a")
    confirms.wrote(1, "b")
    assert confirms.confirmed(1, False) == []
    assert confirms.left() == ["a", "b"]
    assert (confirms.sent, confirms.waiting) == (0, 0)
    assert confirms.wrote(1, "a") == []
    assert confirms.confirmed(1, False) == ["a"]


def test_confirms_of_nothing_are_ignored() -> None:
    confirms: Confirms[str] = Confirms()
    assert confirms.confirmed(7, False) == []
    assert confirms.confirmed(7, True) == []
    confirms.wrote(1, "a")
    assert confirms.waiting == 1
