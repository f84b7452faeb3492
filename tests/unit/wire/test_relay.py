"""The header of packets that hosts relay to each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire.relay import (
    LIST_BYTES,
    MOST_HOPS,
    MOST_HOSTS,
    OVERHEAD,
    RelayError,
    RelayFault,
    RelayHeader,
    RelayKind,
    decode_header,
    encode_header,
    is_relayed,
    list_bytes,
)
from treecast.middleware.wire.segment import Kind, control, encode

HOSTS = st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=MOST_HOSTS, unique=True).map(
    lambda hosts: tuple(sorted(hosts))
)


def test_bytes_of_it() -> None:
    header = RelayHeader(RelayKind.FORWARD, 3, (1, 2, 130, 400))
    packed = bytes([0xA0, 3, 6, 1, 1, 0x80, 1, 0x8E, 2])
    assert encode_header(header) == packed
    assert decode_header(b"xx" + packed + b"segment", 2) == (header, 2 + len(packed))
    assert encode_header(RelayHeader(RelayKind.HELLO, 1)) == bytes([0xA1, 1, 0])


@given(HOSTS, st.integers(1, MOST_HOPS), st.binary(max_size=20), st.binary(max_size=20))
def test_there_and_back(hosts: tuple[int, ...], hops: int, before: bytes, after: bytes) -> None:
    header = RelayHeader(RelayKind.FORWARD, hops, hosts)
    if list_bytes(hosts) > LIST_BYTES:
        with pytest.raises(ValueError, match="list"):
            encode_header(header)
        return
    packed = encode_header(header)
    assert len(packed) <= OVERHEAD
    assert decode_header(before + packed + after, len(before)) == (header, len(before) + len(packed))
    for end in range(len(packed)):
        with pytest.raises(RelayError):
            decode_header(packed, 0, end)


@given(st.binary(max_size=300))
def test_what_strangers_send(data: bytes) -> None:
    try:
        header, at = decode_header(data)
    except RelayError:
        return
    assert list_bytes(header.hosts) == at - 3 == data[2]
    assert all(left < right for left, right in zip((0, *header.hosts), header.hosts, strict=False))


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("a0 01", RelayFault.CUT_SHORT),
        ("a0 01 02 01", RelayFault.CUT_SHORT),
        ("a3 01 00", RelayFault.RELAY_KIND),
        ("10 01 00", RelayFault.RELAY_KIND),
        ("a0 00 01 01", RelayFault.HOPS),
        ("a0 11 01 01", RelayFault.HOPS),
        ("a0 01 00", RelayFault.HOST_LIST),  # an empty list
        ("a1 01 01 01", RelayFault.HOST_LIST),  # a hello with several hosts
        ("a0 01 02 01 00", RelayFault.HOST_LIST),  # a repeated host
        ("a0 01 01 81", RelayFault.HOST_LIST),  # an unterminated varint
        ("a0 01 02 81 00", RelayFault.HOST_LIST),  # an overlong varint
        ("a0 01 06 81 81 81 81 81 01", RelayFault.HOST_LIST),
        ("a0 01 05 ff ff ff ff 0f", RelayFault.HOST_LIST),  # too large for an id
        ("a0 01 41" + " 01" * (MOST_HOSTS + 1), RelayFault.HOST_LIST),
    ],
)
def test_what_is_refused(data: str, fault: RelayFault) -> None:
    with pytest.raises(RelayError) as refused:
        decode_header(bytes.fromhex(data))
    assert refused.value.fault is fault


def test_no_segment_begins_like_it() -> None:
    for kind in Kind:
        if kind not in (Kind.DATA, Kind.REPAIR, Kind.REPLAY):
            assert not is_relayed(encode(control(kind, 1, 1, 1, 1, b""))[0])
    assert is_relayed(encode_header(RelayHeader(RelayKind.HERE, 1))[0])
