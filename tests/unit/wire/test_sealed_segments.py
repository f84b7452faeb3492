"""Sealed segments: the cipher against a plain one, what stays readable, what is refused, and the window."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.fabric.sealing import AesGcm
from treecast.middleware.wire.segment import (
    HEADER_SIZE,
    SEAL_MORE,
    TAG_SIZE,
    After,
    Kind,
    Message,
    Segment,
    cut,
    cut_encoded,
    decode,
    encode,
)
from treecast.middleware.wire.segment_faults import SegmentError, SegmentFault
from treecast.middleware.wire.segment_keys import WINDOW, KeyRing, Sealing, Window

from .plain_gcm import PlainGcm

KEY = bytes(range(32))
OTHER = bytes(32)


def ring(keys: dict[int, bytes] | None = None, current: int = 1, salt: bytes = b"salt") -> KeyRing:
    return KeyRing({1: KEY} if keys is None else keys, current, Sealing(AesGcm, salt, 7))


def segment(payload: bytes = b"in the clear", number: int = 5) -> Segment:
    return Segment(Kind.DATA, 3, 4, 5, number, 1, 0, 1, 3, payload, (After(1, 2, 3),), b"CONTENT.")


def refusal(data: bytes, keys: KeyRing) -> SegmentFault:
    with pytest.raises(SegmentError) as found:
        decode(data, keys)
    return found.value.fault


@settings(max_examples=15, deadline=None)
@given(
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=12, max_size=12),
    st.binary(max_size=50),
    st.binary(max_size=50),
)
def test_the_cipher_equals_the_plain_reference(key: bytes, nonce: bytes, data: bytes, header: bytes) -> None:
    sealed = AesGcm(key).seal(nonce, data, header)
    assert sealed == PlainGcm(key).seal(nonce, data, header)
    assert PlainGcm(key).open(nonce, sealed, header) == data == AesGcm(key).open(nonce, sealed, header)


def test_a_known_answer() -> None:
    """Test case 14 of the GCM submission: a key and a block of zeros."""
    sealed = PlainGcm(bytes(32)).seal(bytes(12), bytes(16), b"")
    assert sealed.hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"


def test_headers_stay_readable_and_the_payload_does_not() -> None:
    data = encode(segment(), ring())
    assert data[:HEADER_SIZE][4:8] == (3).to_bytes(4, "big")
    assert b"CONTENT." in data
    assert b"clear" not in data
    found, end = decode(data + b"padding", ring())
    assert (found, end) == (segment(), len(data))
    tagged = encode(segment(), KeyRing({1: KEY}, 1))
    assert len(data) - len(tagged) == SEAL_MORE


@pytest.mark.parametrize("size", [0, 10, 3000, 20_000])
def test_fast_paths_open_as_the_plain_one(size: int) -> None:
    message = Message(9, 1, bytes(size))
    for mtu in (1400, 9000, 65_000):
        encoded = [bytes(one) for one in cut_encoded(message, mtu, (1, 2, 3), 1, Kind.DATA, None, ring())]
        keys = ring()
        assert [decode(one, keys)[0] for one in encoded] == list(cut(message, mtu, (1, 2, 3), 1))
        assert max(map(len, encoded)) <= mtu + SEAL_MORE


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1000), st.integers(1, 255))
def test_any_change_is_refused(place: int, change: int) -> None:
    data = bytearray(encode(segment(), ring()))
    data[place % len(data)] ^= change
    with pytest.raises(SegmentError):
        decode(bytes(data), ring())


def test_what_comes_again_is_refused() -> None:
    sender, receiver = ring(), ring()
    one, two = encode(segment(number=1), sender), encode(segment(number=2), sender)
    decode(two, receiver)
    decode(one, receiver, counted=False)  # a look does not count
    decode(one, receiver)  # in another order
    assert refusal(one, receiver) is SegmentFault.REPLAYED
    assert refusal(two, receiver) is SegmentFault.REPLAYED


def test_hosts_that_protect_otherwise() -> None:
    sealed, tagged = encode(segment(), ring()), encode(segment(), KeyRing({1: KEY}, 1))
    assert refusal(sealed, KeyRing({1: KEY}, 1)) is SegmentFault.SEALED
    assert refusal(sealed, KeyRing({}, None)) is SegmentFault.SEALED
    assert refusal(tagged, ring()) is SegmentFault.UNSEALED
    assert refusal(encode(segment()), ring()) is SegmentFault.UNSEALED


def test_a_change_of_keys() -> None:
    sender, receiver = ring(), ring()
    before = encode(segment(), sender)
    receiver.add(2, OTHER)
    sender.add(2, OTHER)
    sender.use(2)
    decode(encode(segment(), sender), receiver)
    decode(encode(segment(number=6), ring()), receiver)  # under the old key, which still holds
    receiver.use(2)
    receiver.keep([2])
    assert refusal(before, receiver) is SegmentFault.UNKNOWN_KEY
    assert 1 not in receiver


def test_each_stream_epoch_and_sender_has_a_key_of_its_own() -> None:
    fields = [(3, 4, 5, 3), (9, 4, 5, 3), (3, 9, 5, 3), (3, 4, 9, 3), (3, 4, 5, 9)]
    nonce = bytes(12)
    sealed = set()
    for origin, stream, epoch, sender in fields:
        keys = ring()
        assert keys.sealing is not None
        keys.sealing.count, keys.sealing.salt = -1 & 2**64 - 1, bytes(4)
        made, found = keys.seal(1, origin, stream, epoch, sender, b"", b"the same")
        assert made == nonce
        sealed.add(found)
    assert len(sealed) == len(fields)


def test_no_nonce_comes_twice() -> None:
    sealing = Sealing(AesGcm, b"salt", 2**64 - 3)
    assert len({sealing.nonce() for _ in range(1000)}) == 1000


@dataclass
class PlainWindow:
    """The window as a set of all that has come."""

    top: int
    come: set[int] = field(default_factory=set)

    def take(self, count: int) -> bool:
        new = count not in self.come and count + WINDOW > self.top
        self.top = max(self.top, count)
        if new:
            self.come.add(count)
        return new


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 2**40),
    st.lists(st.one_of(st.integers(-20, 20), st.integers(-2 * WINDOW, 2 * WINDOW)), max_size=60),
)
def test_the_window_equals_the_reference(first: int, steps: list[int]) -> None:
    window, plain = Window(first), PlainWindow(first)
    at = first
    for step in [0, *steps]:
        at = max(at + step, 0)
        assert window.take(at) == plain.take(at)


def test_sizes_of_a_seal() -> None:
    assert len(AesGcm(KEY).seal(bytes(12), b"", b"")) == TAG_SIZE
