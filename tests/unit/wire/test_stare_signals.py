"""Signals: golden bytes, round trip, every cut, trailing data, arbitrary bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.wire.stare import LAST_STATE, LAST_VNF
from treecast.middleware.wire.stare_signals import (
    MOST_ENTRIES,
    Closed,
    Opened,
    Signal,
    SignalError,
    SignalKind,
    Span,
    Update,
    decode_signal,
    encode_signal,
)

STATE, VNF, NUMBER = st.integers(0, LAST_STATE), st.integers(0, LAST_VNF), st.integers(0, 2**63)


@st.composite
def spans(draw: st.DrawFn, flags: bool) -> Span:
    first = draw(NUMBER)
    end = first + draw(st.integers(0, 2**62))
    return Span(draw(STATE), draw(VNF), first, end, draw(st.integers(0, 3)) if flags else 0)


@st.composite
def signals(draw: st.DrawFn) -> Signal:
    kind = draw(st.sampled_from(SignalKind))
    some = lambda of: tuple(draw(st.lists(of, max_size=4)))  # noqa: E731
    match kind:
        case SignalKind.WANT | SignalKind.UNWANT | SignalKind.OPEN:
            return Signal(kind, numbers=some(STATE))
        case SignalKind.UPDATE:
            return Signal(kind, updates=some(st.builds(Update, STATE, VNF, NUMBER, st.binary(max_size=20))))
        case SignalKind.OPENED:
            return Signal(kind, opened=some(st.builds(Opened, st.integers(0, 2**32 - 1), VNF, NUMBER)))
        case SignalKind.CLOSED:
            return Signal(kind, closed=some(st.builds(Closed, VNF, NUMBER)))
    return Signal(kind, spans=some(spans(kind is SignalKind.REPORT)))


GOLDEN = [
    (Signal(SignalKind.WANT, numbers=(256, 70_000)), "0100020000010000011170"),
    (
        Signal(SignalKind.REPORT, spans=(Span(256, 7, 1, 3, 2),)),
        "0600010000010000070000000000000001000000000000000302",
    ),
    (
        Signal(SignalKind.UPDATE, updates=(Update(256, 7, 3, b"ab"),)),
        "0800010000010000070000000000000003000000026162",
    ),
]


@pytest.mark.parametrize(("signal", "golden"), GOLDEN)
def test_golden_bytes(signal: Signal, golden: str) -> None:
    assert encode_signal(signal).hex() == golden
    assert decode_signal(bytes.fromhex(golden)) == signal


@given(signals())
def test_round_trip(signal: Signal) -> None:
    assert decode_signal(memoryview(encode_signal(signal))) == signal


@given(signals(), st.binary(min_size=1, max_size=4))
@settings(max_examples=40)
def test_every_shorter_piece_and_trailing_bytes_are_refused(signal: Signal, more: bytes) -> None:
    data = encode_signal(signal)
    for length in range(len(data)):
        with pytest.raises(SignalError):
            decode_signal(data[:length])
    with pytest.raises(SignalError):
        decode_signal(data + more)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused_or_read(data: bytes) -> None:
    try:
        signal = decode_signal(data)
    except SignalError:
        return
    assert encode_signal(signal) == data


def test_bounds_are_held_before_anything_is_made() -> None:
    with pytest.raises(SignalError):
        decode_signal(bytes([1]) + (MOST_ENTRIES + 1).to_bytes(2))
    with pytest.raises(SignalError):  # a value of 4 GB in 21 bytes
        decode_signal(bytes.fromhex("0800010000010000070000000000000003ffffffff"))
    with pytest.raises(ValueError):
        encode_signal(Signal(SignalKind.WANT, numbers=tuple(range(MOST_ENTRIES + 1))))
    with pytest.raises(SignalError):  # from 3 to 1
        decode_signal(bytes.fromhex("05000100000100000700000000000000030000000000000001"))
