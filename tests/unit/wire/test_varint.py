"""Varints: golden bytes, round trip against a plain twin, every truncated or overlong form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint, encode_varint

from treecast.middleware.wire.batch import read_varint, read_varlong, varlong_size, write_varlong

GOLDEN = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


def written(number: int) -> bytes:
    out = bytearray()
    write_varlong(out, number)
    return bytes(out)


@pytest.mark.parametrize(("number", "golden"), GOLDEN)
def test_golden_bytes(number: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert written(number) == data
    assert varlong_size(number) == len(data)
    assert read_varlong(data, 0) == (number, len(data))
    if -(2**31) <= number < 2**31:
        assert read_varint(data, 0) == (number, len(data))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=4), st.binary(max_size=4))
def test_round_trip_between_other_bytes(number: int, before: bytes, after: bytes) -> None:
    data = before + written(number) + after
    end = len(data) - len(after)
    assert read_varlong(data, len(before)) == (number, end)
    if -(2**31) <= number < 2**31:
        assert read_varint(data, len(before)) == (number, end)


@given(st.integers(-(2**63), 2**63 - 1))
def test_agrees_with_kafka_python(number: int) -> None:
    theirs = bytearray()
    encode_varint(number, theirs.append)
    assert written(number) == bytes(theirs)
    assert decode_varint(theirs, 0) == read_varlong(bytes(theirs), 0)


@pytest.mark.parametrize(("number", "golden"), GOLDEN)
def test_ends_too_soon(number: int, golden: str) -> None:
    data = bytes.fromhex(golden)
    for length in range(len(data)):
        with pytest.raises(IndexError):
            read_varlong(data[:length], 0)
        if length < 5:
            with pytest.raises(IndexError):
                read_varint(data[:length], 0)


def test_refuses_too_many_bytes() -> None:
    with pytest.raises(ValueError, match="5 bytes"):
        read_varint(b"\x80\x80\x80\x80\x80\x00", 0)
    with pytest.raises(ValueError, match="10 bytes"):
        read_varlong(b"\x80" * 10 + b"\x00", 0)
    with pytest.raises(ValueError, match="64 bits"):
        read_varlong(b"\x80" * 9 + b"\x02", 0)


def test_what_lies_beyond_32_bits_stays_visible() -> None:
    """Kafka drops the higher bits; here a length of 2^32 must not look like 0."""
    assert read_varint(written(2**33 - 1), 0)[0] == 2**33 - 1
