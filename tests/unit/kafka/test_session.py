"""The session cuts frames wherever chunks break, keeps responses in order, and refuses bombs."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.script import Script

from treecast.shims.kafka.session import GROWTH, POOLED_FROM, SMALLEST_BUFFER, FramePool, Request, Session

MIB = 1024 * 1024


def framed(*frames: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def session(pool: FramePool | None = None, max_in_flight: int = 10**6) -> Session:
    return Session(pool or FramePool(4096), 100 * MIB, max_in_flight, 0.0)


class Edge(Script):
    """Bytes arrive; `(number, answer)` answers a request, counted from 0. Pieces of answers leave."""

    def __init__(self, max_in_flight: int = 10**6) -> None:
        self.session = session(max_in_flight=max_in_flight)
        self.requests: list[Request] = []

    def give(self, *given: bytes | tuple[int, bytes]) -> None:
        for one in given:
            if isinstance(one, bytes):
                self.requests += self.session.receive(one, 0.0)
            else:
                self.session.reply(self.requests[one[0]], [one[1]] if one[1] else [], 0.0)

    def take(self) -> list[bytes]:
        return [bytes(piece) for piece in self.session.data_to_send()]


def feed(target: Session, data: bytes, chunks: list[int]) -> list[bytes]:
    """Writes `data` in pieces of at most these sizes. Returns the frames."""
    frames: list[bytes] = []
    sizes = iter(chunks)
    while data:
        buffer = target.receive_buffer()
        assert len(buffer) > 0
        size = min(len(buffer), len(data), next(sizes, len(data)))
        buffer[:size] = data[:size]
        data = data[size:]
        frames += [bytes(request.frame) for request in target.received(size, 1.0)]
        target.recycle()
    return frames


FRAMES = st.lists(
    st.one_of(
        st.binary(min_size=8, max_size=40),
        st.integers(8, 300_000).map(lambda size: bytes([size % 251]) * size),
    ),
    max_size=8,
)


@given(FRAMES, st.lists(st.integers(1, 5000), max_size=50))
def test_frames_come_out_as_they_went_in(frames: list[bytes], chunks: list[int]) -> None:
    assert feed(session(), framed(*frames), chunks) == frames


@pytest.mark.parametrize("size", [8, 9, 63, 4091, 4092, 4093, 4096, POOLED_FROM, POOLED_FROM + 1, 100_000])
def test_byte_at_a_time(size: int) -> None:
    frames = [b"first...", b"x" * size, b"last...."]
    data = framed(*frames)
    assert feed(session(), data, [1] * len(data)) == frames


@given(FRAMES)
def test_two_connections_share_the_scratch_buffer(frames: list[bytes]) -> None:
    pool = FramePool(4096)
    one, two = session(pool), session(pool)
    data = framed(*frames)
    out: dict[int, list[bytes]] = {1: [], 2: []}
    for start in range(0, len(data), 1000):
        for key, target in ((1, one), (2, two)):
            out[key] += feed(target, data[start : start + 1000], [])
    assert out == {1: frames, 2: frames}


def test_kept_frames_outlive_the_buffer() -> None:
    target = session()
    small, large = b"a" * 20, b"b" * 100_000
    requests = target.receive(framed(small, large, small), 0.0)
    target.recycle()
    feed(target, framed(b"c" * 90_000, b"d" * 3000), [])
    assert [bytes(request.frame) for request in requests] == [small, large, small]


def test_frames_are_writable_in_place() -> None:
    target = session()
    buffer = target.receive_buffer()
    data = framed(b"12345678")
    buffer[: len(data)] = data
    (request,) = target.received(len(data), 0.0)
    request.frame[0:1] = b"9"
    assert bytes(request.frame) == b"92345678"


@given(st.binary(min_size=4, max_size=2000))
def test_garbage_gives_frames_or_a_failure(data: bytes) -> None:
    target = session()
    for frame in feed(target, data, []):
        assert len(frame) >= 8
    if target.failure:
        assert target.receive(framed(b"12345678"), 2.0) == []
        assert not target.wants_data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP/2"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),
        (b"AMQP\x00\x00\x09\x01", "AMQP"),
        (struct.pack(">i", -1), "negative"),
        (struct.pack(">i", -(2**31)), "negative"),
        (struct.pack(">i", 100 * MIB + 1), "larger"),
        (struct.pack(">i", 2**31 - 1), "larger"),
        (struct.pack(">i", 0), "too small"),
        (struct.pack(">i", 7), "too small"),
    ],
)
def test_sizes_that_are_refused(data: bytes, reason: str) -> None:
    target = session()
    assert target.receive(data, 0.0) == []
    assert reason in target.failure


def test_requests_before_a_bad_size_are_served() -> None:
    edge = Edge()
    edge << framed(b"12345678") + struct.pack(">i", -5) << (0, b"answer") >> b"answer"
    assert "negative" in edge.session.failure


def test_an_announced_size_costs_nothing() -> None:
    pool = FramePool()
    waiting = [session(pool) for _ in range(50)]
    for target in waiting:
        target.receive(struct.pack(">i", 100 * MIB) + b"12345678", 0.0)
        assert len(target.receive_buffer()) <= SMALLEST_BUFFER
    grown = waiting[0]
    arrived = 8
    while arrived < 3 * MIB:
        room = len(grown.receive_buffer())
        assert arrived + room <= max(SMALLEST_BUFFER, GROWTH * arrived)
        grown.received(room, 0.0)
        arrived += room


def test_frame_buffers_are_used_again() -> None:
    pool = FramePool(4096)
    target = session(pool)
    frame = b"f" * (MIB)
    assert feed(target, framed(frame), []) == [frame]
    first = target._pool._free[-1]
    assert feed(target, framed(frame), []) == [frame]
    assert target._pool._free[-1] is first


@given(st.permutations(range(6)))
def test_replies_keep_the_order_of_requests(order: list[int]) -> None:
    edge = Edge()
    edge << framed(*(bytes([65 + n]) * 8 for n in range(6)))
    sent = [piece for index in order for piece in (edge << (index, b"%d" % index)).take()]
    assert sent == [b"%d" % n for n in range(6)]
    assert edge.session.in_flight == 0


def test_a_request_without_an_answer_holds_up_nothing() -> None:
    edge = Edge()
    edge << framed(b"11111111", b"22222222") << (1, b"two") >> []
    edge << (0, b"") >> b"two"


def test_reading_stops_at_the_bound_and_goes_on_below_it() -> None:
    edge = Edge(max_in_flight=2)
    edge << framed(b"11111111", b"22222222") >> []
    assert not edge.session.wants_data
    edge << (0, b"x") >> b"x"
    assert edge.session.wants_data


def test_idle_means_nothing_received_sent_or_in_flight() -> None:
    target = session()
    assert target.next_deadline(60.0) == 60.0
    (request,) = target.receive(framed(b"12345678"), 5.0)
    assert target.next_deadline(60.0) is None
    target.reply(request, [b"x"], 30.0)
    target.data_to_send()
    assert target.next_deadline(60.0) == 90.0
