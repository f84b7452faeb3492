"""Field tables are stored, and told to other hosts, without a change of any field."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given
from tests.unit.amqp.field_tables import wire_tables

from treecast.middleware.wire.field_table import encode, extension, same, table
from treecast.shims.amqp.codec_methods import read_table

_read = msgspec.msgpack.Decoder(dict[str, object], ext_hook=extension).decode


def identical(one: object, other: object) -> bool:
    """Whether values are equal in all that tells them apart: types, signs of zero, scales, NaN."""
    return repr(one) == repr(other)


@given(wire_tables)
def test_every_field_comes_back_as_it_was(data: bytes) -> None:
    given_table = read_table(data)
    assert identical(table(_read(encode(given_table))), given_table)


@given(wire_tables)
def test_stored_twice_is_the_same_bytes(data: bytes) -> None:
    once = encode(read_table(data))
    assert encode(table(_read(once))) == once


def test_what_was_stored_as_plain_msgpack_is_read() -> None:
    plain = {
        "n": 1,
        "f": 1.5,
        "t": datetime(2024, 1, 1, tzinfo=UTC),
        "s": "text",
        "a": [1, {"b": True, "v": None}],
    }
    assert identical(table(_read(msgspec.msgpack.encode(plain))), plain)
    assert encode(plain) == msgspec.msgpack.encode(plain)  # and by hosts that know nothing else


def test_what_plain_msgpack_still_tells_of_arrays_of_bytes() -> None:
    old = msgspec.msgpack.encode(
        {"x": bytearray(b"text"), "l": [bytearray(b"")], "s": b"\xff", "d": Decimal("1.5")}
    )
    assert identical(
        table(_read(old)), {"x": bytearray(b"text"), "l": [bytearray(b"")], "s": b"\xff", "d": "1.5"}
    )


@pytest.mark.parametrize("data", [b"\x81\xa1d\xd4\x01\xff", b"\x81\xa1d\xd4\x01x", b"\x81\xa1d\xd4\x63x"])
def test_a_field_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        _read(data)


@pytest.mark.parametrize("value", [1 << 70, "\ud800", object()])
def test_what_no_table_can_have_is_refused(value: object) -> None:
    with pytest.raises((ValueError, OverflowError, TypeError)):
        encode({"v": value})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (b"\xff", bytearray(b"\xff")),
        (Decimal("1.5"), Decimal("1.50")),
        (Decimal(1), 1),
        ([1, 2], [1]),
        ([1], [1.0]),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"b": 1}),
        (None, ""),
    ],
)
def test_what_differs_to_rabbitmq(one: object, other: object) -> None:
    assert not same(one, other)
    assert same(one, one)
    assert same([{"k": other}], [{"k": other}])
