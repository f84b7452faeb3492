"""The packet inside an SRv6 header: a segment in UDP over IPv6, for every member of one group.

     0  version 6 (4 bits) | traffic class and flow label, 0     40  source port uint16
     4  payload length uint16                                    42  destination port uint16
     6  next header 17                                           44  length uint16
     7  hop limit                                                46  checksum uint16 (RFC 8200, 8.1)
     8  source, 16 bytes                                         48  the segment
    24  the group, 16 bytes

The sender puts it behind an IPv6 header with next header 41 whose destination is a replication SID
(H.Encaps.Red of RFC 8986 with one segment); routers copy it and take that header off before a host.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final

PORT: Final = 39_322
GROUP: Final = ipaddress.IPv6Address(
    "ff18::5352:7636"
).packed  # "SRv6": who gets a packet is the SID's affair
ENCAPSULATED: Final = 41  # IPv6 in IPv6, the next header before this packet
HEADER: Final = 48
HOP_LIMIT: Final = 64
_UDP: Final = 17
_IPV6: Final = struct.Struct(">IHBB16s16s")
_PORTS: Final = struct.Struct(">HHHH")
_MOST: Final = 0xFFFF - 8

Data = bytes | bytearray | memoryview


class PacketError(ValueError):
    """Bytes that are no such packet."""


def encode_packet(source: bytes, segment: bytes) -> bytes:
    """ValueError where the source is no address, or the segment is too long for UDP."""
    if len(source) != 16 or len(segment) > _MOST:
        raise ValueError(f"a source of {len(source)} bytes, a segment of {len(segment)}")
    length = len(segment) + _PORTS.size
    header = _IPV6.pack(6 << 28, length, _UDP, HOP_LIMIT, source, GROUP)
    checksum = _checksum(source, length, segment)
    return b"".join((header, _PORTS.pack(PORT, PORT, length, checksum), segment))


def decode_packet(data: Data) -> tuple[bytes, bytes]:
    """(source, segment). PacketError where it is none, or its checksum is wrong."""
    if len(data) < HEADER:
        raise PacketError("it ends within its headers")
    first, payload, following, _, source, group = _IPV6.unpack_from(data)
    _, port, length, checksum = _PORTS.unpack_from(data, _IPV6.size)
    if first >> 28 != 6 or following != _UDP or group != GROUP or port != PORT:
        raise PacketError("it is for another group or port")
    if length != payload or length < _PORTS.size or len(data) < HEADER + length - _PORTS.size:
        raise PacketError("its lengths contradict each other")
    segment = bytes(data[HEADER : HEADER + length - _PORTS.size])
    if checksum != _checksum(source, length, segment):
        raise PacketError("its checksum is wrong")
    return source, segment


def _checksum(source: bytes, length: int, segment: bytes) -> int:
    """Returns the checksum of the pseudo-header, the UDP header and the segment. The sum of 16-bit words with
    its carries is the number that they make modulo 65535."""
    pseudo = source + GROUP + struct.pack(">IIHHH", length, _UDP, PORT, PORT, length)
    padded = segment + b"\0" if len(segment) % 2 else segment
    total = (int.from_bytes(pseudo) + int.from_bytes(padded)) % 0xFFFF
    return 0xFFFF - total or 0xFFFF
