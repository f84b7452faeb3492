"""A part of the fabric that raises is counted, the others go on in the same turn, its stream is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.fuzz.steps import live
from tests.unit.fabric.edges import ALONE, KEYS, Collected, fabrics, until

from treecast.middleware.fabric.core.reorder import Filtered, Progress, Rejection
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import Kind, Message, control, encode
from treecast.middleware.wire.segment_bodies import Expiry, Probe, Skipped
from treecast.middleware.wire.stare import LAST_STATE

START = Progress(0, 0)


def raises(message: Message) -> Filtered | Rejection | None:
    if message.payload == b"bad":
        raise RuntimeError("a judge that fails")
    return None


class BrokenLog:
    """A log that grows and cannot be read."""

    oldest = 0
    most_bytes = NEVER

    def __init__(self) -> None:
        self.end = 0

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        raise OSError("a disk that fails")

    def newest(self, first: int) -> Message | None:
        raise OSError("a disk that fails")

    def trim(self, sequence: int, keep_bytes: int = 0) -> None: ...

    def trimmed(self, first: int) -> dict[Expiry, int]:
        return {}

    def expire(self, now: float) -> None: ...

    def next_deadline(self) -> float:
        return NEVER


def give(fabric: Fabric, *packets: bytes) -> None:
    """Hands over packets as an inlet that has read them in one burst."""
    for packet in packets:
        fabric._streams.burst(memoryview(bytearray(packet)), len(packet), len(packet), fabric.now())
    fabric._work_soon()


def probe(state: int) -> bytes:
    return encode(control(Kind.PROBE, 2, 0, 0, 2, Probe(state, 5).encode()), KEYS)


async def test_a_receiver_that_raises_is_left_and_the_others_of_the_turn_go_on() -> None:
    async with fabrics(1, 2, settings=ALONE) as (one, two):
        broken, sinks = Collected(), [Collected(), Collected()]
        two.join(1, 7, 1, broken, progress=START, judge=raises)
        for stream, sink in zip((6, 8), sinks, strict=True):
            two.join(1, stream, 1, sink, progress=START)
        origins = [one.originate(stream, 1) for stream in (6, 7, 8)]
        for origin in origins:
            origin.add_receiver(2, 0)
        origins[1].publish(b"bad", 1)
        for number in range(50):
            for origin in origins:
                origin.publish(b"%d" % number, 1)
        await until(lambda: all(len(sink.deliveries) == 50 for sink in sinks))
        await until(lambda: broken.error is not None)
        assert str(broken.error) == "a judge that fails"
        assert two.counters.isolated == {"receiver": 1}
        assert [joined.key[1] for joined in two.joined()] == [6, 8]
        again = Collected()
        two.join(1, 7, 1, again, progress=START)  # as the sinks of the relay do
        await until(lambda: len(again.deliveries) == 51)


async def test_an_origin_whose_log_cannot_be_read_does_not_stop_another() -> None:
    async with fabrics(1, 2, settings=ALONE) as (one, two):
        sink = Collected()
        two.join(1, 8, 1, sink, progress=START)
        log = BrokenLog()
        broken = one.originate(7, 1, log=log)
        broken.add_receiver(2, 0)
        good = one.originate(8, 1)
        good.add_receiver(2, 0)
        for number in range(20):
            log.end += 1
            broken.grown()
            good.publish(b"%d" % number, 1)
        await until(lambda: len(sink.deliveries) == 20)
        await until(lambda: one.counters.isolated.get("origin", 0) > 0)


async def test_a_probe_that_cannot_be_answered_is_not_answered_again() -> None:
    async with fabrics(1, 2, settings=ALONE) as (one, _):
        heard = []

        def answer(host: int, state: int, nonce: int) -> None:
            heard.append((host, state, nonce))
            raise RuntimeError("the channel fails")

        one.on_probe = answer
        give(one, probe(0), probe(0))
        await until(lambda: len(heard) == 2)
        give(one, probe(0))
        await until(lambda: len(heard) == 3)
        assert one.counters.isolated == {"probe": 3}


async def test_a_probe_of_a_state_beyond_22_bits_is_refused_before_anybody_sees_it() -> None:
    async with fabrics(1, 2) as (one, _):
        heard: list[int] = []
        one.on_probe = lambda host, state, nonce: heard.append(state)
        give(one, probe(LAST_STATE + 1), probe(2**32 - 1), probe(0))
        await until(lambda: bool(heard))
        assert (heard, one.counters.refused["BODY"], one.counters.isolated) == ([0], 2, {})
        assert not one.carriers.is_member(2**32 - 1)


@pytest.mark.parametrize("seed", range(3))
def test_segments_of_all_kinds_with_a_valid_tag(seed: int) -> None:
    """A short form of `python -m tests.fuzz segments`."""
    live(seed, 700)
