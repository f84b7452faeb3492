"""STARE's packets as Ethernet frames: compared with scapy, round trip, every cut, arbitrary bytes."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.wire.stare import LAST_STATE, StareError, StareHeader, StareKind, encode_header
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame, multicast_mac

MAC, ADDRESS = bytes.fromhex("020000000001"), bytes([10, 0, 0, 1])


@st.composite
def frames(draw: st.DrawFn) -> StareFrame:
    kind, state = draw(st.sampled_from(StareKind)), draw(st.integers(0, LAST_STATE))
    header = StareHeader(kind, state, draw(st.integers(1, 16383)), draw(st.integers(0, 16383)))
    mac, size = draw(st.binary(min_size=6, max_size=6)), draw(st.sampled_from((4, 16)))
    address = draw(st.binary(min_size=size, max_size=size))
    payload = draw(st.binary(max_size=30))
    return StareFrame(header, mac, address, payload, draw(st.integers(0, 65535)), draw(st.integers(0, 255)))


@given(frames(), st.binary(max_size=20))
def test_round_trip_with_padding(frame: StareFrame, padding: bytes) -> None:
    assert decode_frame(encode_frame(frame) + padding) == frame


@given(frames())
@settings(max_examples=20)
def test_every_shorter_piece_is_refused(frame: StareFrame) -> None:
    data = encode_frame(frame)
    for length in range(len(data)):
        with pytest.raises(StareError):
            decode_frame(data[:length])


@given(frames(), st.integers(0, 49), st.integers(1, 255))
def test_a_flipped_byte_is_found_or_changes_no_field_twice(frame: StareFrame, at: int, by: int) -> None:
    """A change that a checksum covers is refused; so is a header that contradicts the address."""
    data = bytearray(encode_frame(frame))
    data[at] ^= by
    try:
        read = decode_frame(data)
    except StareError:
        return
    assert at < 22 if frame.ipv6 else not 14 <= at < 34  # IPv6 has no checksum of its own
    assert read.header.state == frame.header.state


@given(st.binary(max_size=90))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StareError):
        decode_frame(data)


def test_scapy_builds_the_same_frame() -> None:
    scapy = pytest.importorskip("scapy.all")
    header = StareHeader(StareKind.SUB_REGISTER, 0x212345, 3, 77)
    packet = (
        scapy.Ether(src="02:00:00:00:00:01", dst="01:00:5e:61:23:45")
        / scapy.IP(src="10.0.0.1", dst="239.225.35.69", ttl=16, id=0, flags=0)
        / scapy.UDP(sport=5, dport=65432, chksum=0)
        / (encode_header(header) + b"value")
    )
    assert encode_frame(StareFrame(header, MAC, ADDRESS, b"value", 5)) == bytes(packet)
    assert multicast_mac(bytes([239, 225, 35, 69])).hex() == "01005e612345"


def test_scapy_builds_the_same_frame_in_ipv6() -> None:
    scapy = pytest.importorskip("scapy.all")
    header = StareHeader(StareKind.SUB_ACK, 0x212345, 3, 77)
    packet = (
        scapy.Ether(src="02:00:00:00:00:01", dst="33:33:00:61:23:45")
        / scapy.IPv6(src="2001:db8::1", dst="ff18::61:2345", hlim=16)
        / scapy.UDP(sport=5, dport=65432)
        / (encode_header(header) + b"value")
    )
    address = ipaddress.IPv6Address("2001:db8::1").packed
    assert encode_frame(StareFrame(header, MAC, address, b"value", 5)) == bytes(packet)


def test_a_checksum_of_zero_is_written_as_ones() -> None:
    """RFC 8200, 8.1: in IPv6 a checksum of zero means "none", and is refused."""
    header = StareHeader(StareKind.PUBLISH, 300, 3)
    first = encode_frame(StareFrame(header, MAC, bytes(16), bytes(2)))
    there = int.from_bytes(first[60:62])
    frame = StareFrame(header, MAC, bytes(16), there.to_bytes(2))
    data = encode_frame(frame)
    assert data[60:62] == b"\xff\xff"
    assert decode_frame(data) == frame
    with pytest.raises(StareError, match="checksum"):
        decode_frame(data[:60] + bytes(2) + data[62:])
