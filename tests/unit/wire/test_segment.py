"""Segments: golden bytes, round trip, byte at a time, trailing data, arbitrary bytes, tags."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire.segment import (
    HEADER_SIZE,
    NO_KEYS,
    TAG_SIZE,
    After,
    KeyRing,
    Kind,
    Segment,
    SegmentError,
    SegmentFault,
    control,
    decode,
    encode,
    overhead,
)

KEYS = KeyRing({7: b"k" * 32, 8: b"l" * 16}, 7)
UINT32 = st.integers(0, 2**32 - 1)
AFTER = st.lists(st.builds(After, UINT32, UINT32, st.integers(0, 2**64 - 1)), max_size=16).map(tuple)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    kind = draw(st.sampled_from(Kind))
    payload = draw(st.binary(max_size=200))
    origin, stream, epoch, sender = (draw(UINT32) for _ in range(4))
    content = draw(st.binary(max_size=255)) * 4
    if kind not in (Kind.DATA, Kind.REPAIR, Kind.REPLAY):
        return Segment(kind, origin, stream, epoch, 0, 0, 0, 1, sender, payload, (), content)
    total = draw(st.integers(1, 65535))
    number = draw(st.integers(0, total - 1))
    records = draw(st.integers(1, 2**32 - 1))
    sequence = draw(st.integers(0, 2**64 - 1 - records))
    after = draw(AFTER) if number == 0 else ()
    return Segment(
        kind, origin, stream, epoch, sequence, records, number, total, sender, payload, after, content
    )


RINGS = st.sampled_from([NO_KEYS, KEYS])
EXAMPLE = Segment(Kind.REPAIR, 1, 2, 3, 4, 5, 0, 7, 8, b"abc", (After(9, 10, 11),), b"cont")
GOLDEN_HEADER = bytes.fromhex(
    "11 00 0000"  # version 1, repair; no flags; no key
    "00000001 00000002 00000003"  # origin, stream, epoch
    "0000000000000004 00000005"  # sequence, records
    "0000 0007 0003 01 01"  # number, total, length, words of content, entries of `after`
    "00000008"  # sender
)
GOLDEN_REST = bytes.fromhex("00000009 0000000a 000000000000000b") + b"cont" + b"abc"


def test_golden_bytes() -> None:
    assert encode(EXAMPLE).hex() == (GOLDEN_HEADER + GOLDEN_REST).hex()
    assert decode(GOLDEN_HEADER + GOLDEN_REST) == (EXAMPLE, len(GOLDEN_HEADER + GOLDEN_REST))


def test_golden_bytes_with_a_tag() -> None:
    header = bytes.fromhex("11 01 0007") + GOLDEN_HEADER[4:]
    key = blake3(b"k" * 32, derive_key_context="treecast 2026-11-21 tag of a segment").digest()
    tag = blake3(GOLDEN_REST + header, key=key).digest(length=16)
    assert encode(EXAMPLE, KEYS).hex() == (header + tag + GOLDEN_REST).hex()


@given(segments(), RINGS)
def test_round_trip(segment: Segment, keys: KeyRing) -> None:
    data = encode(segment, keys)
    assert decode(memoryview(bytearray(data)), keys) == (segment, len(data))
    assert len(data) == overhead(keys, segment.content, len(segment.after)) + len(segment.payload)


@given(segments(), RINGS, st.binary(max_size=40), st.binary(max_size=40))
def test_what_lies_before_and_after_does_not_count(
    segment: Segment, keys: KeyRing, before: bytes, after: bytes
) -> None:
    data = encode(segment, keys)
    assert decode(before + data + after, keys, len(before)) == (segment, len(before) + len(data))


def test_a_segment_ends_within_its_datagram() -> None:
    data = encode(EXAMPLE, KEYS)
    assert decode(data * 2, KEYS, len(data), 2 * len(data)) == (EXAMPLE, 2 * len(data))
    for limit in (0, HEADER_SIZE, len(data) - 1):
        with pytest.raises(SegmentError) as caught:
            decode(data * 2, KEYS, 0, limit)
        assert caught.value.fault is SegmentFault.TRUNCATED


@pytest.mark.parametrize("keys", [NO_KEYS, KEYS])
def test_every_shorter_piece_is_truncated(keys: KeyRing) -> None:
    data = encode(EXAMPLE, keys)
    for length in range(len(data)):
        with pytest.raises(SegmentError) as caught:
            decode(data[:length], keys)
        assert caught.value.fault is SegmentFault.TRUNCATED


@given(st.binary(max_size=120), RINGS)
def test_arbitrary_bytes_are_refused_or_read(data: bytes, keys: KeyRing) -> None:
    try:
        segment, end = decode(data, keys)
    except SegmentError:
        return
    assert end <= len(data)
    assert decode(encode(segment, keys), keys)[0] == segment


@given(segments(), st.data())
def test_one_changed_bit_is_never_taken_for_authentic(segment: Segment, data: st.DataObject) -> None:
    tagged = bytearray(encode(segment, KEYS))
    at = data.draw(st.integers(0, len(tagged) * 8 - 1))
    tagged[at // 8] ^= 1 << at % 8
    with pytest.raises(SegmentError):
        decode(tagged, KEYS)


@given(data=st.data())
def test_mutations_without_a_key_are_refused_or_read(
    mutations: st.SearchStrategy[Callable[[bytes], bytes]], data: st.DataObject
) -> None:
    changed = data.draw(mutations)(encode(EXAMPLE))
    try:
        segment, _ = decode(changed)
    except SegmentError:
        return
    assert decode(encode(segment))[0] == segment


def _with(at: int, value: int) -> bytes:
    data = bytearray(GOLDEN_HEADER + GOLDEN_REST)
    data[at] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (_with(0, 0x21), SegmentFault.VERSION),
        (_with(0, 0x1B), SegmentFault.KIND),
        (_with(1, 0x02), SegmentFault.FLAGS),
        (_with(3, 1), SegmentFault.FLAGS),  # a key id without a tag
        (_with(27, 0), SegmentFault.NUMBERS),  # no records
        (_with(29, 7), SegmentFault.NUMBERS),  # number 7 of a total of 7
        (_with(29, 1), SegmentFault.AFTER),  # `after` on the second part
        (_with(0, 0x12), SegmentFault.NUMBERS),  # a nak with a sequence
        (_with(35, 17), SegmentFault.AFTER),
        (_with(32, 0xFF), SegmentFault.TRUNCATED),
    ],
)
def test_faults(data: bytes, fault: SegmentFault) -> None:
    with pytest.raises(SegmentError) as caught:
        decode(data)
    assert caught.value.fault is fault


def test_a_message_does_not_pass_the_last_sequence() -> None:
    data = bytearray(GOLDEN_HEADER + GOLDEN_REST)
    data[16:24] = b"\xff" * 8
    with pytest.raises(SegmentError) as caught:
        decode(data)
    assert caught.value.fault is SegmentFault.NUMBERS


@pytest.mark.parametrize(
    ("sent", "there", "fault"),
    [
        (NO_KEYS, KEYS, SegmentFault.UNAUTHENTICATED),
        (KeyRing({9: b"x" * 32}, 9), KEYS, SegmentFault.UNKNOWN_KEY),
        (KeyRing({7: b"x" * 32}, 7), KEYS, SegmentFault.FORGED),
    ],
)
def test_tags_that_are_refused(sent: KeyRing, there: KeyRing, fault: SegmentFault) -> None:
    with pytest.raises(SegmentError) as caught:
        decode(encode(EXAMPLE, sent), there)
    assert caught.value.fault is fault


def test_any_key_of_the_ring_is_taken_and_none_is_needed_where_it_is_off() -> None:
    assert decode(encode(EXAMPLE, KeyRing({8: b"l" * 16}, 8)), KEYS)[0] == EXAMPLE
    assert decode(encode(EXAMPLE, KEYS), NO_KEYS)[0] == EXAMPLE


def test_key_zero_is_a_key() -> None:
    ring = KeyRing({0: b"z" * 16}, 0)
    assert decode(encode(EXAMPLE, ring), ring)[0] == EXAMPLE
    assert len(encode(EXAMPLE, ring)) == len(encode(EXAMPLE)) + TAG_SIZE


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"x" * 65536},
        {"content": b"abc"},
        {"content": b"x" * 1024},
        {"origin": 2**32},
        {"sequence": -1},
        {"number": 7},
        {"records": 0},
        {"after": (After(1, 1, 1),) * 17},
        {"kind": Kind.NAK},
    ],
)
def test_what_cannot_be_written(change: dict[str, object]) -> None:
    names = ("kind", "origin", "stream", "epoch", "sequence", "records", "number", "total", "sender")
    fields = dict(zip((*names, "payload", "after", "content"), EXAMPLE.fields(), strict=True)) | change
    with pytest.raises(ValueError):
        encode(Segment(**fields))


@pytest.mark.parametrize(
    ("keys", "current"), [({1: b"short"}, 1), ({1: b"k" * 33}, 1), ({65536: b"k" * 16}, 65536), ({}, 1)]
)
def test_wrong_keys(keys: dict[int, bytes], current: int) -> None:
    with pytest.raises(ValueError):
        KeyRing(keys, current)


def test_control_segments_hold_a_body_only() -> None:
    assert decode(encode(control(Kind.CLOSE, 1, 2, 3, 4, b"b")))[0].payload == b"b"
    assert len(encode(control(Kind.CLOSE, 1, 2, 3, 4, b""))) == HEADER_SIZE
