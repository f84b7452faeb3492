"""Primitive types: golden bytes, wrong lengths, and independence of the reader's window."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire import kafka_primitives
from treecast.middleware.wire.kafka_primitives import (
    NAMES,
    WINDOW,
    LocalCodecError,
    Reader,
    RemoteCodecError,
    put_count,
    put_length,
    put_name,
    put_string,
    put_uvarint,
)


def uvarint(number: int) -> bytes:
    out = bytearray()
    put_uvarint(out, number)
    return bytes(out)


@pytest.mark.parametrize(
    ("number", "golden"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16_384, "808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_unsigned_varints(number: int, golden: str) -> None:
    assert uvarint(number).hex() == golden
    assert Reader(bytes.fromhex(golden)).uvarint() == number


def test_too_long_a_varint() -> None:
    with pytest.raises(RemoteCodecError, match="5 bytes"):
        Reader(b"\x80\x80\x80\x80\x80\x01").uvarint()


@given(st.binary(min_size=15, max_size=15))
def test_integers(data: bytes) -> None:
    reader = Reader(data)
    assert reader.int8() == int.from_bytes(data[:1], signed=True)
    assert reader.int16() == int.from_bytes(data[1:3], signed=True)
    assert reader.int32() == int.from_bytes(data[3:7], signed=True)
    assert reader.int64() == int.from_bytes(data[7:15], signed=True)
    reader.end()


@pytest.mark.parametrize("compact", [False, True])
@given(text=st.none() | st.text(st.characters(codec="utf-8"), max_size=300))
def test_strings(compact: bool, text: str | None) -> None:
    out = bytearray(b"##")
    put_string(out, text, compact)
    reader = Reader(out, 2)
    assert reader.nullable_string(compact) == text
    reader.end()
    if text is None:
        with pytest.raises(RemoteCodecError, match="null"):
            Reader(out, 2).string(compact)
    else:
        named = bytearray(b"##")
        put_name(named, text, compact)
        assert named == out
        assert Reader(out, 2).string(compact) == text


@pytest.mark.parametrize("compact", [False, True])
@given(data=st.none() | st.binary(max_size=2 * WINDOW), before=st.binary(max_size=WINDOW + 9))
def test_bytes_are_a_view_of_the_frame(compact: bool, data: bytes | None, before: bytes) -> None:
    out = bytearray(before)
    put_count(out, -1 if data is None else len(data), compact)
    out += data or b""
    out += b"\x07tail"
    reader = Reader(out)
    for _ in before:
        reader.int8()
    view = reader.nullable_bytes(compact)
    assert reader.int8() == 7
    assert reader.position == len(out) - 4
    if data is None:
        assert view is None
    else:
        assert view == data
        assert view.obj is out


@given(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=WINDOW // 3, max_size=WINDOW))
def test_windows_make_no_difference(widths: list[int]) -> None:
    """Any order of widths, over several windows, equals slicing by hand."""
    frame = bytes(index * 7 & 0xFF for index in range(sum(widths)))
    reader, position = Reader(frame), 0
    reads = {1: reader.int8, 2: reader.int16, 4: reader.int32, 8: reader.int64}
    for width in widths:
        assert reads[width]() == int.from_bytes(frame[position : position + width], signed=True)
        position += width
    reader.end()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("int8", ""),
        ("int16", "00"),
        ("int32", "000000"),
        ("int64", "00000000000000"),
        ("uvarint", "80"),
        ("string", "0002 61"),
        ("string", "7fff"),
        ("string", "fffe"),
        ("compact string", "03 61"),
        ("compact string", "ffffffff0f"),
        ("bytes", "00000002 61"),
        ("bytes", "7fffffff"),
        ("bytes", "fffffffe"),
        ("compact bytes", "ffffffff0f"),
        ("array", "7fffffff 00000000"),
        ("array", "fffffffe"),
        ("array", "ffffffff"),
        ("compact array", "ffffffff0f 00"),
        ("compact array", "00"),
        ("tags", "01 00 05 00"),
        ("tags", "ffffffff0f 00"),
        ("tags", "01 00"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, data: str) -> None:
    reader = Reader(bytes.fromhex(data))
    reads = {
        "int8": reader.int8,
        "int16": reader.int16,
        "int32": reader.int32,
        "int64": reader.int64,
        "uvarint": reader.uvarint,
        "string": lambda: reader.string(False),
        "compact string": lambda: reader.string(True),
        "bytes": lambda: reader.nullable_bytes(False),
        "compact bytes": lambda: reader.nullable_bytes(True),
        "array": lambda: reader.count(4, False),
        "compact array": lambda: reader.count(4, True),
        "tags": reader.skip_tagged_fields,
    }
    with pytest.raises(RemoteCodecError):
        reads[kind]()


def test_counts() -> None:
    assert Reader(bytes.fromhex("00000002 00000000")).count(2, False) == 2
    with pytest.raises(RemoteCodecError, match="3 elements"):
        Reader(bytes.fromhex("00000003 00000000")).count(2, False)
    assert Reader(bytes.fromhex("ffffffff")).nullable_count(1, False) == -1
    assert Reader(b"\0").nullable_count(1, True) == -1


def test_tagged_fields_are_skipped() -> None:
    large = bytes(3 * WINDOW)
    data = b"\x02" + b"\x00\x01a" + b"\x07" + uvarint(len(large)) + large + b"\x2a"
    reader = Reader(data)
    reader.skip_tagged_fields()
    assert reader.int8() == 42
    reader.end()


def test_what_is_left_is_refused() -> None:
    reader = Reader(b"abc")
    reader.int8()
    with pytest.raises(RemoteCodecError, match="2 bytes are left"):
        reader.end()


def test_a_string_too_long_to_write() -> None:
    with pytest.raises(LocalCodecError, match="32768"):
        put_length(bytearray(), 2**15, False)
    put_length(bytearray(), 2**15, True)


def test_text_that_is_not_utf8_is_replaced() -> None:
    assert Reader(b"\0\3a\xffb").string(False) == "a\ufffdb"


def test_names_are_kept_up_to_a_bound() -> None:
    first = Reader(b"\0\4name").string(False)
    assert Reader(b"\0\4name").string(False) is first
    for number in range(NAMES + 10):
        out = bytearray()
        put_name(out, f"name-{number}", True)
        Reader(out).string(True)
    assert len(kafka_primitives.KNOWN_NAMES) <= NAMES
    assert len(kafka_primitives._encoded) <= NAMES
