"""The codec: golden bytes, round trips with pamqp as the other side, and rewritten properties."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter
from pamqp import body, frame, header
from tests.unit.amqp.face import Basic, frames_of
from tests.unit.amqp.field_tables import wire_tables

from treecast.middleware.broker.queues import Death, message
from treecast.shims.amqp import codec
from treecast.shims.amqp.codec import AmqpError
from treecast.shims.amqp.codec_deliver import Destination, write_confirm, write_deliveries
from treecast.shims.amqp.codec_methods import read_table, write_table
from treecast.shims.amqp.codec_properties import HEADERS_BIT, fields, joined, look, table_of, values
from treecast.shims.amqp.session_messages import shown

names = st.text(st.characters(codec="ascii", min_codepoint=33), max_size=20)
tables = st.dictionaries(
    names,
    st.recursive(
        st.one_of(
            st.integers(-(1 << 40), 1 << 40),
            names,
            st.booleans(),
            st.none(),
            st.floats(width=32, allow_nan=False),
        ),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
given_properties = st.fixed_dictionaries(
    {},
    optional={
        "content_type": names,
        "content_encoding": names,
        "headers": tables,
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": names,
        "reply_to": names,
        "expiration": st.integers(0, 10**9).map(str),
        "message_id": names,
        "timestamp": st.integers(0, 1 << 31).map(lambda at: datetime.fromtimestamp(at, UTC)),
        "message_type": names,
        "user_id": names,
        "app_id": names,
    },
)


def raw(properties: dict[str, object]) -> bytes:
    """Encodes properties by pamqp."""
    return Basic.Properties(**properties).marshal()  # type: ignore[arg-type]


@given(given_properties)
def test_properties_are_seen_as_they_were_written(properties: dict[str, object]) -> None:
    data = raw(properties)
    seen = look(data, 0, len(data))
    assert seen.persistent == (properties.get("delivery_mode") == 2)
    assert seen.priority == properties.get("priority", -1)
    assert seen.expiration == (properties["expiration"].encode() if properties.get("expiration") else None)  # type: ignore[attr-defined]
    assert joined(values(data)) == data


@given(tables)
def test_a_table_is_taken_apart_and_joined(table: dict[str, object]) -> None:
    data = values(raw({"headers": table}))[HEADERS_BIT] if table else b"\0\0\0\0"
    assert table_of(fields(data)) == data
    assert read_table(table_of(fields(data))) == read_table(data)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_as_syntax(data: bytes) -> None:
    for attempt in (lambda: look(data, 0, len(data)), lambda: fields(data), lambda: read_table(data)):
        try:
            attempt()
        except AmqpError as error:
            code = error.code
            assert code == codec.SYNTAX_ERROR


@given(
    st.lists(st.tuples(given_properties, st.binary(max_size=50)), min_size=1, max_size=4),
    st.integers(1, 1 << 60),
    st.booleans(),
    st.integers(20, 60),
)
def test_deliveries_are_read_by_pamqp(
    found: list[tuple[dict[str, object], bytes]], first: int, redelivered: bool, frame_max: int
) -> None:
    out = BytesWriter()
    data = b"".join(message(raw(properties), payload) for properties, payload in found)
    write_deliveries(out, Destination(9, b"tag", frame_max), data, first, redelivered, b"x", b"key")
    got = frames_of(out.getvalue())
    assert all(channel == 9 for channel, _ in got)
    at = 0
    for number, (properties, payload) in enumerate(found):
        method, head = got[at][1], got[at + 1][1]
        assert isinstance(method, Basic.Deliver)
        assert (method.consumer_tag, method.delivery_tag, method.redelivered) == (
            "tag",
            first + number,
            redelivered,
        )
        assert (method.exchange, method.routing_key) == ("x", "key")
        assert isinstance(head, header.ContentHeader)
        assert head.body_size == len(payload)
        assert head.properties.marshal() == raw(properties)
        at += 2
        pieces = b""
        while len(pieces) < len(payload):
            piece = got[at][1]
            assert isinstance(piece, body.ContentBody)
            assert len(piece.value) <= frame_max - 8
            pieces += piece.value
            at += 1
        assert pieces == payload
    assert at == len(got)


def test_golden_bytes() -> None:
    out = BytesWriter()
    write_confirm(out, 1, 5, True, True)
    write_confirm(out, 1, 6, False, False)
    assert out.getvalue() == bytes.fromhex(
        "01 0001 0000000d 003c 0050 0000000000000005 01 ce 01 0001 0000000d 003c 0078 0000000000000006 00 ce"
    )
    out = BytesWriter()
    write_deliveries(out, Destination(2, b"t", 4096), message(b"\0\0", b"hi"), 1, True, b"", b"q")
    assert out.getvalue() == bytes.fromhex(
        "01 0002 00000012 003c 003c 0174 0000000000000001 01 00 0171 ce"
        "02 0002 0000000e 003c 0000 0000000000000002 0000 ce 03 0002 00000002 6869 ce"
    )
    assert frame.unmarshal(codec.HEARTBEAT_FRAME)[0] == 8


def test_deaths_replace_what_a_client_says_of_deaths() -> None:
    data = raw(
        {"headers": {"x-death": [{"count": 9}], "mine": 1, "x-first-death-queue": "lie"}, "expiration": "5"}
    )
    deaths = (
        Death(b"b", "expired", b"x", (b"k", b"l"), 1000, 5, count=3),
        Death(b"a", "maxlen", b"", (b"k",), 900, first=True),
    )
    found = values(shown(data, deaths, 2))
    headers = read_table(found[HEADERS_BIT])
    assert 8 not in found
    assert [death["queue"] for death in headers["x-death"]] == ["b", "a"]  # type: ignore[attr-defined]
    assert headers["x-death"][0]["count"] == 3  # type: ignore[index]
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == ("a", "maxlen")
    assert (headers["x-last-death-queue"], headers["x-last-death-exchange"]) == ("b", "x")
    assert (headers["mine"], headers["x-delivery-count"]) == (1, 2)


@pytest.mark.parametrize("text", ["short", "ü" * 300])
def test_reply_texts_fit_into_a_short_string(text: str) -> None:
    error = AmqpError(codec.NOT_FOUND, text)
    assert len(error.text.encode()) <= 255
    assert error.text.startswith("NOT_FOUND - ")


@given(tables)
def test_tables_are_written_as_they_are_read(table: dict[str, object]) -> None:
    assert read_table(write_table(table)) == table


def test_integers_have_64_bits() -> None:
    """Java programs cast the count of a death to Long."""
    assert write_table({"n": 1}) == b"\0\0\0\x0b\x01nl" + bytes(7) + b"\x01"
    deaths = (Death(b"q", "expired", b"", (b"q",), 0),)
    written = values(shown(b"\0\0", deaths, 2))[HEADERS_BIT]
    assert b"\x05countl" + bytes(7) + b"\x01" in written
    assert b"\x10x-delivery-countl" + bytes(7) + b"\x02" in written


@given(wire_tables)
def test_a_table_of_any_fields_is_written_as_it_is_read(data: bytes) -> None:
    found = read_table(data)
    assert repr(read_table(write_table(found))) == repr(found)


@pytest.mark.parametrize(
    "value", [1 << 63, "\ud800", Decimal("NaN"), Decimal(1 << 31), Decimal("1E-256"), object()]
)
def test_a_value_that_no_field_can_have_is_refused(value: object) -> None:
    with pytest.raises((ValueError, OverflowError, TypeError)):
        write_table({"v": value})
