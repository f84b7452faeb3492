"""STARE's address and its application header, after the paper's section III-D.

The multicast address of a state's packets:

  IPv4   11101111 | kind (2) | state id (22)
  IPv6   ff18::, and in the low 24 bits kind (2) | state id (22)

UDP destination port 65432. The header, 8 bytes, big-endian:

  kind (2) | state id (22) | VNF id (14) | update number (14) | segments - 1 (6) | segment number (6)

In a publish, VNF id 0 means that a Treecast segment follows (`wire.segment`); update number and segment
fields are then 0. The other kinds have no payload. The update number of a SUB-register or SUB-remove is a
counter of the host, per state, which the switch's SUB-ack repeats; VNF id 0 there is the host itself. With
IPv4 (20) and UDP (8) the overhead is 36 bytes. State ids 0 to 255 are never allotted.
"""

from __future__ import annotations

import enum
import struct
from typing import Final

from msgspec import Struct

PORT: Final = 65432
HEADER_SIZE: Final = 8
FIRST_STATE: Final = 256
LAST_STATE: Final = (1 << 22) - 1
LAST_VNF: Final = (1 << 14) - 1
LAST_UPDATE: Final = (1 << 14) - 1
MOST_SEGMENTS: Final = 64

_HEADER: Final = struct.Struct(">Q")
_IPV4: Final = 0xEF << 24
_IPV6: Final = bytes.fromhex("ff18") + bytes(11)


class StareKind(enum.IntEnum):
    """The two bits that begin the header and follow the address' prefix."""

    PUBLISH = 0
    SUB_ACK = 1
    SUB_REMOVE = 2
    SUB_REGISTER = 3


class StareError(ValueError):
    """Bytes that are not a header."""


class StareHeader(Struct, frozen=True):
    """The application header. `total` is the number of segments, 1 to 64."""

    kind: StareKind
    state: int
    vnf: int = 0
    update: int = 0
    total: int = 1
    number: int = 0

    @property
    def carries_segment(self) -> bool:
        """Whether a Treecast segment follows."""
        return self.vnf == 0 and self.kind is StareKind.PUBLISH


def check_state(state: int) -> int:
    """Returns the state id. Raises ValueError if it cannot be allotted."""
    if not FIRST_STATE <= state <= LAST_STATE:
        raise ValueError(f"state id {state}: from {FIRST_STATE} to {LAST_STATE}")
    return state


def encode_header(header: StareHeader) -> bytes:
    """Returns the 8 bytes. Raises ValueError if a field does not fit or segment fields contradict
    each other.
    """
    if not 0 <= header.state <= LAST_STATE or not 0 <= header.vnf <= LAST_VNF:
        raise ValueError(f"state {header.state} or VNF {header.vnf} does not fit")
    if not 0 <= header.update <= LAST_UPDATE or not 0 <= header.number < header.total <= MOST_SEGMENTS:
        raise ValueError(f"update {header.update} or segment {header.number} of {header.total} does not fit")
    if header.carries_segment and (header.update or header.total > 1):
        raise ValueError("with VNF id 0 update number and segment fields are 0")
    return _HEADER.pack(
        header.kind << 62
        | header.state << 40
        | header.vnf << 26
        | header.update << 12
        | header.total - 1 << 6
        | header.number
    )


def decode_header(data: bytes | bytearray | memoryview, position: int = 0) -> StareHeader:
    """Returns the header at `position`, ignoring the bytes after it. Raises StareError if it is invalid."""
    if position < 0 or len(data) - position < HEADER_SIZE:
        raise StareError("the bytes end before the header does")
    (bits,) = _HEADER.unpack_from(data, position)
    header = StareHeader(
        StareKind(bits >> 62),
        bits >> 40 & LAST_STATE,
        bits >> 26 & LAST_VNF,
        bits >> 12 & LAST_UPDATE,
        (bits >> 6 & 63) + 1,
        bits & 63,
    )
    if header.number >= header.total:
        raise StareError(f"segment {header.number} of {header.total}")
    if header.carries_segment and (header.update or header.total > 1):
        raise StareError("a Treecast segment with STARE's segment fields")
    return header


def group(state: int, *, ipv6: bool = False, kind: StareKind = StareKind.PUBLISH) -> bytes:
    """Returns the multicast address of a state, packed: 4 or 16 bytes."""
    if not 0 <= state <= LAST_STATE:
        raise ValueError(f"state id {state} does not fit 22 bits")
    low = kind << 22 | state
    return _IPV6 + low.to_bytes(3) if ipv6 else (_IPV4 | low).to_bytes(4)


def read_group(address: bytes) -> tuple[StareKind, int] | None:
    """Returns (kind, state id) of a packed multicast address, 4 or 16 bytes; None if it is not one of
    STARE's.
    """
    if len(address) == 4 and address[0] == _IPV4 >> 24:
        low = int.from_bytes(address[1:])
    elif len(address) == 16 and address.startswith(_IPV6):
        low = int.from_bytes(address[13:])
    else:
        return None
    return StareKind(low >> 22), low & LAST_STATE


def overhead(*, ipv6: bool = False) -> int:
    """Returns the bytes of a packet before the state's own: IP, UDP and the header."""
    return (40 if ipv6 else 20) + 8 + HEADER_SIZE
