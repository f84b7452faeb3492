"""Declared fields: what settings say, and what readers of each format find in values."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.filters.avro_writer import encoded, long

from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.filters.schemas import avro
from treecast.middleware.filters.schemas.check import check_filter
from treecast.middleware.filters.schemas.reader import SchemaReader, reader_of
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.model.topic_schema import (
    SchemaVersion,
    TopicSchema,
    read_fields,
    read_schema,
    write_schema,
)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "notes", "type": {"type": "array", "items": "string"}},
        {"name": "stock", "type": "string"},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}},
        {"name": "price", "type": ["null", "long"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {
            "name": "trader",
            "type": ["null", {"type": "record", "name": "T", "fields": [{"name": "desk", "type": "int"}]}],
        },
        {"name": "hash", "type": {"type": "fixed", "name": "H", "size": 4}},
        {"name": "ratio", "type": "double"},
    ],
}
VALUE: dict[str, Any] = {
    "notes": ["a", "bc"],
    "stock": "GOOGL",
    "side": "SELL",
    "price": (1, 55),
    "tags": {"x": 1, "y": -70000},
    "trader": (1, {"desk": 7}),
    "hash": b"abcd",
    "ratio": 0.5,
}
FIELDS = "stock:8s,side:s,price:u32?,trader.desk:i32?,ratio:f64,hash:4s"


def schema(format: str, *fields: str, framed: bool = True, text: str = "", ids: Any = ()) -> TopicSchema:
    numbers = list(ids) or [()] * len(fields)
    versions = (SchemaVersion(read_fields(one), text, "", n) for one, n in zip(fields, numbers, strict=True))
    return read_schema(write_schema(TopicSchema(format, tuple(versions), framed)))


def reader(format: str, *fields: str, **more: Any) -> SchemaReader:
    return SchemaReader(schema(format, *fields, **more))


# --- settings


@pytest.mark.parametrize("text", ["stock:8s,price:u32", "a.b:i64?,c:bool,d:f32,e:s"])
def test_fields_are_written_as_they_are_read(text: str) -> None:
    assert ",".join(field.text for field in read_fields(text)) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 to 200 fields, not 0"),
        ("price", "NAME:TYPE"),
        ("price:u33", "no type 'u33'"),
        ("price:f16", "no type 'f16'"),
        ("price:u32,price:s", "declared twice"),
        ("a b:u32", "NAME:TYPE"),
        ("a:70000s", "at most 65,535 bytes"),
    ],
)
def test_wrong_fields(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_fields(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "truncated"),
        ('{"from":"xml","versions":[{"fields":"a:s"}]}', "not 'xml'"),
        ('{"from":"json","versions":[]}', "1 to 50 versions"),
        ('{"from":"json","versions":[{"fields":"a:s","more":1}]}', "unknown field"),
        ('{"from":"avro","versions":[{"fields":"a:s"}]}', "needs its schema text"),
        ('{"from":"json","versions":[{"fields":"a:s","schema":"x"}]}', "no schema text"),
        ('{"from":"json","versions":[{"fields":"a:s"},{"fields":"b:s"}]}', "a would be gone"),
        ('{"from":"json","versions":[{"fields":"a:s"},{"fields":"a:u8"}]}', "a would be u8 instead of s"),
        ('{"from":"fixed","versions":[{"fields":"a:u8"},{"fields":"b:u8,a:u8"}]}', "behind those there are"),
        ('{"from":"json","versions":[{"fields":"a:s"}]' + " " * 16_000 + "}", "at most 16,000 characters"),
    ],
)
def test_wrong_settings(text: str, reason: str) -> None:
    with pytest.raises(TreecastError, match=reason) as caught:
        read_schema(text)
    assert caught.value.fault is Fault.INVALID_CONFIG


# --- filters


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("prize > 5", "declares no field prize; it has stock:8s,? ?price:u32"),
        ("value.prize > 5", "no field prize"),
        ("price == abc", "compared with a number, not a string"),
        ("stock == 5", "compared with a string, not a number"),
        ("not (live == 1)", "true or false, not a number"),
    ],
)
def test_filters_that_do_not_fit(text: str, reason: str) -> None:
    with pytest.raises(TreecastError, match=reason):
        check_filter(parse(text), schema("json", "stock:8s,price:u32,live:bool"))


def test_parts_of_the_record_need_no_declaration() -> None:
    text = "key == a and key.id > 5 and headers.h == x and offset > 4 and value.price > 5 and topic == t"
    check_filter(parse(text), schema("json", "price:u32"))


WRONG = (
    *(b"", None, b"{}", b'{"price":-1}', b'{"price":"7"}', b"[]"),
    *(b'{"price":"\xff"}', b'{"price":5,"more":"\xff"}', b'{"price":5,"\xff":1}'),
)


def test_a_record_that_does_not_meet_the_schema_passes_no_filter() -> None:
    found = reader("json", "price:u32")
    wanted = RecordFilter(parse("not price > 5"), "t", 0, found)
    bad = [Record(None, value) for value in WRONG]
    assert (wanted.select([*bad, Record(None, b'{"price":5,"more":[]}')]), wanted.unmet) == (
        [Record(None, b'{"price":5,"more":[]}')],
        len(bad),
    )


# --- JSON


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"stock": "GOOGL", "order": {"price": 5}}, ["GOOGL", 5, None]),
        ({"stock": "GOOGL", "order": {"price": 5}, "live": True}, ["GOOGL", 5, True]),
        ({"stock": "GOOGL", "order": {"price": 5}, "live": None}, ["GOOGL", 5, None]),
        ({"stock": "GOOGLGOOGL", "order": {"price": 5}}, None),
        ({"stock": "GOOGL", "order": {"price": 5.5}}, None),
        ({"stock": "GOOGL", "order": {"price": True}}, None),
        ({"stock": "GOOGL", "order": {"price": 2**32}}, None),
        ({"stock": "GOOGL", "order": 5}, None),
        ({"stock": "GOOGL", "order": {"price": 5}, "live": 1}, None),
    ],
)
def test_json(value: object, found: object) -> None:
    wanted = reader("json", "stock:8s,order.price:u32,live:bool?")
    data = json.dumps(value).encode()
    assert wanted.read(data) == found
    assert wanted.read(b"\0\0\0\0\7" + data) == found  # as a schema registry frames JSON


def test_records_of_all_versions_meet_the_schema() -> None:
    wanted = reader("json", "stock:8s", "stock:8s,venue:s")
    assert wanted.paths == (("stock",), ("venue",))
    assert wanted.read(b'{"stock":"A"}') == ["A", None]
    assert wanted.read(b'{"stock":"A","venue":"X"}') == ["A", "X"]


# --- fixed layouts


def test_fixed_layouts() -> None:
    wanted = reader(
        "fixed", "stock:8s,_:2s,price:u32,live:bool", "stock:8s,_:2s,price:u32,live:bool,change:i16"
    )
    value = struct.pack(">8s2sI?", b"GOOGL\0\0\0", b"..", 7, True)
    assert wanted.paths == (("stock",), ("price",), ("live",), ("change",))
    assert wanted.read(value) == ["GOOGL", 7, True, None]
    assert wanted.read(value + struct.pack(">h", -3)) == ["GOOGL", 7, True, -3]
    assert wanted.read(value + b"x") is None
    assert wanted.read(value[:-1] + b"\2") is None
    assert reader("fixed-le", "price:u32").read(struct.pack("<I", 7)) == [7]


@pytest.mark.parametrize(("fields", "reason"), [("a:s", "needs a width"), ("a:u8?", "cannot be optional")])
def test_wrong_fixed_layouts(fields: str, reason: str) -> None:
    with pytest.raises(TreecastError, match=reason):
        reader("fixed", fields)


def test_a_number_that_is_none_has_no_value() -> None:
    assert reader("fixed", "ratio:f64").read(struct.pack(">d", float("nan"))) == [None]


# --- Avro


def test_a_schema_text_that_nests_too_deep_is_refused() -> None:
    with pytest.raises(TreecastError, match="no JSON"):
        reader("avro", "a:s", text="[" * 7_000 + "]" * 7_000)


def test_avro() -> None:
    data = encoded(ORDER, VALUE)
    wanted = reader("avro", FIELDS, text=json.dumps(ORDER), framed=False)
    assert wanted.read(data) == ["GOOGL", "SELL", 55, 7, 0.5, "abcd"]
    absent = {**VALUE, "price": (0, None), "trader": (0, None)}
    assert wanted.read(encoded(ORDER, absent)) == ["GOOGL", "SELL", None, None, 0.5, "abcd"]
    for end in range(len(data)):
        assert wanted.read(data[:end]) is None
    assert wanted.read(data + b"\0") is None


def test_golden_bytes_of_avro() -> None:
    """The example of the specification: {"a": 27, "b": "foo"} is 36 06 66 6f 6f."""
    text = (
        '{"type":"record","name":"test","fields":[{"name":"a","type":"long"},{"name":"b","type":"string"}]}'
    )
    assert reader("avro", "b:s,a:i64", text=text, framed=False).read(bytes.fromhex("3606666f6f")) == [
        "foo",
        27,
    ]


def test_numbers_of_a_schema_registry_choose_the_version() -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "long"}, *old["fields"]]}  # type: ignore[misc]
    versions = (
        SchemaVersion(read_fields("a:i64"), json.dumps(old), "", (4,)),
        SchemaVersion(read_fields("a:i64,b:i64"), json.dumps(new), "", (9,)),
    )
    wanted = SchemaReader(TopicSchema("avro", versions))
    assert wanted.read(b"\0\0\0\0\4" + encoded(old, {"a": 5})) == [5, None]
    assert wanted.read(b"\0\0\0\0\x09" + encoded(new, {"a": 5, "b": 6})) == [5, 6]
    assert wanted.read(b"\0\0\0\0\x07" + encoded(new, {"a": 5, "b": 6})) is None
    assert wanted.read(encoded(old, {"a": 5})) is None


def test_fields_of_an_avro_schema() -> None:
    found = avro.declared(avro.read_type(json.dumps(ORDER)))
    assert [field.text for field in found] == [
        "stock:s",
        "side:s",
        "price:i64?",
        "trader.desk:i32?",
        "ratio:f64",
    ]


def test_an_avro_type_that_contains_itself() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [{"name": "n", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
    }
    wanted = reader("avro", "n:i32", text=json.dumps(node), framed=False)
    value: Any = {"n": 1, "next": (0, None)}
    for number in range(2, 40):
        value = {"n": number, "next": (1, value)}
    assert wanted.read(encoded(node, value)) == [39]
    assert wanted.read(b"\2\2" * 500) is None


@pytest.mark.parametrize(
    ("text", "fields", "reason"),
    [
        ("{", "a:s", "no JSON"),
        ('"int"', "a:s", "no record"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"X"}]}', "a:s", "does not define"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}', "b:s", "no field b"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}', "a:s", "is int .* not s"),
        ('{"type":"record","name":"R","fields":[{"name":"a"}]}', "a:s", "no name or no type"),
        ('{"type":"fixed","name":"R"}', "a:s", "no size"),
    ],
)
def test_wrong_avro_schemas(text: str, fields: str, reason: str) -> None:
    with pytest.raises(TreecastError, match=reason):
        reader("avro", fields, text=text)


# --- whatever arrives

PROTO = 'syntax = "proto3"; message M { string a = 1; int32 b = 2; M c = 3; }'


@given(st.binary(max_size=60))
def test_bytes_that_are_anything(data: bytes) -> None:
    for wanted in (
        reader_of(write_schema(schema("json", "a.b:u8"))),
        reader_of(write_schema(schema("fixed", "a:4s,b:f64"))),
        reader_of(write_schema(schema("avro", FIELDS, text=json.dumps(ORDER), framed=False))),
        reader_of(write_schema(schema("avro", FIELDS, text=json.dumps(ORDER)))),
        reader_of(write_schema(schema("protobuf", "a:s,c.b:i32?", text=PROTO, framed=False))),
        reader_of(write_schema(schema("protobuf", "a:s,c.b:i32?", text=PROTO))),
    ):
        found = wanted.read(data)
        assert found is None or len(found) == len(wanted.paths)
        wanted.read(b"\0\0\0\0\1" + data)


def nested(kind: str, fields: int, depth: int) -> dict[str, Any]:
    """A record that holds so many of the one below, each defined where it is first named."""
    inner: Any = kind
    for level in range(depth):
        names = [inner if not number or level == 0 else f"R{level - 1}" for number in range(fields)]
        members = [{"name": f"f{number}", "type": name} for number, name in enumerate(names)]
        inner = {"type": "record", "name": f"R{level}", "fields": members}
    return {
        "type": "record",
        "name": "Whole",
        "fields": [{"name": "more", "type": inner}, {"name": "a", "type": "int"}],
    }


EMPTY: dict[str, Any] = {"type": "fixed", "name": "F", "size": 0}


@pytest.mark.parametrize("kind", ["null", EMPTY], ids=["null", "fixed"])
def test_values_without_bytes_cost_nothing(kind: Any) -> None:
    wide = nested(kind, 20, 10)  # 20^10 values
    many = {
        "type": "record",
        "name": "Many",
        "fields": [
            {"name": "b", "type": {"type": "array", "items": wide["fields"][0]["type"]}},
            wide["fields"][1],
        ],
    }
    assert reader("avro", "a:i32", text=json.dumps(wide), framed=False).read(b"\x0e") == [7]
    wanted = reader("avro", "a:i32", text=json.dumps(many), framed=False)
    assert wanted.read(long(2**62) + long(5) + long(0) + b"\x0e") == [7]


def test_records_of_one_part_cost_as_much_as_it() -> None:
    wrapped = nested("int", 1, 50)
    items = {"type": "array", "items": wrapped["fields"][0]["type"]}
    text = {**wrapped, "fields": [{"name": "b", "type": items}, wrapped["fields"][1]]}
    wanted = reader("avro", "a:i32", text=json.dumps(text), framed=False)
    data = long(1_000) + b"\x02" * 1_000 + long(0) + b"\x0e"
    assert wanted.read(data) == [7]
    assert wanted.read(data[:-1]) is None


@pytest.mark.parametrize("parts", [["R"], ["R", "int"], ["null", "R", "R"]])
def test_a_record_that_holds_itself_always_has_no_value(parts: list[str]) -> None:
    members = [{"name": f"f{number}", "type": part} for number, part in enumerate(parts)]
    inner = {"type": "record", "name": "R", "fields": members}
    whole = {
        "type": "record",
        "name": "W",
        "fields": [{"name": "b", "type": inner}, {"name": "a", "type": "int"}],
    }
    assert reader("avro", "a:i32", text=json.dumps(whole), framed=False).read(b"\2" * 100) is None
