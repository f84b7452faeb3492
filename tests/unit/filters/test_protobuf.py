"""Protobuf values, written by its own library from the same .proto text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.filters.avro_writer import long

from treecast.middleware.filters.schemas.protobuf import declared, message_of
from treecast.middleware.filters.schemas.protobuf_text import read_file
from treecast.middleware.filters.schemas.reader import SchemaReader
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.topic_schema import SchemaVersion, TopicSchema, read_fields

TEXT = """
syntax = "proto3";  // the newest
package shop.v1;
import "google/protobuf/timestamp.proto";
option java_package = "org.example";

/* an order,
   as it is sent */
message Order {
  reserved 40 to 50, 99;
  enum Side { option allow_alias = true; BUY = 0; SELL = 1; OUT = 1; SHORT = -1 [deprecated = true]; }
  message Trader { sint32 desk = 1; string name = 2; }
  string stock = 1;
  uint32 price = 2 [json_name = "p"];
  optional int64 change = 3;
  Side side = 4;
  Trader trader = 5;
  repeated string notes = 6;
  map<string, int32> tags = 7;
  oneof way { bool air = 8; double weight = 9; }
  fixed32 f32 = 10; sfixed64 sf64 = 11; float ratio = 12; bytes raw = 13; int32 small = 14;
  Order before = 15;
}

message Other { Order order = 1; }
service Orders { rpc Send(Order) returns (Other) { option deprecated = true; } }
"""
FIELDS = (
    "stock:8s,price:u32,change:i64?,side:s,trader.desk:i32?,air:bool?,weight:f64?,f32:u32,sf64:i64,ratio:f32,"
    "raw:s,small:i32,before.price:u32?"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Returns the classes of the file's messages, by the compiler's own description of it."""
    from grpc_tools import protoc

    folder: Path = tmp_path_factory.mktemp("proto")
    (folder / "order.proto").write_text(TEXT)
    out = folder / "order.bin"
    include = Path(protoc.__file__).parent / "_proto"
    words = ["protoc", f"-I{folder}", f"-I{include}", f"--descriptor_set_out={out}", "--include_imports"]
    assert protoc.main([*words, "order.proto"]) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)  # type: ignore[no-untyped-call]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.v1.{name}"))  # type: ignore[no-untyped-call]
        for name in ("Order", "Other")
    }


def reader(fields: str = FIELDS, message: str = "", framed: bool = False) -> SchemaReader:
    version = SchemaVersion(read_fields(fields), TEXT, message)
    return SchemaReader(TopicSchema("protobuf", (version,), framed))


SIDES = st.sampled_from([("BUY", 0), ("SELL", 1), ("SHORT", -1)])


@given(
    st.text(max_size=2),
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    SIDES,
    st.none() | st.integers(-(2**31), 2**31 - 1),
    st.none() | st.booleans() | st.floats(allow_nan=False),
    st.lists(st.text(max_size=5), max_size=3),
    st.none() | st.integers(0, 2**32 - 1),
)
def test_values_are_as_the_library_wrote_them(
    made: Any,
    stock: str,
    price: int,
    change: int | None,
    side: tuple[str, int],
    desk: int | None,
    way: bool | float | None,
    notes: list[str],
    before: int | None,
) -> None:
    order = made["Order"](stock=stock, price=price, side=side[1], notes=notes, tags={"x": 1}, small=-5)
    order.sf64, order.f32, order.ratio, order.raw = change or 0, price, 0.5, b"raw"
    if change is not None:
        order.change = change
    if desk is not None:
        order.trader.desk = desk
    if before is not None:
        order.before.price = before
    if isinstance(way, bool):
        order.air = way
    elif way is not None:
        order.weight = way
    air, weight = (way, None) if isinstance(way, bool) else (None, way)
    expected = [stock, price, change, side[0], desk, air, weight, price, change or 0, 0.5, "raw", -5, before]
    data = order.SerializeToString(deterministic=True)
    assert reader().read(data) == expected
    assert reader(framed=True).read(b"\0\0\0\0\7\0" + data) == expected
    assert reader(framed=True).read(b"\0\0\0\0\7\2\0" + data) == expected  # one step, to the first message
    assert reader(framed=True).read(b"\0\0\0\0\7\2\2" + data) is None  # to the second
    inside = made["Other"](order=order).SerializeToString(deterministic=True)
    assert reader("order.stock:s?", "shop.v1.Other").read(inside) == [stock]


def test_the_last_value_counts_and_messages_are_merged(made: Any) -> None:
    first = made["Order"](price=1, trader={"desk": 3}).SerializeToString()
    second = made["Order"](price=2, trader={"name": "x"}).SerializeToString()
    assert reader("price:u32,trader.desk:i32?").read(first + second) == [2, 3]


def test_a_value_that_is_none_stays_so_in_a_merged_message(made: Any) -> None:
    unknown = made["Other"](order=made["Order"](side=9)).SerializeToString()  # no symbol of the enum
    again = made["Other"](order=made["Order"](price=2)).SerializeToString()
    assert reader("order.side:s?,order.price:u32?", "shop.v1.Other").read(unknown + again) == [None, 2]


def test_a_way_to_a_message_is_read_as_far_as_it_may_lead() -> None:
    steps = long(400_000) + b"\2" * 400_000
    assert reader(framed=True).read(b"\0\0\0\0\7" + steps) is None


def test_fields_of_a_proto_file() -> None:
    file = read_file(TEXT)
    found = [field.text for field in declared(file, message_of(file, "Order"))]
    assert found[:6] == [
        "stock:s",
        "price:u32",
        "change:i64?",
        "side:s",
        "trader.desk:i32?",
        "trader.name:s?",
    ]
    assert {"air:bool?", "weight:f64?", "before.price:u32?"} <= set(found)
    assert not any(text.startswith(("notes", "tags")) for text in found)


@pytest.mark.parametrize(
    ("fields", "message", "reason"),
    [
        ("prize:u32", "", "prize is not in message Order"),
        ("notes:s", "", "notes is repeated"),
        ("price:s", "", "price is uint32 .* not s"),
        ("trader:s", "", "trader is a message"),
        ("stock.x:s", "", "stock.x is no message"),
        ("stock:s", "Ordre", "no message Ordre; it has Order"),
    ],
)
def test_fields_that_are_not_in_the_file(fields: str, message: str, reason: str) -> None:
    with pytest.raises(TreecastError, match=reason):
        reader(fields, message)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("message M {", "line 1: 'the end' is no type"),
        ("message M {\n string a = ; }", "line 2: a number is wanted"),
        ("message M { string a = 1 }", "';' is wanted"),
        ("hello", "no statement"),
        ("message M { @ }", "'@' is not expected"),
        ("package x", "';' is wanted, not the end"),
        ("message M { string a = 1 [", "']' is wanted"),
        ("service S {", "'}' is wanted"),
        ("enum E { A = 0;", "wanted|number"),
        ("message M { map<string", "type|wanted"),
        ("message M { group G = 1 {} }", "no type of a field"),
        ("message M {" * 30, "inside one another"),
    ],
)
def test_wrong_proto_files(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_file(text)
