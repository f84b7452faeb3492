"""Packets between controller and switch: the header's bits convert to metadata and back."""

from __future__ import annotations

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.dataplane.p4.p4info import parse_text
from treecast.middleware.dataplane.p4.p4runtime.bytestrings import decode, encode
from treecast.middleware.dataplane.p4.p4runtime.errors import CODES, Code, P4RuntimeError
from treecast.middleware.dataplane.p4.p4runtime.packets import packet_in, packet_out
from treecast.middleware.dataplane.p4.p4runtime.schema import Schema
from treecast.middleware.dataplane.p4.runtime import Problem

_HEADER = """
controller_packet_metadata {{
  preamble {{ id: {number} name: "{name}" alias: "{name}" }}
  metadata {{ id: 1 name: "port" bitwidth: 9 }}
  metadata {{ id: 2 name: "pad" bitwidth: 7 }}
  metadata {{ id: 5 name: "reason" bitwidth: 16 }}
}}
"""
WITH = Schema(
    parse_text(
        _HEADER.format(number=0x04000001, name="packet_in")
        + _HEADER.format(number=0x04000002, name="packet_out")
    )
)
WITHOUT = Schema(parse_text(""))


@settings(max_examples=40)
@given(st.integers(0, 511), st.integers(0, 127), st.integers(0, 65535), st.binary(max_size=20))
def test_what_goes_out_comes_in(port: int, pad: int, reason: int, payload: bytes) -> None:
    message = p4r.PacketOut(payload=payload)
    for number, value in ((5, reason), (1, port), (2, pad)):
        message.metadata.add(metadata_id=number, value=encode(value))
    data = packet_out(WITH, message)
    assert data == (port << 23 | pad << 16 | reason).to_bytes(4, "big") + payload
    found = packet_in(WITH, data)
    assert found is not None
    assert found.payload == payload
    assert {one.metadata_id: one.value for one in found.metadata} == {
        1: encode(port),
        2: encode(pad),
        5: encode(reason),
    }


def test_without_headers_packets_are_bare() -> None:
    assert packet_out(WITHOUT, p4r.PacketOut(payload=b"x")) == b"x"
    found = packet_in(WITHOUT, b"x")
    assert found is not None
    assert found.payload == b"x"


def test_a_packet_shorter_than_its_header_is_none() -> None:
    assert packet_in(WITH, b"abc") is None


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ([], Code.INVALID_ARGUMENT),
        ([(1, b"\x01"), (2, b"\x00")], Code.INVALID_ARGUMENT),
        ([(1, b"\x01"), (2, b"\x00"), (5, b"\x00"), (7, b"\x00")], Code.INVALID_ARGUMENT),
        ([(1, b"\x01"), (1, b"\x01"), (2, b"\x00"), (5, b"\x00")], Code.INVALID_ARGUMENT),
        ([(1, b"\x02\x00"), (2, b"\x00"), (5, b"\x00")], Code.OUT_OF_RANGE),
        ([(1, b""), (2, b"\x00"), (5, b"\x00")], Code.INVALID_ARGUMENT),
    ],
)
def test_wrong_metadata_is_refused(metadata: list[tuple[int, bytes]], code: Code) -> None:
    message = p4r.PacketOut()
    for number, value in metadata:
        message.metadata.add(metadata_id=number, value=value)
    with pytest.raises(P4RuntimeError) as caught:
        packet_out(WITH, message)
    assert caught.value.code is code


def test_byte_strings_are_canonical_and_read_in_any_length() -> None:
    assert encode(0) == b"\x00"
    assert encode(255) == b"\xff"
    assert encode(256) == b"\x01\x00"
    assert decode(b"\x00\x00\x05", 4, "x") == 5
    with pytest.raises(P4RuntimeError) as caught:
        decode(b"\x10", 4, "x")
    assert caught.value.code is Code.OUT_OF_RANGE


def test_every_problem_of_the_switch_has_a_code() -> None:
    assert CODES.keys() == set(Problem)
