"""Filters over records: the source of each field, and missing values."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.records import JsonFields, RecordFilter, json_fields
from treecast.middleware.model.records import Record

RECORD = Record(
    key=b'{"id": 7}',
    value=b'{"price": 60, "stock": "GOOGL", "ip": {"dst": "10.0.0.1"}, "tags": ["x"],'
    b' "none": null, "ok": false}',
    headers=(("trace", b"old"), ("trace", b"new"), ("binary", b"\xff"), ("empty", None)),
    timestamp=1_700_000_000_000,
    offset=42,
)


def passes(text: str, record: Record = RECORD) -> bool:
    return RecordFilter(parse(text), "market", 3).matches(record)


@pytest.mark.parametrize(
    "text",
    [
        "topic == market and partition == 3 and offset == 42 and timestamp >= 1700000000000",
        "headers.trace == new",
        "key.id == 7",
        "key prefix '{\"id\"'",
        "value prefix '{'",
        "price > 50 and value.price < 70",
        "stock == GOOGL and ip.dst prefix '10.'",
        "value.ip.dst == 10.0.0.1",
        "ok == false",
        "not tags == x and not none == 0 and not ip == x",
        "not headers.binary == x and not headers.empty == '' and not headers.missing == 1",
        "not price.deeper == 1",
    ],
)
def test_fields(text: str) -> None:
    assert passes(text)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{",
        b"[1]",
        b"12",
        b"\xff",
        b'{"price": ',
        b"[" * 100_000,
        b'{"price":"\xff"}',
        b'{"price":1,"other":"\xff"}',
        b'{"price":1,"ip":{"dst":"x","\xff":1}}',
    ],
)
def test_what_is_no_object_has_no_fields(value: bytes | None) -> None:
    record = Record(key=None, value=value)
    assert not passes("price > 0 or ip.dst == x", record)
    assert not passes("price > 0", record)


def test_select_keeps_order() -> None:
    records = [Record(key=None, value=b'{"n": %d}' % n, offset=n) for n in range(10)]
    chosen = RecordFilter(parse("n < 2 or n > 7"), "t", 0).select(records)
    assert [record.offset for record in chosen] == [0, 1, 8, 9]


names = st.sampled_from(["a", "b", "c", "two words", "f0"])
trees = st.dictionaries(
    names,
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.lists(names),
)


@given(trees, st.lists(names, max_size=4))
def test_partial_decoding_equals_whole(tree: dict[str, object], wanted: list[str]) -> None:
    data = json.dumps(tree).encode()
    paths = [(name,) for name in wanted]
    assert list(JsonFields(paths)(data)) == json_fields(data, paths)


PIECES = st.sampled_from(
    [
        *(b'"a":', b'"b":', b'"\xff":', b'"\\u0061":', b'"\\ud800\\u0041":', b"{", b"}", b"[", b"]", b","),
        *(
            b"1",
            b"1e999",
            b"9" * 5000,
            b"01",
            b"1e",
            b"-",
            b"true",
            b"null",
            b'"\xff"',
            b'"x"',
            b'"\xc3\xa9"',
        ),
        *(b'"\\ud800\\u0041"', b'"\\ud83d\\ude00"', b'"\\x"', b'"\x01"', b"\xed\xa0\x80", b" "),
    ]
)
LEAVES = st.sampled_from(
    [
        b"1",
        b"1e999",
        b"9" * 5000,
        b'"\xff"',
        b'"x"',
        b"null",
        b"[1e999]",
        b'"\\ud800\\u0041"',
        b'"\\ud83d\\ude00"',
    ]
)
KEYS = st.sampled_from([b"a", b"b", b"c", b"a", b"\\u0061", b"\xff", b"\\ud800\\u0041"])
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(st.tuples(KEYS, inner), max_size=4).map(
        lambda ones: b"{" + b",".join(b'"' + key + b'":' + value for key, value in ones) + b"}"
    ),
    max_leaves=8,
)
PATHS = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple), min_size=1, max_size=4)


@settings(max_examples=500)
@given(OBJECTS | st.lists(PIECES, max_size=8).map(b"".join) | st.binary(max_size=12), PATHS)
def test_a_field_is_the_same_whichever_others_are_read(data: bytes, paths: list[tuple[str, ...]]) -> None:
    together = list(JsonFields(paths)(data))
    assert together == json_fields(data, paths)
    assert together == [JsonFields([path])(data)[0] for path in paths]


def test_a_number_without_a_value_is_that_of_its_field_alone() -> None:
    assert passes(
        "a == 1 and not b > 0 and c.d == 2", Record(None, b'{"b":1e999,"a":1,"c":{"d":2,"e":1e999}}')
    )
