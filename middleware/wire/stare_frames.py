"""STARE's packets as whole Ethernet frames, for a controller beside a switch.

  Ethernet (14) | IPv4 without options (20) | UDP (8) | STARE (8) | payload
  Ethernet (14) | IPv6 without extensions (40) | UDP (8) | STARE (8) | payload

Checksums are checked and written, except UDP's over IPv4, which is 0 (none, RFC 768) and is ignored.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from .stare import HEADER_SIZE, PORT, StareError, StareHeader, decode_header, encode_header, group

_ETHERNET: Final = struct.Struct(">6s6sH")
_IPV4: Final = struct.Struct(">BBHHHBBH4s4s")
_IPV6: Final = struct.Struct(">IHBB16s16s")
_PSEUDO: Final = struct.Struct(">16s16sII")  # RFC 8200, 8.1
_UDP: Final = struct.Struct(">HHHH")
_TYPE_IPV4, _TYPE_IPV6 = 0x0800, 0x86DD
_VERSION_4, _VERSION_6 = 0x45, 6
_UDP_PROTOCOL: Final = 17
_TTL: Final = 16
_BEFORE: Final = _ETHERNET.size + _IPV4.size + _UDP.size
_IPV4_BEGINS: Final = bytes((_TYPE_IPV4 >> 8, _TYPE_IPV4 & 0xFF, _VERSION_4))


class StareFrame(Struct, frozen=True):
    """A frame of STARE's. `mac` and `address` (packed) are the sender's; 4 bytes of address mean IPv4, 16
    IPv6.
    """

    header: StareHeader
    mac: bytes
    address: bytes
    payload: bytes = b""
    source_port: int = PORT
    ttl: int = _TTL

    @property
    def ipv6(self) -> bool:
        return len(self.address) == 16


def checksum(data: bytes) -> int:
    """Returns the internet checksum (RFC 1071)."""
    number = int.from_bytes(data)
    if len(data) % 2:
        number <<= 8
    # 0x10000 is 1 modulo 0xFFFF, so the remainder is the sum of the words with carries added back.
    return 0xFFFF - (number % 0xFFFF or (0xFFFF if number else 0))


def multicast_mac(address: bytes) -> bytes:
    """Returns the Ethernet address of an IPv4 group (RFC 1112, 6.4) or an IPv6 group (RFC 2464, 7)."""
    if len(address) == 16:
        return b"\x33\x33" + address[12:]
    low = int.from_bytes(address) & 0x7FFFFF
    return (0x01005E << 24 | low).to_bytes(6)


def encode_frame(frame: StareFrame) -> bytes:
    """Returns the frame's bytes, addressed to the group of its kind and state, in the family of its
    address.
    """
    to = group(frame.header.state, ipv6=frame.ipv6, kind=frame.header.kind)
    body = encode_header(frame.header) + frame.payload
    if not frame.ipv6:
        return frame_around(body, to, frame.mac, frame.address, frame.source_port, frame.ttl)
    udp = _UDP.pack(frame.source_port, PORT, _UDP.size + len(body), 0) + body
    return _ETHERNET.pack(multicast_mac(to), frame.mac, _TYPE_IPV6) + _ipv6(frame, to, udp)


def frame_around(
    body: bytes, to: bytes, mac: bytes, address: bytes, source_port: int = PORT, ttl: int = _TTL
) -> bytes:
    """Returns a datagram over IPv4 as a frame; `mac` and `address` (packed) are the sender's."""
    size = _UDP.size + len(body)
    fields = (_VERSION_4, 0, _IPV4.size + size, 0, 0, ttl, _UDP_PROTOCOL)
    check = checksum(_IPV4.pack(*fields, 0, address, to))
    packet = _IPV4.pack(*fields, check, address, to) + _UDP.pack(source_port, PORT, size, 0)
    return b"".join((_ETHERNET.pack(multicast_mac(to), mac, _TYPE_IPV4), packet, body))


