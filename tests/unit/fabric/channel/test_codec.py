"""Frames and hellos: golden bytes, round trips, byte at a time, trailing data, arbitrary bytes."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.fabric.channel.codec import (
    HEADER_SIZE,
    MAX_PAYLOAD,
    ChannelProtocolError,
    Frame,
    Handshake,
    Hello,
    Kind,
    Problem,
    Seal,
    channel_key,
    decode_frame,
    encode_frame,
)

NONCE = bytes(range(16))
GOLDEN_FRAME = (
    Frame(5, Kind.CALL, 0x0102, 0x03040506, 3, 2),
    "0000000504000102030405060000000300000002",
)
GOLDEN_HELLO = (
    Hello("cluster", 1, 9, NONCE, 2, 0x10000, 0x20000, b"lastone."),
    "54436368" "0003" "0001" "00000001" "00000002" "0000000000000009" "00010000" "00020000"
    "000102030405060708090a0b0c0d0e0f" "6c6173746f6e652e" "07" "636c7573746572",
)  # fmt: skip

numbers = st.integers(0, 2**32 - 1)
frames = st.builds(
    Frame,
    length=st.integers(0, MAX_PAYLOAD),
    kind=st.sampled_from(Kind),
    number=st.integers(0, 2**16 - 1),
    call=numbers,
    head=numbers,
    body=numbers,
)
hellos = st.builds(
    Hello,
    cluster_id=st.text(st.characters(codec="utf-8"), max_size=60),
    host_id=numbers,
    incarnation=st.integers(0, 2**64 - 1),
    nonce=st.binary(min_size=16, max_size=16),
    to=numbers,
    window=numbers,
    longest=numbers,
    last=st.binary(min_size=8, max_size=8),
    authenticated=st.booleans(),
)


def test_golden_frame() -> None:
    frame, text = GOLDEN_FRAME
    assert encode_frame(frame).hex() == text
    assert decode_frame(bytes.fromhex(text)) == frame


def test_golden_hello() -> None:
    hello, text = GOLDEN_HELLO
    assert hello.encode().hex() == text
    assert Hello.decode(bytes.fromhex(text)) == hello


@given(frames, st.binary(max_size=50), st.binary(max_size=50))
def test_frames_survive_with_what_lies_around_them(frame: Frame, before: bytes, behind: bytes) -> None:
    data = before + encode_frame(frame) + behind
    assert decode_frame(data, len(before)) == frame
    assert decode_frame(memoryview(data), len(before)) == frame


@given(frames)
def test_a_header_byte_at_a_time(frame: Frame) -> None:
    data = encode_frame(frame)
    assert [decode_frame(data[:size]) for size in range(HEADER_SIZE)] == [None] * HEADER_SIZE


@given(hellos)
def test_hellos_survive(hello: Hello) -> None:
    if len(hello.cluster_id.encode()) > 255:
        with pytest.raises(ValueError, match="wrong length"):
            hello.encode()
        return
    data = hello.encode()
    assert Hello.decode(data) == hello
    for damaged in (data + b"x", data[:-1], data[:10]):
        with pytest.raises(ChannelProtocolError) as caught:
            Hello.decode(damaged)
        assert caught.value.problem is Problem.ENCODING


@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_give_a_frame_or_a_protocol_error(data: bytes, magic: bool) -> None:
    try:
        decode_frame(data)
    except ChannelProtocolError:
        pass
    try:
        Hello.decode(b"TCch\0\1" + data if magic else data)
    except ChannelProtocolError:
        pass


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("00040001" "04" "00" + "00" * 14, Problem.LENGTH),
        ("ffffffff" "04" "00" + "00" * 14, Problem.LENGTH),
        ("00000000" "10" "00" + "00" * 14, Problem.KIND),
        ("00000000" "04" "01" + "00" * 14, Problem.ENCODING),
    ],
)  # fmt: skip
def test_refused_headers(data: str, problem: Problem) -> None:
    with pytest.raises(ChannelProtocolError) as caught:
        decode_frame(bytes.fromhex(data))
    assert caught.value.problem is problem


@pytest.mark.parametrize(
    ("position", "value", "problem"),
    [
        (0, 0, Problem.NOT_A_CHANNEL),
        (5, 1, Problem.VERSION),
        (7, 3, Problem.ENCODING),
        (56, 200, Problem.ENCODING),
        (57, 0xFF, Problem.ENCODING),
    ],
)
def test_refused_hellos(position: int, value: int, problem: Problem) -> None:
    data = bytearray(GOLDEN_HELLO[0].encode())
    data[position] = value
    with pytest.raises(ChannelProtocolError) as caught:
        Hello.decode(data)
    assert caught.value.problem is problem


@pytest.mark.parametrize(
    "fields", [{"length": MAX_PAYLOAD + 1}, {"number": 2**16}, {"call": 2**32}, {"body": -1}]
)
def test_what_does_not_fit_a_frame(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"fit|exceeds"):
        encode_frame(Frame(**{"length": 0, "kind": Kind.CALL, **fields}))


def test_proofs_and_keys_differ_by_end_and_by_hello() -> None:
    key = b"k" * 32
    first, second = Handshake(key, b"hello a", b"hello b"), Handshake(key, b"hello b", b"hello a")
    proofs = {h.proof(dialler) for h in (first, second) for dialler in (True, False)}
    seals = [h.seal(dialler) for h in (first, second) for dialler in (True, False)]
    tags = {seal.tag(b"h", b"p") for seal in seals if seal is not None}
    assert len(proofs) == len(tags) == 4
    assert first.connection() != second.connection()
    assert Handshake(b"x" * 32, b"hello a", b"hello b").proof(True) not in proofs
    # the boundary between the two hellos is part of the transcript
    assert Handshake(key, b"hello ah", b"ello b").proof(True) not in proofs
    assert Handshake(None, b"", b"").proof(True) == b""
    assert Handshake(None, b"", b"").seal(True) is None


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_tag_is_that_of_the_reference(payload: bytes, cut: int) -> None:
    """The tag is BLAKE2b over counter, header and payload, wherever the payload is cut."""
    seal, parts = Seal(b"k" * 32), Seal(b"k" * 32)
    header = encode_frame(Frame(len(payload), Kind.CALL, 1, 2, 0, len(payload)))
    for number in range(3):
        plain = blake2b(number.to_bytes(8, "big") + header + payload, digest_size=16, key=b"k" * 32)
        assert seal.tag(header, memoryview(payload)) == plain.digest()
        assert parts.tag_parts(header, payload[:cut], payload[cut:]) == plain.digest()


def test_the_key_is_derived_from_the_token() -> None:
    token = JoinToken("c", 1, b"k" * 32)
    key = channel_key(token)
    assert key is not None
    assert len(key) == 32
    assert key not in (token.key, channel_key(JoinToken("d", 1, b"k" * 32)), token.derive("control calls 1"))
    assert channel_key(None) is None
