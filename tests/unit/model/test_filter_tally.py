"""Messages that filters judge are counted in full or not at all, bounded, and timed by samples."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.model.filter_tally import TEXT, TEXTS, ChangeTally, FilterTally, Wishes, wishes_of

NAMES = st.sampled_from([f"p{n}" for n in range(40)])
JUDGED = st.lists(st.tuples(st.integers(0, 3), NAMES, st.integers(0, 99), st.booleans()), max_size=200)


def wishes(name: str) -> Wishes:
    return wishes_of({(name, "a > 1")}, False)


@given(JUDGED, st.integers(1, 300))
def test_what_is_listed_is_counted_in_full(judged: list[tuple[int, str, int, bool]], most: int) -> None:
    tally = FilterTally(lambda: 0, most)
    reference: dict[tuple[int, str], Counter[str]] = {}
    for origin, name, size, passed in judged:
        tally.judged(origin, wishes(name), size, passed, tally.began())
        one = reference.setdefault((origin, name), Counter())
        one["messages"] += 1
        one["size"] += size
        one["passed"] += passed
        one["passed_size"] += passed * size
    taken = tally.take()
    found = {(origin, named.listed[0][0]): one for origin, named, one in taken.counts}
    assert len(found) == len(taken.counts) <= most
    for key, one in found.items():
        whole = reference[key]
        assert (one.messages, one.size) == (whole["messages"], whole["size"])
        assert (one.passed, one.passed_size) == (whole["passed"], whole["passed_size"])
    if taken.sampled == 1.0:
        assert found.keys() == reference.keys()
    else:
        assert len(reference) > most
    again = tally.take()
    assert (again.sampled, again.counts) == (1.0, ())


def test_of_many_origins_with_one_set_of_filters_a_share_is_kept() -> None:
    for name in ("a", "b", "c", "d"):
        tally = FilterTally(lambda: 0, 256)
        for origin in range(2000):
            for _ in range(3):
                tally.judged(origin, wishes(name), 1, True, 0)
        taken = tally.take()
        assert {one.messages for _, _, one in taken.counts} == {3}
        assert 0.5**5 <= taken.sampled <= 0.5**2
        assert 1000 < len(taken.counts) / taken.sampled < 4000  # the share, extrapolated, is about all


def test_one_message_in_sixteen_is_timed_and_counts_for_all() -> None:
    clock = count(1000, 5)  # 5 ns pass between two looks
    tally = FilterTally(lambda: next(clock))
    for _ in range(64):
        tally.judged(1, wishes("a"), 1, True, tally.began())
    ((_, _, one),) = tally.take().counts
    assert one.nanoseconds == 64 * 5
    assert next(clock) == 1000 + 5 * 8  # two looks for each of four messages


def test_more_filters_than_can_be_listed_stand_for_none() -> None:
    some = {(f"p{n}", "a > 1") for n in range(33)}
    many, fewer = wishes_of(some, False), wishes_of(set(sorted(some)[:32]), False)
    assert (many.listed, many.count) == ((), 33)
    assert (len(fewer.listed), fewer.count) == (32, 32)
    assert many != wishes_of({*some, ("q", "b > 1")}, False)


def test_changes_are_bounded() -> None:
    tally = ChangeTally(2)
    for client in ("a", "b", "c"):
        tally.add(client, True, "t/+", "")
    taken = tally.take()
    assert [one.client for one in taken.listed] == ["a", "b"]
    assert taken.left_out == 1
    assert (tally.take().listed, tally.take().left_out) == ((), 0)


def test_a_long_text_is_counted_and_not_listed() -> None:
    long, longest = "a == " + "1" * TEXT, "é" * (TEXT // 2)  # of bytes, and not of characters
    for text in (long, "é" + longest):
        found = wishes_of({("t/+", "a > 1"), ("t/x", text)}, False)
        assert (found.listed, found.count, found.size) == ((), 2, 0)
        assert wishes_of({(text, "a > 1")}, False).listed == ()
    assert wishes_of({("t", longest)}, False).listed == (("t", longest),)
    tally = ChangeTally()
    for pattern, text in (("t", long), (long, ""), ("t", longest)):
        tally.add("me", True, pattern, text)
    taken = tally.take()
    assert [one.filter for one in taken.listed] == [longest]
    assert taken.left_out == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400)), max_size=60), st.integers(401, 3000))
def test_texts_that_are_listed_have_bounded_bytes(judged: list[tuple[int, int]], room: int) -> None:
    tally = FilterTally(lambda: 0, room=room)
    for _ in range(2):  # the second interval begins with all the room
        for origin, size in judged:
            tally.judged(origin, wishes_of({("p" * size, "")}, False), 1, True, 0)
        taken = tally.take()
        sizes = [sum(len(text) for one in named.listed for text in one) for _, named, _ in taken.counts]
        assert sum(sizes) <= room
        whole = sum(size for _, size in set(judged))
        assert (taken.sampled == 1.0) == (whole <= room)


def test_changes_have_bounded_bytes() -> None:
    tally = ChangeTally()
    for _ in range(2):
        for _ in range(200):
            tally.add("me", True, "t/+", "f" * TEXT)
        taken = tally.take()
        assert len(taken.listed) == TEXTS // (TEXT + 3)
        assert len(taken.listed) + taken.left_out == 200
