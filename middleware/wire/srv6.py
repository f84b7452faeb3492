"""The segment routing header of IPv6 (SRH, RFC 8754, section 2).

  | next header (8) | hdr ext len (8) | routing type 4 (8) | segments left (8) |
  | last entry (8)  | flags (8)       | tag (16)                               |
  | segment list[0] (128) ... segment list[last entry] (128)                   |
  | TLVs (wire.srv6_tlvs) ...                                                  |

Big-endian. `hdr ext len` counts units of 8 bytes, without the first one. The segment list is in reverse:
entry 0 is the last segment of the path, and `segments left` is the index of the current destination. A path
has at most 127 segments. A reduced list (4.1.1) omits the first segment, which is the packet's destination
anyway; `segments left` is then `last entry + 1`.

Bytes that break a rule raise `SrhError`, which states a router's answer: an ICMP Parameter Problem that
points at a byte, or none if the packet is only dropped.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

ROUTING_HEADER: Final = 43  # value of the preceding next header field
ROUTING_TYPE: Final = 4
FIXED_SIZE: Final = 8
SID_SIZE: Final = 16
LARGEST: Final = FIXED_SIZE + 255 * 8
MOST_SEGMENTS: Final = (LARGEST - FIXED_SIZE) // SID_SIZE

_FIXED: Final = struct.Struct(">BBBBBBH")

# Pointers of an ICMP Parameter Problem of code 0, from the header's first byte.
AT_ROUTING_TYPE: Final = 2
AT_SEGMENTS_LEFT: Final = 3


class SrhError(ValueError):
    """Bytes that are not an SRH. `pointer` is the index of the wrong byte, -1 if the header is truncated."""

    def __init__(self, text: str, pointer: int = -1) -> None:
        super().__init__(text)
        self.pointer = pointer


class Srh(Struct, frozen=True):
    """A segment routing header. `segments` is in wire order, the path's last segment first. The length of
    `tlvs` is a multiple of 8.
    """

    next_header: int
    segments_left: int
    segments: tuple[bytes, ...]
    tlvs: bytes = b""
    flags: int = 0
    tag: int = 0

    @property
    def size(self) -> int:
        """The size on the wire in bytes."""
        return srh_size(len(self.segments), len(self.tlvs))

    @property
    def path(self) -> tuple[bytes, ...]:
        """The segments in the order in which a packet visits them; for a reduced list without the first."""
        return self.segments[::-1]

    @property
    def reduced(self) -> bool:
        """Whether the first segment is in the destination address only and the packet is on its way to it."""
        return self.segments_left == len(self.segments)

    @property
    def destination(self) -> bytes:
        """The segment that the packet goes to. Raises ValueError if a reduced list does not contain it."""
        if self.reduced:
            raise ValueError("the first segment of a reduced list is in the destination address only")
        return self.segments[self.segments_left]


def srh_size(segments: int, tlvs: int = 0) -> int:
    """Returns the size of a header with `segments` segments and `tlvs` bytes of TLVs."""
    return FIXED_SIZE + SID_SIZE * segments + tlvs


def path_header(
    path: list[bytes], next_header: int, *, tlvs: bytes = b"", tag: int = 0, reduced: bool = False
) -> Srh:
    """Returns the header of a packet at its source (RFC 8754, 4.1 and 4.1.1), for destination `path[0]`.

    Raises ValueError for an empty path. A path of one segment is never reduced: no header has an empty list.
    """
    if not path:
        raise ValueError("a path has at least one segment")
    listed = path[:0:-1] if reduced and len(path) > 1 else path[::-1]
    return Srh(next_header, len(path) - 1, tuple(listed), tlvs, 0, tag)


def encode_srh(header: Srh) -> bytes:
    """Returns the bytes. Raises ValueError if a field does not fit or fields contradict each other."""
    _check(header)
    length = (header.size - FIXED_SIZE) // 8
    last = len(header.segments) - 1
    fixed = (header.next_header, length, ROUTING_TYPE, header.segments_left, last, header.flags, header.tag)
    return b"".join([_FIXED.pack(*fixed), *header.segments, header.tlvs])


def _check(header: Srh) -> None:
    if not 0 <= header.next_header <= 255 or not 0 <= header.flags <= 255 or not 0 <= header.tag <= 0xFFFF:
        raise ValueError("next header, flags or tag do not fit")
    if any(len(segment) != SID_SIZE for segment in header.segments):
        raise ValueError("a segment has 16 bytes")
    if not header.segments:
        raise ValueError("a header has at least one segment")
    if len(header.tlvs) % 8:
        raise ValueError("TLVs are padded to a multiple of 8 bytes")
    if header.size > LARGEST:
        raise ValueError(f"{header.size} bytes; a header has at most {LARGEST}")
    if not 0 <= header.segments_left <= len(header.segments):
        raise ValueError(f"{header.segments_left} segments left of {len(header.segments)}")


def decode_srh(data: bytes | bytearray | memoryview, position: int = 0) -> Srh:
    """Returns the header at `position`, ignoring the bytes after it. Raises SrhError if it is invalid.

    Refuses (4.3.1.1) a last entry beyond the header's length, and segments left beyond last entry + 1. Both
    errors point at segments left.
    """
    left = len(data) - position
    if position < 0 or left < FIXED_SIZE:
        raise SrhError("the bytes end before the fixed part does")
    following, length, kind, segments_left, last, flags, tag = _FIXED.unpack_from(data, position)
    if kind != ROUTING_TYPE:
        raise SrhError(f"routing type {kind} is not an SRH", AT_ROUTING_TYPE)
    if last > length // 2 - 1:
        raise SrhError(f"last entry {last} in {8 * length} bytes", AT_SEGMENTS_LEFT)
    if segments_left > last + 1:
        raise SrhError(f"{segments_left} segments left, last entry {last}", AT_SEGMENTS_LEFT)
    if left < FIXED_SIZE + 8 * length:
        raise SrhError(f"{left} bytes of {FIXED_SIZE + 8 * length}")
    start = position + FIXED_SIZE
    end = start + SID_SIZE * (last + 1)
    segments = tuple([bytes(data[at : at + SID_SIZE]) for at in range(start, end, SID_SIZE)])
    return Srh(following, segments_left, segments, bytes(data[end : start + 8 * length]), flags, tag)


def advance(header: Srh) -> Srh:
    """Returns the header after its segment's node has processed it (End, RFC 8986, 4.1): one segment left
    less.

    The packet's new destination is `destination` of the result. Raises ValueError at the last segment.
    """
    if not header.segments_left:
        raise ValueError("the packet is at its last segment")
    return Srh(
        header.next_header, header.segments_left - 1, header.segments, header.tlvs, header.flags, header.tag
    )
