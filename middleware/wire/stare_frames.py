"""STARE's packets as whole Ethernet frames, IPv4: what a controller beside a switch reads and writes.

    Ethernet (14) | IPv4 without options (20) | UDP (8) | STARE (8) | payload

Checksums: the IPv4 header's is checked and written; UDP's is 0, none (RFC 768).
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from .stare import HEADER_SIZE, PORT, StareError, StareHeader, decode_header, encode_header, group

_ETHERNET: Final = struct.Struct(">6s6sH")
_IPV4: Final = struct.Struct(">BBHHHBBH4s4s")
_UDP: Final = struct.Struct(">HHHH")
_TYPE: Final = 0x0800
_UDP_PROTOCOL: Final = 17
_BEFORE: Final = _ETHERNET.size + _IPV4.size + _UDP.size
_TTL: Final = 16


class StareFrame(Struct, frozen=True):
    """A frame of STARE's. `mac` and `address`, packed, are the sender's."""

    header: StareHeader
    mac: bytes
    address: bytes
    payload: bytes = b""
    source_port: int = PORT
    ttl: int = _TTL


def checksum(header: bytes) -> int:
    """The internet checksum of an even number of bytes (RFC 1071)."""
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def multicast_mac(address: bytes) -> bytes:
    """The Ethernet address of an IPv4 group (RFC 1112, 6.4)."""
    low = int.from_bytes(address) & 0x7FFFFF
    return (0x01005E << 24 | low).to_bytes(6)


def encode_frame(frame: StareFrame) -> bytes:
    """The frame's bytes, to the group of its kind and state."""
    to = group(frame.header.state, kind=frame.header.kind)
    body = encode_header(frame.header) + frame.payload
    length = _IPV4.size + _UDP.size + len(body)
    fields = (0x45, 0, length, 0, 0, frame.ttl, _UDP_PROTOCOL)
    ipv4 = _IPV4.pack(*fields, checksum(_IPV4.pack(*fields, 0, frame.address, to)), frame.address, to)
    udp = _UDP.pack(frame.source_port, PORT, _UDP.size + len(body), 0)
    return b"".join((_ETHERNET.pack(multicast_mac(to), frame.mac, _TYPE), ipv4, udp, body))


def decode_frame(data: bytes | memoryview) -> StareFrame:
    """What the bytes say. StareError where they are no packet of STARE's, or contradict themselves."""
    if len(data) < _BEFORE + HEADER_SIZE:
        raise StareError("the bytes end before the header does")
    _, mac, kind = _ETHERNET.unpack_from(data)
    version, _, length, _, fragment, ttl, protocol, _, address, to = _IPV4.unpack_from(data, _ETHERNET.size)
    source, port, size, _ = _UDP.unpack_from(data, _ETHERNET.size + _IPV4.size)
    if kind != _TYPE or version != 0x45 or fragment & 0x1FFF or protocol != _UDP_PROTOCOL or port != PORT:
        raise StareError("no packet of STARE's")
    if checksum(bytes(data[_ETHERNET.size : _ETHERNET.size + _IPV4.size])):
        raise StareError("the checksum is wrong")
    end = _BEFORE + size - _UDP.size
    if length != _IPV4.size + size or end > len(data) or size < _UDP.size + HEADER_SIZE:
        raise StareError("the lengths contradict each other")
    header = decode_header(data, _BEFORE)
    if to != group(header.state, kind=header.kind):
        raise StareError("the address and the header contradict each other")
    return StareFrame(header, mac, address, bytes(data[_BEFORE + HEADER_SIZE : end]), source, ttl)
