"""Records of telemetry as rows: what is sound is decoded, what is not is counted and stops nothing."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.api import telemetry as topics
from treecast.middleware.api.v1 import telemetry_pb2 as pb
from treecast.middleware.filters.parse import parse
from treecast.spark_connectors.pipeline import rows
from treecast.spark_connectors.pipeline import tables as t

PLACE = (2, 7, "now")
NAMES = [part.split()[0] for part in t.JUDGED.split(", ")]


def interval(**changed: object) -> pb.TelemetryInterval:
    message = pb.TelemetryInterval(
        v=1, host="a", boot=3, seq=4, from_us=10, to_us=20, sampled=1.0, packets=9, bytes=900
    )
    labels = {"hop_labels": 10, "stop_labels": 5, "tree_labels": 5}
    message.sets.add(carrier="labels", receivers=["b", "c"], packets=5, bytes=500, header_bytes=50, **labels)
    message.sets.add(carrier="labels", receivers=["b"], packets=4, bytes=400, rule_version=2)
    message.streams.add(stream="orders-0", receiver="b", addressed=8, received=7, filtered=1)
    for name, value in changed.items():
        setattr(message, name, value)
    return message


def columns(table: str) -> list[str]:
    return [part.split()[0] for part in t.SCHEMAS[table].split(",")]


def named(table: str, row: rows.Row) -> dict[str, object]:
    return dict(zip(columns(table), row, strict=True))


def test_a_sound_interval_is_a_row_of_each_table() -> None:
    value = topics.encode(interval())
    one = named(t.INTERVALS, rows.interval_row(b"a", value, PLACE))
    assert (one["host"], one["boot"], one["seq"], one["packets"], one["sets"], one["fault"]) == (
        "a",
        3,
        4,
        9,
        2,
        "",
    )
    assert (one["partition"], one["offset"], one["timestamp"]) == PLACE
    first, second = (named(t.SENDS, row) for row in rows.set_rows(b"a", value, PLACE))
    assert (first["receivers"], first["packets"], first["hop_labels"]) == (["b", "c"], 5, 10)
    assert (second["receivers"], second["rule_version"], second["offset"]) == (["b"], 2, 7)
    assert first["set_id"] != second["set_id"] == rows.set_id(["b"])
    (stream,) = (named(t.STREAMS, row) for row in rows.stream_rows(b"a", value, PLACE))
    assert (stream["stream"], stream["addressed"], stream["received"], stream["lost"]) == (
        "orders-0",
        8,
        7,
        0,
    )


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"boot": 0}, "which interval"),
        ({"host": ""}, "which interval"),
        ({"to_us": 5_000_000, "from_us": 10_000_000}, r"ends 5\.0 s before it begins"),
        ({"sampled": 0.0}, "no share"),
        ({"sampled": 1.5}, "no share"),
        ({"packets": 8}, "its sets have 9 packets, and all together 8"),
        ({"v": 2}, "schema version 2"),
    ],
)
def test_what_cannot_be_is_an_interval_with_its_fault_alone(changed: dict[str, object], fault: str) -> None:
    value = topics.encode(interval(**changed))
    one = named(t.INTERVALS, rows.interval_row(b"a", value, PLACE))
    assert re.search(fault, str(one["fault"]))
    assert list(rows.set_rows(b"a", value, PLACE)) == list(rows.stream_rows(b"a", value, PLACE)) == []


@given(st.binary(max_size=300), st.one_of(st.none(), st.binary(max_size=20)))
def test_any_bytes_make_rows_of_the_schema(value: bytes, key: bytes | None) -> None:
    assert len(rows.interval_row(key, value, PLACE)) == len(columns(t.INTERVALS))
    assert all(len(row) == len(columns(t.SENDS)) for row in rows.set_rows(key, value, PLACE))
    assert all(len(row) == len(columns(t.STREAMS)) for row in rows.stream_rows(key, value, PLACE))
    assert all(len(row) == len(t.JUDGED.split(", ")) for row in rows.filter_rows(key, value, PLACE))


def filtered(share: float = 1.0) -> pb.TelemetryInterval:
    message = interval(filters_sampled=share)
    for pattern, text in (("t/+", "a > 3"), ("t/x", "b == 1 and c < 2")):
        one = message.filters.add(origin="b", count=1, messages=10, passed=4, bytes=1000, passed_bytes=400)
        one.wishes.add(pattern=pattern, filter=text)
    message.filters.add(origin="b", count=40, messages=1, bytes=9)
    message.filters.add(origin="b", count=40, messages=2, bytes=9)  # another set of as many
    both = message.filters.add(origin="a", count=2, open=True, messages=3, bytes=30, cpu_us=7)
    both.wishes.extend(wish for each in message.filters[:2] for wish in each.wishes)
    message.changes.add(client="c1", begun=True, pattern="t/+", filter="a > 3")
    message.changes.add(client="c2", begun=False, pattern="t/+")
    message.repairs.add(stream="orders-0", carrier="udp", packets=2, bytes=300)
    return message


def test_what_filters_have_judged_is_a_row_for_each_set() -> None:
    value = topics.encode(filtered(0.5))
    found = [named(t.FILTER_MINUTES, row) for row in rows.filters_of_slot(value, 60)]
    one, _, many, both = found
    assert (one["host"], one["origin"], one["patterns"], one["filter"]) == ("a", "b", ["t/+"], "a > 3")
    assert (one["messages"], one["passed"], one["bytes"], one["passed_bytes"]) == (20, 8, 2000, 800)
    assert (many["filter"], many["filters"], many["messages"]) == ("", 40, 6)  # none is left out
    assert (both["open"], both["filters"], both["cpu_us"]) == (True, 2, 14)
    assert both["filter"] == "(a > 3) or (b == 1 and c < 2)"
    parse(str(both["filter"]))
    of_epoch = [dict(zip(NAMES, row, strict=True)) for row in rows.filter_rows(b"a", value, PLACE)]
    assert [one["messages"] for one in of_epoch] == [one["messages"] for one in found]
    assert {(one["boot"], one["seq"], one["offset"]) for one in of_epoch} == {(3, 4, 7)}


def test_changes_and_repairs_are_rows_of_their_minutes() -> None:
    value = topics.encode(filtered())
    changes = [named(t.CHANGE_MINUTES, row) for row in rows.changes_of_slot(value, 60)]
    assert [(one["client"], one["begun"], one["ended"]) for one in changes] == [("c1", 1, 0), ("c2", 0, 1)]
    (repair,) = (named(t.REPAIR_MINUTES, row) for row in rows.repairs_of_slot(value, 60))
    assert (repair["stream"], repair["packets"], repair["bytes"]) == ("orders-0", 2, 300)
