"""The consumers' protocol inside the classic one, compared with kafka-python's codec."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.broker.groups.consumer.embedded import (
    encode_assignment,
    parse_assignment,
    parse_subscription,
)

V0 = bytes.fromhex("0000 00000001 0001 74 ffffffff".replace(" ", ""))
V3 = bytes.fromhex(
    "0003 00000001 0001 74 00000001 55 00000001 0001 74 00000002 00000000 00000005 00000007 0001 72".replace(
        " ", ""
    )
)
partitions = st.dictionaries(
    st.text("abc.-_", min_size=1, max_size=9),
    st.lists(st.integers(0, 9999), min_size=1, unique=True).map(sorted),
)


def test_subscriptions() -> None:
    first, newest = parse_subscription(V0), parse_subscription(V3)
    assert (first.version, first.topics, first.owned, first.rack_id) == (0, {"t"}, {}, "")
    assert (newest.version, newest.topics, newest.owned, newest.rack_id) == (3, {"t"}, {"t": (0, 5)}, "r")
    assert parse_subscription(b"\0\x09" + V3[2:] + b"more") == parse_subscription(b"\0\x09" + V3[2:])


@given(partitions, st.integers(0, 5))
def test_an_assignment_is_read_as_it_was_written(found: dict[str, list[int]], version: int) -> None:
    written = encode_assignment(found, version)
    assert parse_assignment(written) == {topic: tuple(numbers) for topic, numbers in found.items()}


def test_kafka_python_reads_an_assignment() -> None:
    schemas = pytest.importorskip("kafka.protocol.consumer.metadata")
    decoded = schemas.ConsumerProtocolAssignment.decode(encode_assignment({"t": [0, 2]}, 0))
    assert [(row.topic, list(row.partitions)) for row in decoded.assigned_partitions] == [("t", [0, 2])]


def test_no_bytes_are_no_assignment() -> None:
    assert parse_assignment(b"") == {}


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused_or_read(data: bytes) -> None:
    for parse in (parse_subscription, parse_assignment):
        try:
            parse(data)
        except ValueError:
            pass


@pytest.mark.parametrize("end", range(len(V3)))
def test_what_ends_early_is_refused(end: int) -> None:
    with pytest.raises(ValueError, match=r"ends too early|elements"):
        parse_subscription(V3[:end])
