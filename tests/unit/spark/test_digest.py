"""The digest of rows: equal for the same rows in any order and division, different for any others.

The reference below follows the definition in docs/spark.md, with whole numbers and slices.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.spark_connectors.sink.naming import summed
from treecast.spark_connectors.sink.tables import Contents, Rows

pa = pytest.importorskip("pyarrow")

Row = dict[str, Any]
Lanes = tuple[int, int]
KINDS = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
MASK = 2**32 - 1


def turned(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & MASK


def fields_of(row: Row, topic: str) -> Iterator[tuple[int, bytes]]:
    """Yields (number, bytes) of what is not null."""
    named = topic or row["topic"]
    for number, value in enumerate((named, row["partition"], row["timestamp"], row["key"], row["value"]), 1):
        if isinstance(value, int):
            value = value.to_bytes(8, "little", signed=True)
        if value is not None:
            yield number, value.encode() if isinstance(value, str) else value
    for name, value in row["headers"] or ():
        yield 6, name.encode()
        if value is not None:
            yield 7, value


def words_of(fields: Iterable[tuple[int, bytes]]) -> Iterator[int]:
    for number, data in fields:
        yield len(data) * 8 + number
        for at in range(0, len(data), 8):
            yield int.from_bytes(data[at : at + 8], "little")


def mixed(lane: int) -> int:
    lane = (lane ^ lane >> 16) * 0x85EBCA6B & MASK
    lane = (lane ^ lane >> 13) * 0xC2B2AE35 & MASK
    return lane ^ lane >> 16


def lanes_of(row: Row, topic: str) -> Lanes:
    a = b = 0
    for word in words_of(fields_of(row, topic)):
        a ^= turned((word & MASK) * 0x239B961B & MASK, 15) * 0xAB0E9789 & MASK
        a = ((turned(a, 19) + b) * 5 + 0x561CCD1B) & MASK
        b ^= turned((word >> 32) * 0xAB0E9789 & MASK, 16) * 0x38B34AE5 & MASK
        b = ((turned(b, 17) + a) * 5 + 0x0BCAA747) & MASK
    a = a + b & MASK
    b = a + b & MASK
    a, b = mixed(a), mixed(b)
    return a + b & MASK, a + b + b & MASK


def arrow(rows: list[Row], names: Iterable[str]) -> Any:
    columns = []
    for name in names:
        values = [row[name] for row in rows]
        if name == "timestamp":
            values = [None if value is None else value * 1000 for value in values]
        if name == "headers":
            values = [None if v is None else [{"key": k, "value": x} for k, x in v] for v in values]
        columns.append(pa.array(values, KINDS[name]))
    return pa.RecordBatch.from_arrays(columns, list(names))


def digest(rows: list[Row], topic: str = "", names: Iterable[str] = KINDS) -> Lanes:
    contents = Contents(topic)
    contents.add(Rows(arrow(rows, names)))
    return contents.digest


def row(value: bytes | None = b"v", **given: Any) -> Row:
    return dict.fromkeys(KINDS) | {"topic": "t", "value": value} | given


short = st.none() | st.binary(max_size=40)
rows_of_any_kind = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["t", "other"]),
            "partition": st.none() | st.integers(0, 9),
            "timestamp": st.none() | st.integers(0, 2**41),
            "key": short,
            "value": short,
            "headers": st.none() | st.lists(st.tuples(st.text(max_size=9), short), max_size=2),
        }
    ),
    max_size=6,
)


@settings(max_examples=150)
@given(
    rows_of_any_kind, st.sampled_from(["", "t", "a topic of one's own"]), st.randoms(use_true_random=False)
)
def test_it_is_the_sum_of_the_rows(rows: list[Row], topic: str, chance: random.Random) -> None:
    wanted = summed(lanes_of(one, topic) for one in rows)
    assert digest(rows, topic) == wanted
    chance.shuffle(rows)
    cut = chance.randint(0, len(rows))
    assert summed([digest(rows[:cut], topic), digest(rows[cut:], topic)]) == wanted


def test_it_stays_what_it_is() -> None:
    """Homes keep digests: another version of this sink must compute the same."""
    rows = [
        row(b"%d" % n, key=b"k", timestamp=1_700_000_000_000 + n, headers=[("h", b"x")]) for n in range(9)
    ]
    assert digest(rows) == (0x4EA9FAFA, 0x854990DB)


def test_columns_that_are_not_there_are_null() -> None:
    assert digest([row()], "t") == digest([row()], "t", ["value"]) == digest([row()], "", ["topic", "value"])
    assert digest([row(headers=[])]) == digest([row()])


def test_a_slice_of_an_arrow_batch() -> None:
    rows = [row(b"%d" % n, key=b"%d" % -n, partition=n, timestamp=n) for n in range(9)]
    contents = Contents("")
    contents.add(Rows(arrow(rows, KINDS).slice(3, 4)))
    assert contents.digest == digest(rows[3:7])
    assert contents.rows == {"t": 4}


def test_strings_are_their_bytes() -> None:
    text = pa.RecordBatch.from_arrays([pa.array(["ä", None])], ["value"])
    contents = Contents("t")
    contents.add(Rows(text))
    assert contents.digest == digest([row("ä".encode()), row(None)])


@pytest.mark.parametrize(
    "other",
    [
        row(b"w"),
        row(b"v\0"),
        row(b""),
        row(None),
        row(None, key=b"v"),
        row(key=b""),
        row(topic="u"),
        row(partition=0),
        row(partition=1),
        row(timestamp=0),
        row(headers=[("v", None)]),
        row(headers=[("", b"v")]),
        row(headers=[("", b""), ("v", None)]),
    ],
)
def test_rows_that_differ(other: Row) -> None:
    assert digest([other]) != digest([row()])
    assert digest([row(), other]) != digest([row(), row()])


def test_totals_that_change_places() -> None:
    """As many rows with the same keys and the same totals, but each of another key; and all pairs of small
    ones: none has the digest of another.
    """
    north, south = row(b"20", key=b"north"), row(b"130", key=b"south")
    swapped = [row(b"130", key=b"north"), row(b"20", key=b"south")]
    assert digest([north, south]) != digest(swapped)
    single = [lanes_of(row(b"%d" % n, key=b"%d" % key), "") for n in range(40) for key in range(5)]
    pairs = {summed((one, two)) for place, one in enumerate(single) for two in single[place:]}
    assert len(pairs) == len(single) * (len(single) + 1) // 2


def test_what_is_written_without_transactions_is_only_counted() -> None:
    contents = Contents("t", digests=False)
    contents.add(Rows(arrow([row(), row()], ["value"])))
    assert (contents.rows, contents.digest) == ({"t": 2}, (0, 0))
