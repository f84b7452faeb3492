"""Translated offsets: never behind a record that was not read, and exact where the map is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.kafka_bridge.offsets import MOST, NOTHING, OffsetMap, translated

# records of the source come in runs: a gap before it, its length, a gap of the target before it
runs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=40)


def filled(found: list[tuple[int, int, int]]) -> tuple[OffsetMap, dict[int, int]]:
    """Returns a map, and beside it a plain table of each record."""
    made, table, source, target = OffsetMap(), dict[int, int](), 0, 0
    made.begin(0, new=True)
    for gap, count, target_gap in found:
        source, target = source + gap, target + target_gap
        made.add(source, count, target)
        table |= {source + number: target + number for number in range(count)}
        source, target = source + count, target + count
    return made, table


@given(runs, st.integers(0, 400))
def test_the_first_record_that_was_not_read(found: list[tuple[int, int, int]], offset: int) -> None:
    made, table = filled(found)
    expected = min((place for name, place in table.items() if name >= offset), default=NOTHING)
    assert made.next_of(offset) == expected


@given(runs, st.integers(0, 400))
def test_the_other_direction(found: list[tuple[int, int, int]], target: int) -> None:
    made, table = filled(found)
    expected = min((name for name, place in table.items() if place >= target), default=NOTHING)
    assert made.source_of(target) == expected


@given(st.integers(MOST + 1, 4 * MOST), st.integers(0, 20 * MOST))
def test_a_bounded_map_misses_nothing(count: int, offset: int) -> None:
    made, table = filled([(1, 2, 2)] * count)
    assert len(made.segments) <= MOST
    expected = min((place for name, place in table.items() if name >= offset), default=NOTHING)
    found = made.next_of(offset)
    assert found is not None
    assert found <= expected
    assert made.next_of(max(table)) == table[max(table)]  # what is new is exact


@given(runs, runs, st.integers(0, 400))
def test_what_an_earlier_run_could_not_say_is_not_skipped(
    before: list[tuple[int, int, int]], lost: list[tuple[int, int, int]], offset: int
) -> None:
    """The memory of a killed agent ends before its last commit."""
    made, _ = filled(before)
    _, table = filled([*before, *lost])
    end = max(table) + 1
    made.begin(end, new=False)
    behind = max(table.values()) + 3
    made.add(end, 1, behind)
    table[end] = behind
    found, expected = (
        made.next_of(offset),
        min((at for name, at in table.items() if name >= offset), default=NOTHING),
    )
    assert found is not None
    assert found <= expected
    back = made.source_of(offset)
    names = min((name for name, at in table.items() if at >= offset), default=NOTHING)
    assert back is not None
    assert back <= names


def test_what_is_not_known_is_not_said() -> None:
    made = OffsetMap()
    assert made.next_of(0) is None
    made.begin(100, new=False)
    assert made.next_of(99) is None
    assert translated(150, made, None, 0) is None  # nothing was carried yet
    made.add(100, 10, 7)
    assert translated(105, made, None, 0) == 12
    assert translated(200, made, None, 0) == 17
    assert made.source_of(3) is None


def test_both_ways_a_group_goes_on_at_the_first_record_that_it_has_not_read() -> None:
    """Log of the source: a0 a1 b0; of the target: b0 a0 a1 b1, of which b1 is not carried yet."""
    own, back = OffsetMap(), OffsetMap()
    own.begin(0, new=True)
    back.begin(0, new=True)
    own.add(0, 2, 1)
    back.add(0, 1, 2)
    assert translated(0, own, back, 3) == 0  # b0 was not read, and is first there
    assert translated(2, own, back, 3) == 0  # a0, a1 were read, b0 was not
    assert translated(3, own, back, 3) == 3  # all that is carried was read: b1 is next
