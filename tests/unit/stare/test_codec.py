"""Frames of the STARE face: golden bytes, round trip, single bytes, trailing data, arbitrary bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.shims.stare.codec import (
    LONGEST_FRAME,
    LONGEST_TEXT,
    Code,
    CodecError,
    Cutter,
    Frame,
    Type,
    decode,
    encode,
)

U16, U32, U64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
TEXT, VALUE = st.text(max_size=20), st.binary(max_size=40)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    kind = draw(st.sampled_from(Type))
    match kind:
        case Type.HELLO:
            return Frame(kind, version=draw(U16), text=draw(TEXT))
        case Type.STATE:
            return Frame(kind, request=draw(U32), text=draw(TEXT))
        case Type.SUBSCRIBE | Type.UNSUBSCRIBE | Type.STATE_IS:
            return Frame(kind, request=draw(U32), state=draw(U32))
        case Type.PUBLISH:
            return Frame(kind, request=draw(U32), state=draw(U32), value=draw(VALUE))
        case Type.PING | Type.PONG:
            return Frame(kind, request=draw(U32))
        case Type.WELCOME:
            return Frame(kind, version=draw(U16), vnf=draw(U16), number=draw(U32))
        case Type.DONE:
            return Frame(kind, request=draw(U32), number=draw(U64))
        case Type.REFUSED:
            return Frame(kind, request=draw(U32), code=draw(U16), text=draw(TEXT))
        case Type.UPDATE:
            return Frame(kind, state=draw(U32), vnf=draw(U16), number=draw(U64), value=draw(VALUE))
        case _:
            return Frame(kind, code=draw(U16), text=draw(TEXT))


GOLDEN = [
    (Frame(Type.HELLO, version=1, text="x"), "0000000401000178"),
    (
        Frame(Type.PUBLISH, request=7, state=256, value=b"ab"),
        "0000000b0500000007000001006162",
    ),
    (
        Frame(Type.UPDATE, state=256, vnf=3, number=5, value=b"ab"),
        "000000118500000100000300000000000000056162",
    ),
    (Frame(Type.REFUSED, request=7, code=Code.AWAY, text="no"), "00000009840000000700056e6f"),
]


@pytest.mark.parametrize(("frame", "golden"), GOLDEN)
def test_golden_bytes(frame: Frame, golden: str) -> None:
    assert encode(frame).hex() == golden
    assert Cutter().receive(bytes.fromhex(golden)) == [frame]


@given(st.lists(frames(), max_size=5), st.integers(1, 9), st.binary(max_size=3))
def test_round_trip_in_pieces_with_bytes_that_follow(some: list[Frame], size: int, after: bytes) -> None:
    data = b"".join(encode(frame) for frame in some) + after
    cutter = Cutter()
    found = [frame for at in range(0, len(data), size) for frame in cutter.receive(data[at : at + size])]
    assert found == some
    assert cutter.held == len(after)


@given(frames())
def test_a_body_that_is_too_short_is_refused(frame: Frame) -> None:
    data = encode(frame)
    body, least = data[5:], {Type.HELLO: 2, Type.WELCOME: 8, Type.ERROR: 2}.get(frame.type, 4)
    with pytest.raises(CodecError):
        decode(frame.type, body[: least - 1])


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_refused_or_read(data: bytes) -> None:
    cutter = Cutter(100)
    try:
        found = cutter.receive(data)
    except CodecError:
        return
    again = b"".join(encode(frame) for frame in found)
    assert again == data[: len(again)]
    assert cutter.held == len(data) - len(again)


@pytest.mark.parametrize("length", [0, LONGEST_FRAME + 1, 0xFFFFFFFF])
def test_a_length_is_refused_before_the_bytes_have_come(length: int) -> None:
    with pytest.raises(CodecError):
        Cutter().receive(length.to_bytes(4))


def test_what_does_not_fit_is_not_written() -> None:
    for frame in (
        Frame(Type.STATE, request=-1),
        Frame(Type.STATE, text="x" * (LONGEST_TEXT + 1)),
        Frame(Type.PUBLISH, value=bytes(LONGEST_FRAME)),
    ):
        with pytest.raises(ValueError):
            encode(frame)
    with pytest.raises(CodecError):
        decode(Type.STATE, bytes(4) + b"\xff")
    with pytest.raises(CodecError):
        decode(Type.STATE, bytes(4 + LONGEST_TEXT + 1))
