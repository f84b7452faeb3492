"""TLVs of an SRH: golden bytes, round trip, every cut, arbitrary bytes, scapy, a computed HMAC."""

from __future__ import annotations

import hashlib
import hmac as hmac_module
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet6 import IPv6ExtHdrSegmentRouting

from treecast.middleware.wire.srv6 import encode_srh, path_header
from treecast.middleware.wire.srv6_tlvs import (
    CONTENT,
    HMAC,
    MOST_LABELS,
    PAD_N,
    ContentLabels,
    Hmac,
    Tlv,
    TlvError,
    content_tlv,
    decode_tlvs,
    encode_tlvs,
    hmac_text,
    hmac_tlv,
    overhead,
    padded,
    read_content,
    read_hmac,
)

KINDS = st.integers(1, 255).filter(lambda kind: kind not in (PAD_N, HMAC))
TLVS = st.lists(st.builds(Tlv, KINDS, st.binary(max_size=40)), max_size=5)
PATH = [ipaddress.ip_address(f"fcbb:bb00:{n}::1").packed for n in (1, 2)]


def test_golden_bytes() -> None:
    content = content_tlv(ContentLabels((1, 0xABCDEF01)))
    code = hmac_tlv(Hmac(9, bytes(8), True))
    data = encode_tlvs([content, code])
    assert data.hex() == "7c0a000000000001abcdef01" + "050e8000000000090000000000000000" + "04020000"
    assert decode_tlvs(data) == [content, code]
    assert read_content(content) == ContentLabels((1, 0xABCDEF01))
    assert read_hmac(code) == Hmac(9, bytes(8), True)
    assert not content.may_change
    assert Tlv(0xFC, b"").may_change


@given(TLVS)
def test_round_trip_and_every_cut(tlvs: list[Tlv]) -> None:
    data = encode_tlvs(tlvs)
    assert len(data) % 8 == 0
    assert decode_tlvs(memoryview(data)) == tlvs
    whole = sum(2 + len(tlv.value) for tlv in tlvs)
    for cut in range(whole):
        try:
            assert len(decode_tlvs(data[:cut])) < len(tlvs)
        except TlvError:
            pass


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_refused_or_read(data: bytes) -> None:
    try:
        found = decode_tlvs(data)
    except TlvError:
        return
    assert decode_tlvs(encode_tlvs(found)) == found
    for tlv in found:
        for read in (read_hmac, read_content):
            try:
                read(tlv)
            except TlvError:
                pass


@pytest.mark.parametrize("missing", range(8))
def test_padding_is_one_tlv(missing: int) -> None:
    data = padded(bytes([CONTENT, 6 - missing]) + bytes(6 - missing) if missing < 7 else b"\0")
    assert len(data) % 8 == 0
    assert len([1 for tlv in decode_tlvs(data) if tlv.kind == CONTENT]) == (missing < 7)


@pytest.mark.parametrize(
    "data",
    ["7c", "7c05000000000001", "04", "0406000000000000", "0501", "050e" + "00" * 14 + "050e" + "00" * 14],
)
def test_broken_tlvs_are_refused(data: str) -> None:
    with pytest.raises(TlvError):
        decode_tlvs(bytes.fromhex(data))


@pytest.mark.parametrize("size", [0, 5, 6, 13, 15, 39, 46])
def test_hmacs_of_other_sizes_are_refused(size: int) -> None:
    with pytest.raises(TlvError):
        read_hmac(Tlv(HMAC, bytes(size)))
    with pytest.raises(ValueError):
        hmac_tlv(Hmac(1, bytes(size)))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 7, 9])
def test_content_of_other_sizes_is_refused(size: int) -> None:
    with pytest.raises(TlvError):
        read_content(Tlv(CONTENT, bytes(size)))
    with pytest.raises(TlvError):
        read_content(Tlv(CONTENT + 1, bytes(6)))


def test_what_does_not_fit_is_not_written() -> None:
    for labels in ((), (1 << 32,), (-1,), tuple(range(MOST_LABELS + 1))):
        with pytest.raises(ValueError):
            content_tlv(ContentLabels(labels))
    with pytest.raises(ValueError):
        content_tlv(ContentLabels((1,), 256))
    with pytest.raises(ValueError):
        hmac_tlv(Hmac(1 << 32, bytes(32)))
    for wrong in (Tlv(PAD_N, b""), Tlv(0, b""), Tlv(256, b""), Tlv(7, bytes(256))):
        with pytest.raises(ValueError):
            encode_tlvs([wrong])
    most = content_tlv(ContentLabels(tuple(range(MOST_LABELS))))
    assert read_content(decode_tlvs(encode_tlvs([most]))[0]).labels == tuple(range(MOST_LABELS))


def test_what_an_hmac_covers() -> None:
    """Built by hand from RFC 8754, 2.1.2.1; other segments, flags or sources give another code."""
    header = path_header(PATH, 17)
    source = ipaddress.ip_address("2001:db8::1").packed
    text = hmac_text(source, header, Hmac(7, b"", True))
    assert text == source + bytes([1, 0, 0x80, 0, 0, 0, 0, 7]) + PATH[1] + PATH[0]
    code = hmac_module.digest(b"secret", text, hashlib.sha256)
    assert read_hmac(hmac_tlv(Hmac(7, code, True))).code == code
    assert hmac_text(source, path_header(PATH[::-1], 17), Hmac(7, b"", True)) != text
    with pytest.raises(ValueError, match="16 bytes"):
        hmac_text(b"", header, Hmac(7, b""))


@given(TLVS)
def test_scapy_reads_the_same_tlvs(tlvs: list[Tlv]) -> None:
    data = encode_srh(path_header(PATH, 59, tlvs=encode_tlvs(tlvs)))
    read = IPv6ExtHdrSegmentRouting(data)
    found = [bytes(one) for one in read.tlv_objects]
    assert b"".join(found) == data[8 + 32 :]


def test_overhead() -> None:
    for labels in (0, 1, 2, 5):
        tlvs = encode_tlvs([content_tlv(ContentLabels((1,) * labels))]) if labels else b""
        assert overhead(2, labels) == 40 + path_header(PATH, 17, tlvs=tlvs).size