def datagram_of(frame: bytes) -> bytes | None:
    """Returns the payload of a UDP datagram over IPv4 for STARE's port, as a host's kernel delivers it; else
    None.

    Ignores checksums: simulated links corrupt nothing.
    """
    if len(frame) < _BEFORE or frame[23] != _UDP_PROTOCOL or frame[12:15] != _IPV4_BEGINS:
        return None
    _, port, size, _ = _UDP.unpack_from(frame, _ETHERNET.size + _IPV4.size)
    end = _BEFORE + size - _UDP.size
    if port != PORT or not _BEFORE <= end <= len(frame):
        return None
    return frame[_BEFORE:end]


def _ipv6(frame: StareFrame, to: bytes, udp: bytes) -> bytes:
    check = checksum(_pseudo(frame.address, to, udp)) or 0xFFFF
    packed = udp[:6] + check.to_bytes(2) + udp[8:]
    fields = (_VERSION_6 << 28, len(udp), _UDP_PROTOCOL, frame.ttl, frame.address, to)
    return _IPV6.pack(*fields) + packed


def _pseudo(source: bytes, to: bytes, udp: bytes) -> bytes:
    """Returns the pseudo header of UDP's checksum in IPv6, with the datagram."""
    return _PSEUDO.pack(source, to, len(udp), _UDP_PROTOCOL) + udp


def decode_frame(data: bytes | memoryview) -> StareFrame:
    """Returns the frame. Raises StareError if the bytes are not a packet of STARE's or contradict
    themselves.
    """
    if len(data) < _ETHERNET.size + _IPV4.size:
        raise StareError("the bytes end before the header does")
    _, mac, kind = _ETHERNET.unpack_from(data)
    packet = bytes(data[_ETHERNET.size :])
    if kind == _TYPE_IPV4:
        ttl, address, to, udp = _read_ipv4(packet)
    elif kind == _TYPE_IPV6:
        ttl, address, to, udp = _read_ipv6(packet)
    else:
        raise StareError("not a packet of STARE's")
    source, port, size, _ = _UDP.unpack_from(udp)
    if port != PORT:
        raise StareError("not a packet of STARE's")
    if size != len(udp):
        raise StareError("the lengths contradict each other")
    header = decode_header(udp, _UDP.size)
    if to != group(header.state, ipv6=len(to) == 16, kind=header.kind):
        raise StareError("the address and the header contradict each other")
    return StareFrame(header, mac, address, udp[_UDP.size + HEADER_SIZE :], source, ttl)


_Read = tuple[int, bytes, bytes, bytes]  # hop limit, source, destination, UDP header and body


def _read_ipv4(packet: bytes) -> _Read:
    version, _, length, _, fragment, ttl, protocol, _, address, to = _IPV4.unpack_from(packet)
    if version != _VERSION_4 or fragment & 0x1FFF or protocol != _UDP_PROTOCOL:
        raise StareError("not a packet of STARE's")
    if checksum(packet[: _IPV4.size]):
        raise StareError("the checksum is wrong")
    return ttl, address, to, _body(packet, _IPV4.size, length - _IPV4.size)


def _read_ipv6(packet: bytes) -> _Read:
    if len(packet) < _IPV6.size:
        raise StareError("the bytes end before the header does")
    first, length, protocol, ttl, address, to = _IPV6.unpack_from(packet)
    if first >> 28 != _VERSION_6 or protocol != _UDP_PROTOCOL:
        raise StareError("not a packet of STARE's")
    udp = _body(packet, _IPV6.size, length)
    if checksum(_pseudo(address, to, udp)) or udp[6:8] == b"\0\0":
        raise StareError("the checksum is wrong")
    return ttl, address, to, udp


def _body(packet: bytes, start: int, length: int) -> bytes:
    """Returns the `length` bytes from `start`; Ethernet's padding may follow."""
    if length < _UDP.size + HEADER_SIZE or start + length > len(packet):
        raise StareError("the bytes end before the header does, or the lengths contradict each other")
    return packet[start : start + length]
