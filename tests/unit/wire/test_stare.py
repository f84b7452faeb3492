"""STARE's header and addresses: golden bytes, round trip, every cut, trailing data, arbitrary bytes."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire.stare import (
    FIRST_STATE,
    HEADER_SIZE,
    LAST_STATE,
    StareError,
    StareHeader,
    StareKind,
    check_state,
    decode_header,
    encode_header,
    group,
    overhead,
    read_group,
)

STATE = st.integers(0, LAST_STATE)


@st.composite
def headers(draw: st.DrawFn) -> StareHeader:
    kind, state, vnf = draw(st.sampled_from(StareKind)), draw(STATE), draw(st.integers(0, 2**14 - 1))
    if vnf == 0 and kind is StareKind.PUBLISH:
        return StareHeader(kind, state)
    total = draw(st.integers(1, 64))
    number = draw(st.integers(0, total - 1))
    return StareHeader(kind, state, vnf, draw(st.integers(0, 2**14 - 1)), total, number)


GOLDEN = [
    (StareHeader(StareKind.PUBLISH, 256), "0001000000000000"),
    # 11 | 0000000000000000000001 | 00000000000010 | 00000000000011 | 000101 | 000100
    (StareHeader(StareKind.SUB_REGISTER, 1, 2, 3, 6, 4), "c000010008003144"),
    (StareHeader(StareKind.SUB_REMOVE, LAST_STATE, 2**14 - 1, 2**14 - 1, 64, 63), "bfffffffffffffff"),
]


@pytest.mark.parametrize(("header", "golden"), GOLDEN)
def test_golden_bytes(header: StareHeader, golden: str) -> None:
    assert encode_header(header).hex() == golden
    assert decode_header(bytes.fromhex(golden)) == header


@given(headers(), st.binary(max_size=20), st.binary(max_size=20))
def test_round_trip_between_other_bytes(header: StareHeader, before: bytes, after: bytes) -> None:
    assert decode_header(before + encode_header(header) + after, len(before)) == header


def test_every_shorter_piece_is_refused() -> None:
    data = encode_header(GOLDEN[1][0])
    for length in range(HEADER_SIZE):
        with pytest.raises(StareError):
            decode_header(data[:length])


@given(st.binary(max_size=12))
def test_arbitrary_bytes_are_refused_or_read(data: bytes) -> None:
    try:
        header = decode_header(data)
    except StareError:
        return
    assert encode_header(header) == data[:HEADER_SIZE]


@pytest.mark.parametrize(
    "header",
    [
        StareHeader(StareKind.PUBLISH, LAST_STATE + 1),
        StareHeader(StareKind.PUBLISH, 300, 2**14),
        StareHeader(StareKind.PUBLISH, 300, 1, 2**14),
        StareHeader(StareKind.PUBLISH, 300, 1, 0, 65),
        StareHeader(StareKind.PUBLISH, 300, 1, 0, 3, 3),
        StareHeader(StareKind.PUBLISH, 300, 0, 1),
        StareHeader(StareKind.PUBLISH, 300, 0, 0, 2),
    ],
)
def test_what_does_not_fit_is_not_written(header: StareHeader) -> None:
    with pytest.raises(ValueError):
        encode_header(header)


@pytest.mark.parametrize("data", ["0001000000000001", "0001000000001000", "0001000000000040"])
def test_vnf_0_has_no_fields_of_stare(data: str) -> None:
    with pytest.raises(StareError):
        decode_header(bytes.fromhex(data))


@given(STATE, st.sampled_from(StareKind))
def test_addresses(state: int, kind: StareKind) -> None:
    ipv4 = int.from_bytes(group(state, kind=kind))
    assert (ipv4 >> 24, ipv4 >> 22 & 3, ipv4 & LAST_STATE) == (239, kind, state)
    ipv6 = ipaddress.IPv6Address(group(state, ipv6=True, kind=kind))
    assert int(ipv6) - int(ipaddress.IPv6Address("ff18::")) == kind << 22 | state
    assert ipv6.is_multicast


def test_a_state_that_may_be_allotted() -> None:
    assert check_state(FIRST_STATE) == 256
    assert group(256) == bytes([239, 0, 1, 0])
    for wrong in (0, 255, LAST_STATE + 1, -1):
        with pytest.raises(ValueError):
            check_state(wrong)
    with pytest.raises(ValueError):
        group(LAST_STATE + 1)


@given(STATE, st.sampled_from(StareKind), st.booleans())
def test_an_address_is_read_back(state: int, kind: StareKind, ipv6: bool) -> None:
    assert read_group(group(state, kind=kind, ipv6=ipv6)) == (kind, state)


@pytest.mark.parametrize("address", ["", "e0000100", "ff180000000000000000000001000100", "ff" * 16, "ef0001"])
def test_other_addresses_are_not_read(address: str) -> None:
    assert read_group(bytes.fromhex(address)) is None


def test_the_overhead_is_the_papers() -> None:
    assert (overhead(), overhead(ipv6=True)) == (36, 56)


def test_requests_of_the_host_itself_have_a_number() -> None:
    for kind in (StareKind.SUB_REGISTER, StareKind.SUB_REMOVE, StareKind.SUB_ACK):
        header = StareHeader(kind, 300, 0, 77)
        assert decode_header(encode_header(header)) == header
        assert not header.carries_segment
