"""SRH and SIDs: golden bytes, round trip, every cut, trailing data, arbitrary bytes, compared with scapy."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import IPv6, IPv6ExtHdrSegmentRouting

from treecast.middleware.wire.srv6 import (
    AT_ROUTING_TYPE,
    AT_SEGMENTS_LEFT,
    FIXED_SIZE,
    LARGEST,
    MOST_SEGMENTS,
    ROUTING_HEADER,
    Srh,
    SrhError,
    advance,
    decode_srh,
    encode_srh,
    path_header,
    srh_size,
)
from treecast.middleware.wire.srv6_sids import Behavior, Layout, Sid, SidError
from treecast.middleware.wire.srv6_tlvs import padded

BLOCK = ipaddress.ip_address("fcbb:bb00::").packed
LAYOUT = Layout(BLOCK).check()
UDP = 17


def sid(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


@st.composite
def headers(draw: st.DrawFn) -> Srh:
    segments = tuple(draw(st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=6)))
    tlvs = bytes(draw(st.integers(0, 4)) * 8)
    left, flags = draw(st.integers(0, len(segments))), draw(st.integers(0, 255))
    return Srh(draw(st.integers(0, 255)), left, segments, tlvs, flags, draw(st.integers(0, 0xFFFF)))


A, B, C = sid("fcbb:bb00:1::1"), sid("fcbb:bb00:2::1"), sid("fcbb:bb00:3:0:7::")
GOLDEN = "11" + "06" + "04" + "02" + "02" + "00" + "0005" + C.hex() + B.hex() + A.hex()


def test_golden_bytes() -> None:
    header = path_header([A, B, C], UDP, tag=5)
    assert encode_srh(header).hex() == GOLDEN
    assert decode_srh(bytes.fromhex(GOLDEN)) == header
    assert header.path == (A, B, C)
    assert (header.destination, header.size, header.reduced) == (A, 56, False)
    reduced = path_header([A, B, C], UDP, reduced=True)
    assert encode_srh(reduced).hex() == "1104040201000000" + C.hex() + B.hex()
    assert reduced.reduced
    with pytest.raises(ValueError, match="reduced"):
        reduced.destination  # noqa: B018
    assert path_header([A], UDP, reduced=True) == path_header([A], UDP)


def test_it_goes_from_segment_to_segment() -> None:
    header = path_header([A, B, C], UDP, reduced=True)
    visited = []
    while header.segments_left:
        header = advance(header)
        visited.append(header.destination)
    assert visited == [B, C]
    with pytest.raises(ValueError, match="last segment"):
        advance(header)


@given(headers(), st.binary(max_size=20), st.binary(max_size=20))
def test_round_trip_between_other_bytes(header: Srh, before: bytes, after: bytes) -> None:
    data = encode_srh(header)
    assert len(data) == header.size
    assert decode_srh(memoryview(before + data + after), len(before)) == header
    for cut in range(len(data)):
        with pytest.raises(SrhError):
            decode_srh(data[:cut])


@given(st.binary(max_size=80), st.booleans())
def test_arbitrary_bytes_are_refused_or_read(data: bytes, typed: bool) -> None:
    if typed:
        data = data[:1] + b"\x03\x04" + data[3:]
    try:
        header = decode_srh(data)
    except SrhError:
        return
    assert encode_srh(header) == data[: header.size]


@pytest.mark.parametrize(
    ("at", "value", "pointer"),
    [
        (2, 3, AT_ROUTING_TYPE),
        (2, 0, AT_ROUTING_TYPE),
        (3, 4, AT_SEGMENTS_LEFT),  # beyond the list
        (3, 255, AT_SEGMENTS_LEFT),
        (4, 3, AT_SEGMENTS_LEFT),  # more entries than the length allows
        (4, 255, AT_SEGMENTS_LEFT),
        (1, 0, AT_SEGMENTS_LEFT),
        (1, 1, AT_SEGMENTS_LEFT),
        (1, 255, -1),  # longer than the packet
        (1, 7, -1),
    ],
)
def test_wrong_fields_are_refused_as_the_rfc_says(at: int, value: int, pointer: int) -> None:
    data = bytearray.fromhex(GOLDEN)
    data[at] = value
    with pytest.raises(SrhError) as refused:
        decode_srh(data)
    assert refused.value.pointer == pointer


def test_a_list_within_a_longer_header_leaves_the_rest_to_tlvs() -> None:
    data = bytearray.fromhex(GOLDEN)
    data[3], data[4] = 0, 0
    assert decode_srh(data).tlvs == B + A


def test_what_does_not_fit_is_not_written() -> None:
    good = path_header([A, B], UDP)
    for wrong in (
        Srh(256, 0, (A,)),
        Srh(0, 0, ()),
        Srh(0, 2, (A,)),
        Srh(0, -1, (A,)),
        Srh(0, 0, (A[:15],)),
        Srh(0, 0, (A,), b"\0" * 7),
        Srh(0, 0, (A,), b"", 256),
        Srh(0, 0, (A,), b"", 0, 1 << 16),
        Srh(0, 0, (A,) * (MOST_SEGMENTS + 1)),
        Srh(0, 0, (A,) * MOST_SEGMENTS, b"\0" * 16),
    ):
        with pytest.raises(ValueError):
            encode_srh(wrong)
    with pytest.raises(ValueError, match="at least one"):
        path_header([], UDP)
    full = Srh(0, 0, (A,) * MOST_SEGMENTS, b"\0" * 8)
    assert len(encode_srh(full)) == LARGEST
    assert srh_size(2) == good.size == FIXED_SIZE + 32


@given(headers())
def test_scapy_reads_what_we_write(header: Srh) -> None:
    packet = IPv6(nh=ROUTING_HEADER, dst="::1") / IPv6ExtHdrSegmentRouting(encode_srh(header))
    read = packet[IPv6ExtHdrSegmentRouting]
    assert [ipaddress.ip_address(one).packed for one in read.addresses] == list(header.segments)
    assert (read.nh, read.type, read.segleft) == (header.next_header, 4, header.segments_left)
    assert (read.lastentry, read.tag, read.len) == (
        len(header.segments) - 1,
        header.tag,
        header.size // 8 - 1,
    )


@given(st.lists(st.ip_addresses(v=6), min_size=1, max_size=5), st.integers(0, 0xFFFF))
def test_we_read_what_scapy_writes(path: list[ipaddress.IPv6Address], tag: int) -> None:
    addresses = [str(one) for one in reversed(path)]
    made = IPv6ExtHdrSegmentRouting(
        addresses=addresses, segleft=len(path) - 1, lastentry=len(path) - 1, tag=tag
    )
    header = decode_srh(bytes(made))
    assert header.path == tuple(one.packed for one in path)
    assert header == path_header([one.packed for one in path], header.next_header, tag=tag)
    assert encode_srh(header) == bytes(made)


def test_sids_golden_bytes() -> None:
    assert LAYOUT.encode(Sid(0x1234, 7)) == sid("fcbb:bb00:1234:0:7::")
    assert LAYOUT.locator(0x1234) == sid("fcbb:bb00:1234::")
    assert LAYOUT.locator_bits == 48
    assert LAYOUT.decode(sid("fcbb:bb00:1:ffff:ffff::")) == Sid(1, LAYOUT.functions - 1)
    assert Behavior.END_REPLICATE == 75


@given(st.data(), st.integers(0, 64), st.integers(0, 32), st.integers(0, 16), st.integers(0, 16))
def test_sids_round_trip(data: st.DataObject, block: int, node: int, function: int, argument: int) -> None:
    prefix = data.draw(st.integers(0, (1 << block) - 1)) << 128 - block
    layout = Layout(prefix.to_bytes(16), block, node, function, argument).check()
    parts = [data.draw(st.integers(0, (1 << bits) - 1)) for bits in (node, function, argument)]
    assert layout.decode(layout.encode(Sid(*parts))) == Sid(*parts)
    inside = ipaddress.ip_network((layout.locator(parts[0]), layout.locator_bits))
    assert ipaddress.ip_address(layout.encode(Sid(*parts))) in inside


def test_sids_that_do_not_fit() -> None:
    for wrong in (Sid(1 << 16, 0), Sid(0, 1 << 32), Sid(0, 0, 1), Sid(-1, 0)):
        with pytest.raises(SidError):
            LAYOUT.encode(wrong)
    for address in ("fcbb:bb01:1::1", "fcbb:bb00:1:0:7:1::", "::1"):
        with pytest.raises(SidError):
            LAYOUT.decode(sid(address))
    with pytest.raises(SidError):
        LAYOUT.decode(b"\0" * 4)
    for layout in (Layout(BLOCK, 16), Layout(BLOCK, 32, 64, 64), Layout(BLOCK[:4]), Layout(BLOCK, -1)):
        with pytest.raises(SidError):
            layout.check()


def test_tlvs_are_part_of_the_header() -> None:
    header = path_header([A, B], UDP, tlvs=padded(b"\x7c\x02\x00\x00"))
    assert decode_srh(encode_srh(header)).tlvs == b"\x7c\x02\x00\x00\x04\x02\x00\x00"
