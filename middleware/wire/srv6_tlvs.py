"""TLVs of a segment routing header (RFC 8754, section 2.1), including our own for content labels.

  Pad1      0                                                     one byte
  PadN      4 | length (8) | zeros                                length 0 to 5
  HMAC      5 | length (8) | D (1) reserved (15) | key id (32) | HMAC (up to 256)
  content   124 | length (8) | scheme (8) | reserved (8) | label (32) ...

Big-endian. The length counts the bytes after it. D marks a reduced list, so that the destination address is
not compared with it. An HMAC has 8 to 32 bytes, a multiple of 8; a header has at most one.

Content labels state a message's subject, so that nodes on the way can decide by it (SNAPS, II-B and VI). 124
is one of the types 124 to 126 that IANA reserves for experiments, for data that does not change on the way:
no node changes it, and the HMAC does not cover it. `scheme` states the meaning of labels: 0 is the hash of a
topic (`routing` and `filters` define others). A router skips a type that it does not know.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec import Struct

from .srv6 import FIXED_SIZE, SID_SIZE, Srh

PAD_1: Final = 0
PAD_N: Final = 4
HMAC: Final = 5
CONTENT: Final = 124
MOST_LABELS: Final = 62  # the limit of an 8-bit length, with the TLVs' total a multiple of 8
MOST_PADDING: Final = 5

_HMAC_HEAD: Final = struct.Struct(">HI")
_HMAC_SIZES: Final = (8, 16, 24, 32)


class TlvError(ValueError):
    """Bytes that are not TLVs, or a TLV that contradicts itself."""


class Tlv(Struct, frozen=True):
    """One TLV other than padding: its type, and the bytes after its length."""

    kind: int
    value: bytes

    @property
    def may_change(self) -> bool:
        """Whether nodes on the way may change its data: the highest bit of its type."""
        return bool(self.kind & 0x80)


class Hmac(Struct, frozen=True):
    """An HMAC TLV. `reduced` is its D bit. A holder of the key checks the HMAC itself."""

    key: int
    code: bytes
    reduced: bool = False


class ContentLabels(Struct, frozen=True):
    """A message's subject: up to 62 labels of 32 bits, of one scheme."""

    labels: tuple[int, ...]
    scheme: int = 0


def encode_tlvs(tlvs: list[Tlv]) -> bytes:
    """Returns the TLVs, padded to a multiple of 8 bytes. Raises ValueError if one does not fit."""
    parts = []
    for tlv in tlvs:
        if tlv.kind in (PAD_1, PAD_N) or not 0 < tlv.kind <= 255 or len(tlv.value) > 255:
            raise ValueError(f"type {tlv.kind} with {len(tlv.value)} bytes")
        parts.append(bytes([tlv.kind, len(tlv.value)]) + tlv.value)
    return padded(b"".join(parts))


def padded(data: bytes) -> bytes:
    """Returns TLVs with padding up to a multiple of 8 bytes."""
    missing = -len(data) % 8
    if missing == 0:
        return data
    if missing == 1:
        return data + bytes([PAD_1])
    return data + bytes([PAD_N, missing - 2]) + bytes(missing - 2)


def decode_tlvs(data: bytes | bytearray | memoryview) -> list[Tlv]:
    """Returns the TLVs without padding. Raises TlvError for missing bytes, too long padding, or two HMACs."""
    found: list[Tlv] = []
    at = 0
    while at < len(data):
        kind = data[at]
        if kind == PAD_1:
            at += 1
            continue
        if at + 2 > len(data) or at + 2 + data[at + 1] > len(data):
            raise TlvError(f"the bytes end before the TLV of type {kind} does")
        end = at + 2 + data[at + 1]
        if kind != PAD_N:
            found.append(Tlv(kind, bytes(data[at + 2 : end])))
        elif data[at + 1] > MOST_PADDING:
            raise TlvError(f"padding of {data[at + 1]} bytes")
        at = end
    if sum(tlv.kind == HMAC for tlv in found) > 1:
        raise TlvError("a header has one HMAC at most")
    return found


def hmac_tlv(hmac: Hmac) -> Tlv:
    """Returns the TLV. Raises ValueError if the HMAC does not have 8, 16, 24 or 32 bytes."""
    if len(hmac.code) not in _HMAC_SIZES or not 0 <= hmac.key <= 0xFFFFFFFF:
        raise ValueError(f"an HMAC of {len(hmac.code)} bytes by key {hmac.key}")
    return Tlv(HMAC, _HMAC_HEAD.pack(hmac.reduced << 15, hmac.key) + hmac.code)


def read_hmac(tlv: Tlv) -> Hmac:
    """Returns the HMAC of a TLV of this type; ignores reserved bits. Raises TlvError for any other size."""
    if tlv.kind != HMAC or len(tlv.value) - _HMAC_HEAD.size not in _HMAC_SIZES:
        raise TlvError(f"type {tlv.kind} with {len(tlv.value)} bytes is not an HMAC")
    bits, key = _HMAC_HEAD.unpack_from(tlv.value)
    return Hmac(key, tlv.value[_HMAC_HEAD.size :], bool(bits >> 15))


def hmac_text(source: bytes, header: Srh, hmac: Hmac) -> bytes:
    """Returns the bytes that an HMAC covers (2.1.2.1): source address, last entry, flags, D with the reserved
    bits, key id and the segment list. Raises ValueError if the address does not have 16 bytes.
    """
    if len(source) != SID_SIZE:
        raise ValueError("an address has 16 bytes")
    fields = bytes([len(header.segments) - 1, header.flags, hmac.reduced << 7, 0])
    return b"".join([source, fields, hmac.key.to_bytes(4), *header.segments])


def content_tlv(content: ContentLabels) -> Tlv:
    """Returns the TLV. Raises ValueError for no label, more than 62, or one beyond 32 bits."""
    if not 0 < len(content.labels) <= MOST_LABELS or not 0 <= content.scheme <= 255:
        raise ValueError(f"{len(content.labels)} labels of scheme {content.scheme}")
    if any(not 0 <= label <= 0xFFFFFFFF for label in content.labels):
        raise ValueError("a label has 32 bits")
    packed = struct.pack(f">{len(content.labels)}I", *content.labels)
    return Tlv(CONTENT, bytes([content.scheme, 0]) + packed)


def read_content(tlv: Tlv) -> ContentLabels:
    """Returns the content labels of a TLV of this type. Raises TlvError for a wrong size or no label."""
    count, rest = divmod(len(tlv.value) - 2, 4)
    if tlv.kind != CONTENT or rest or not 0 < count <= MOST_LABELS:
        raise TlvError(f"type {tlv.kind} with {len(tlv.value)} bytes has no content labels")
    return ContentLabels(struct.unpack_from(f">{count}I", tlv.value, 2), tlv.value[0])


def overhead(segments: int, labels: int = 0) -> int:
    """Returns the bytes before a packet's payload: IPv6, and an SRH with segments and content labels."""
    tlvs = (4 + 4 * labels + 7) // 8 * 8 if labels else 0
    return 40 + FIXED_SIZE + SID_SIZE * segments + tlvs
