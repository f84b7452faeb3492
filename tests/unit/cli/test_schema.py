"""`treecast schema`: declared fields of topics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Treecast

AVRO = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "stock", "type": "string"}, {"name": "n", "type": ["null", "long"]}],
    }
)
PROTO = 'syntax = "proto3"; message Other {} message Order { string stock = 1; uint32 price = 2; }'


def test_schemas_are_declared_grown_listed_and_deleted(treecast: Treecast) -> None:
    treecast("topics", "create", "orders")
    assert "no schemas" in treecast("schema", "list").out
    made = treecast("schema", "create", "orders", "--fields", "stock:8s,price:u32", "--from", "json")
    assert made.lines == ["declared 2 fields of orders"]
    again = treecast("schema", "create", "orders", "--fields", "stock:8s", "--from", "json")
    assert again.code != 0
    assert "treecast schema evolve orders" in again.err
    refused = treecast("filter", "create", "big", "prize > 50", "--topic", "orders")
    assert refused.code != 0
    assert "declares no field prize; it has stock:8s, price:u32" in refused.err
    assert treecast("filter", "create", "big", "price > 50", "--topic", "orders").code == 0
    assert treecast("schema", "evolve", "orders", "--fields", "venue:4s?").lines == [
        "orders has version 2 of its schema"
    ]
    (shown,) = treecast("schema", "list", "--json").json
    assert shown["fields"] == "stock:8s,price:u32,venue:4s?"
    assert [one["fields"] for one in shown["versions"]] == ["stock:8s,price:u32", shown["fields"]]
    assert "stock:8s,price:u32,venue:4s?" in treecast("schema", "list").out
    assert treecast("schema", "evolve", "orders", "--fields", "price:u64").code != 0
    assert treecast("schema", "delete", "orders").lines == ["deleted the schema of orders"]
    assert treecast("schema", "delete", "orders").code != 0
    assert treecast("schema", "evolve", "orders", "--fields", "a:s").code != 0


def test_fields_of_a_schema_text(treecast: Treecast, tmp_path: Path) -> None:
    avro, proto = tmp_path / "r.avsc", tmp_path / "r.proto"
    avro.write_text(AVRO)
    proto.write_text(PROTO)
    for topic in ("by-avro", "by-protobuf"):
        treecast("topics", "create", topic)
    made = treecast(
        "schema", "create", "by-avro", "--from", "avro", "--schema", str(avro), "--id", "7", "--json"
    )
    assert (made.json["fields"], made.json["versions"][0]["ids"]) == ("stock:s,n:i64?", [7])
    words = ("--from", "protobuf", "--schema", str(proto), "--message", "Order", "--bare", "--json")
    made = treecast("schema", "create", "by-protobuf", "--fields", "price:u32", *words)
    assert (made.json["fields"], made.json["framed"]) == ("price:u32", False)
    for topic in ("by-avro", "by-protobuf"):
        treecast("schema", "delete", topic)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--from", "xml"), "json, fixed, fixed-le, avro, protobuf"),
        (("--from", "json"), "--fields stock:8s,price:u32"),
        (("--from", "json", "--fields", "a:u7"), "no type 'u7'"),
        (("--from", "avro", "--fields", "a:s"), "--schema FILE"),
        (("--from", "fixed", "--fields", "a:s"), "needs a width"),
        (("--from", "avro", "--schema", "/nowhere"), "cannot be read"),
        (("--from", "json", "--fields", "a:s", "--schema", "/nowhere"), "need no --schema"),
    ],
)
def test_what_cannot_be_declared(treecast: Treecast, words: tuple[str, ...], reason: str) -> None:
    treecast("topics", "create", "wrong")
    refused = treecast("schema", "create", "wrong", *words)
    assert refused.code != 0
    assert reason in refused.err


def test_a_daemon_refuses_what_the_command_lets_through(treecast: Treecast) -> None:
    treecast("topics", "create", "direct")
    text = json.dumps({"from": "json", "versions": [{"fields": "a:u7"}]})
    refused = treecast("topics", "alter", "direct", "--config", f"treecast.schema={text}")
    assert refused.code != 0
    assert "no type 'u7'" in refused.err
