"""Bit helpers against their definitions, checksums against published vectors."""

from __future__ import annotations

import binascii

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.dataplane.p4 import bits

PACKET = st.binary(min_size=1, max_size=40)
CHECK = int.from_bytes(b"123456789", "big"), 72  # the usual check string of CRC catalogues


def as_text(data: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in data)


@given(PACKET, st.data())
@settings(max_examples=60)
def test_extract(data: bytes, more: st.DataObject) -> None:
    offset = more.draw(st.integers(0, len(data) * 8 - 1))
    width = more.draw(st.integers(1, len(data) * 8 - offset))
    text = as_text(data)
    assert bits.extract(data, offset, width) == int(text[offset : offset + width], 2)


@given(st.integers(-(1 << 70), 1 << 70), st.integers(1, 66))
@settings(max_examples=60)
def test_numbers(value: int, width: int) -> None:
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    signed = bits.to_signed(value, width)
    assert low <= signed <= high
    assert (signed - value) % (1 << width) == 0
    assert bits.saturate(value, width) == min(max(value, 0), (1 << width) - 1)
    assert bits.saturate_signed(value, width) == min(max(value, low), high)


def test_shifts() -> None:
    assert bits.shift_left(0b1011, 2, 4) == 0b1100
    assert bits.shift_left(1, 1 << 60, 8) == 0
    assert bits.prefix_mask(24, 32) == 0xFFFFFF00
    assert bits.prefix_mask(0, 32) == 0


def test_internet_checksum_of_rfc_1071() -> None:
    assert bits.csum16_bytes(bytes.fromhex("0001f203f4f5f6f7")) == 0xDDF2 ^ 0xFFFF
    header = bytes.fromhex("4500003044224000800600008c7c19acae241e2b")
    assert bits.csum16_bytes(header) == 0x442E
    assert bits.csum16_bytes(b"\x00\x00") == 0xFFFF
    assert bits.csum16_bytes(b"\xff\xff") == 0
    assert bits.csum16_bytes(b"\x12") == 0x1200 ^ 0xFFFF


@given(PACKET)
@settings(max_examples=40)
def test_csum16_is_the_folded_sum(data: bytes) -> None:
    total = sum(int.from_bytes((data + b"\0")[i : i + 2], "big") for i in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert bits.csum16_bytes(data) == total ^ 0xFFFF


def test_crcs_of_the_check_string() -> None:
    assert bits.crc32(*CHECK) == 0xCBF43926
    assert bits.crc16(*CHECK) == 0xBB3D
    assert bits.crc_any(b"123456789", 16, 0x1021, 0xFFFF, 0, False) == 0x29B1


@given(PACKET)
@settings(max_examples=40)
def test_crcs_by_their_parameters(data: bytes) -> None:
    value, width = int.from_bytes(data, "big"), len(data) * 8
    assert bits.crc32(value, width) == binascii.crc32(data)
    assert bits.crc32(value, width) == bits.crc_any(data, 32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, True)
    assert bits.crc16(value, width) == bits.crc_any(data, 16, 0x8005, 0, 0, True)


def test_other_hashes() -> None:
    assert bits.xor16(0x1234_5678_9A, 40) == 0x1234 ^ 0x5678 ^ 0x9A00
    assert bits.identity(0x1234, 16) == 0x1234
    assert bits.identity(0x0102030405060708090A, 80) == 0x0102030405060708
    assert bits.identity(0b101, 3) == 0b10100000
    assert bits.packed(0b101, 3) == b"\xa0"


@pytest.mark.parametrize(("base", "size", "expected"), [(10, 4, 13), (10, 0, 10), (10, 1, 10)])
def test_hash_in_range(base: int, size: int, expected: int) -> None:
    assert bits.in_range(7, base, size, 32) == expected


def test_generator_is_the_published_one() -> None:
    generator = bits.Generator(1234567)  # the test vector of Vigna's splitmix64.c
    assert [generator.next64() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(st.integers(-100, 100), st.integers(-100, 1 << 70), st.integers(0, 1 << 64))
@settings(max_examples=40)
def test_between(low: int, high: int, seed: int) -> None:
    value = bits.Generator(seed).between(low, high)
    assert (low <= value <= high) if high >= low else value == low


def test_between_reaches_everything() -> None:
    generator = bits.Generator(1)
    assert {generator.between(3, 6) for _ in range(200)} == {3, 4, 5, 6}
