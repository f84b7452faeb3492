"""The packet inside an SRv6 header, compared with scapy."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import UDP, IPv6

from treecast.middleware.wire.srv6_packets import (
    GROUP,
    HEADER,
    PORT,
    PacketError,
    decode_packet,
    encode_packet,
)

SOURCES = st.binary(min_size=16, max_size=16)


@given(SOURCES, st.binary(max_size=1500))
def test_scapy_makes_the_same_bytes(source: bytes, segment: bytes) -> None:
    addresses = {"src": str(ipaddress.ip_address(source)), "dst": str(ipaddress.ip_address(GROUP))}
    packet = encode_packet(source, segment)
    assert packet == bytes(IPv6(**addresses, hlim=64) / UDP(sport=PORT, dport=PORT) / segment)
    assert decode_packet(packet) == (source, segment)
    assert decode_packet(packet + b"padding") == (source, segment)


@given(SOURCES, st.binary(min_size=1, max_size=60), st.data())
def test_every_cut_and_every_changed_byte_is_refused(
    source: bytes, segment: bytes, data: st.DataObject
) -> None:
    packet = encode_packet(source, segment)
    with pytest.raises(PacketError):
        decode_packet(packet[: data.draw(st.integers(0, len(packet) - 1))])
    at = data.draw(st.sampled_from([0, 4, 5, 6, 24, 39, 42, 44, 46, HEADER]))
    changed = bytearray(packet)
    changed[at] ^= 1 << data.draw(st.integers(4, 7) if at == 0 else st.integers(0, 7))
    with pytest.raises(PacketError):
        decode_packet(bytes(changed))


@given(st.binary(max_size=100))
def test_what_strangers_send(data: bytes) -> None:
    with pytest.raises(PacketError):
        decode_packet(data)


def test_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="source"):
        encode_packet(b"short", b"")
    with pytest.raises(ValueError, match="segment"):
        encode_packet(bytes(16), bytes(65_530))
