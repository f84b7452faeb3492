"""The plan of a read: nothing twice, nothing left out, no more than a trigger allows, losses reported."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.spark_connectors.source.offsets import (
    Offsets,
    Partition,
    Place,
    from_json,
    made_anew,
    parse_offsets,
    to_json,
)
from treecast.spark_connectors.source.planning import (
    Range,
    begun_again,
    begun_again_unknown,
    cut_back,
    limited,
    ranges,
    split,
    unproven,
)

T0, T1, U0 = Partition("t", 0), Partition("t", 1), Partition("u", 0)

partitions = st.sampled_from([T0, T1, U0, Partition("a.b", 10)])
offsets = st.dictionaries(partitions, st.integers(0, 1000))


def test_json_and_back() -> None:
    value = Place({T1: 5, T0: 3, U0: 0}, {"t": "an id"})
    assert to_json(value) == {"t": {"id": "an id", "0": 3, "1": 5}, "u": {"0": 0}}
    assert from_json(to_json(value)) == value
    assert parse_offsets(json.dumps(to_json(value)), "startingOffsets") == value.offsets


def test_a_checkpoint_of_an_earlier_version_has_no_ids() -> None:
    assert from_json({"t": {"0": 3}}) == Place({T0: 3}, {})


def test_offsets_of_a_topic_that_was_made_anew_say_nothing_of_it() -> None:
    before, now = Place({T0: 200, U0: 5}, {"t": "a", "u": "x"}), Place({T0: 10, U0: 9}, {"t": "b", "u": "x"})
    assert made_anew(before.ids, now.ids) == ["t"]
    assert begun_again(before, now) == Place({U0: 5}, {"u": "x"})
    longer = Place({T0: 300, U0: 9}, now.ids)
    assert begun_again(before, longer) == Place({U0: 5}, {"u": "x"}), "the end has advanced"
    assert begun_again(before, Place({T0: 10, U0: 9}, before.ids)) == before, "its end was cut off"
    assert begun_again_unknown(before, now) == before
    without = Place({T0: 200, U0: 5})
    assert begun_again(without, now) == without
    assert begun_again_unknown(without, now) == Place({U0: 5})
    assert begun_again_unknown(without, longer) == without


@given(offsets, offsets, st.integers(1, 2000))
def test_a_trigger_takes_as_much_as_it_may(start: Offsets, latest: Offsets, max_rows: int) -> None:
    end = limited(start, latest, max_rows)
    assert set(end) == set(latest)
    begun = {partition: min(start.get(partition, 0), latest[partition]) for partition in latest}
    taken = {partition: end[partition] - begun[partition] for partition in end}
    waiting = {partition: latest[partition] - begun[partition] for partition in latest}
    least = sum(map(bool, waiting.values()))
    assert all(bool(waiting[part]) <= taken[part] <= waiting[part] for part in end), "none is left waiting"
    assert sum(taken.values()) == min(max(max_rows, least), sum(waiting.values()))


def test_each_partition_in_proportion() -> None:
    assert limited({T0: 10, T1: 0}, {T0: 110, T1: 300}, 40) == {T0: 20, T1: 30}
    assert limited({}, {T0: 3000, T1: 1}, 100) == {T0: 99, T1: 1}, "as Spark's source: at least one"
    assert limited({}, {T0: 3000, T1: 1, U0: 9}, 1) == {T0: 1, T1: 1, U0: 1}


@given(offsets, st.integers(1, 50))
def test_splits_cover_everything_once(sizes: Offsets, pieces: int) -> None:
    whole = [Range(partition, 7, 7 + size) for partition, size in sorted(sizes.items()) if size]
    parts = split(whole, pieces)
    covered = [(part.partition, offset) for part in parts for offset in range(part.first, part.until)]
    assert covered == [(part.partition, offset) for part in whole for offset in range(part.first, part.until)]
    assert all(len(part) for part in parts)
    assert len(parts) >= min(pieces, sum(map(len, whole)), len(whole) * pieces)


def test_ranges_of_new_partitions_begin_at_their_start() -> None:
    losses: list[str] = []
    found = ranges({T0: 5}, {T0: 9, T1: 4, U0: 3}, {T0: 0, T1: 0, U0: 3}, losses)
    assert (found, losses) == ([Range(T0, 5, 9), Range(T1, 0, 4)], [])


@pytest.mark.parametrize(
    ("start", "end", "earliest", "message", "left"),
    [
        ({T0: 5}, {T0: 9}, {T0: 7}, "t-0: offsets 5 to 6 are gone", [Range(T0, 7, 9)]),
        ({T0: 5}, {T0: 9}, {T0: 20}, "t-0: offsets 5 to 8 are gone", []),
        ({T0: 5, T1: 1}, {T0: 5}, {T0: 0}, "t-1: no longer there", []),
        ({T0: 50}, {T0: 9}, {T0: 0}, "t-0: read up to 50, but it ends at 9", []),
    ],
)
def test_losses(start: Offsets, end: Offsets, earliest: Offsets, message: str, left: list[Range]) -> None:
    losses: list[str] = []
    assert ranges(start, end, earliest, losses) == left
    assert losses == [message]


def test_ends_that_are_not_known_are_asked_for() -> None:
    end = {T0: 9, T1: 4, U0: 7}
    assert unproven({T0: 5, U0: 7}, end, {T0: 9}) == {T1: 4}, "nothing is to be read of the third"
    assert unproven({}, end, {}) == end
    assert unproven({}, end, {T0: 8, T1: 9, U0: 7}) == {T0: 9}


def test_ends_that_do_not_exist_are_cut_back_and_told() -> None:
    losses: list[str] = []
    end = {T0: 100, T1: 100, U0: 100, Partition("v", 0): 5}
    found = cut_back({T0: 3, T1: 50, U0: 7}, end, {T0: 10, T1: 20}, {T0, T1, U0}, losses)
    assert found == {T0: 10, T1: 20, U0: 7, Partition("v", 0): 5}
    assert ranges({T0: 3, T1: 50, U0: 7}, found, {}, losses)[0] == Range(T0, 3, 10)
    assert losses == [
        "t-0: to be read up to 100, but it ends at 10",
        "u-0: to be read up to 100, but it is no longer there",
        "t-1: read up to 50, but it ends at 20",
    ], "each loss is told once"


def test_a_log_that_begins_later_than_all_that_was_read_is_no_loss() -> None:
    losses: list[str] = []
    assert ranges({T0: 9}, {T0: 9}, {T0: 20}, losses) == losses == []
