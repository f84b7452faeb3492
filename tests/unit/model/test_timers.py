"""A waiter with `no_sooner` wakes at its deadline, and does not poll the clock before."""

from __future__ import annotations

import asyncio
import math
import random
import weakref
from collections.abc import Callable

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.broker.groups.deadlines import Deadlines
from treecast.middleware.fabric.channel import ChannelSettings
from treecast.middleware.fabric.channel.codec import Kind
from treecast.middleware.fabric.channel.deadlines import Deadlines as CallDeadlines
from treecast.middleware.fabric.channel.outgoing import Call
from treecast.middleware.fabric.channel.peers import Peer
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.stare.wakeups import Wakeups
from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.model.timers import Due, no_sooner
from treecast.middleware.wire.segment import NO_KEYS

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
FRACTIONS = (0.0002, 0.0004, 0.0009, 0.0013, 0.0021, 0.0104)  # seconds
LOOKS = 20  # maximum per deadline; without rounding up it was up to a hundred


class Looks:
    """The loop's clock; it counts its readings."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return self._time()


def test_it_is_never_less_and_at_most_a_millisecond_more() -> None:
    numbers = random.Random(1)
    for _ in range(1000):
        seconds = numbers.expovariate(100)
        assert seconds <= no_sooner(seconds) < seconds + 0.001001
        assert math.isclose(no_sooner(seconds) * 1000, round(no_sooner(seconds) * 1000))
    assert [no_sooner(seconds) for seconds in (0.0, -1.0, -math.inf)] == [0.0] * 3


@LOOPS
def test_no_loop_calls_before_the_time(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for seconds in FRACTIONS:
            called, due = loop.create_future(), loop.time() + seconds
            loop.call_later(no_sooner(seconds), called.set_result, None)
            await called
            assert loop.time() >= due - loop_precision

    loop_precision = 1e-6  # asyncio calls everything that is due within its clock's resolution

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@LOOPS
def test_who_waits_for_a_deadline_does_not_spin(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        clock = Looks(loop)

        def look() -> None:
            now = clock()
            if now < deadline:
                wakeups.at(deadline, now)

        wakeups = Wakeups(look)
        wakeups.start(loop)
        due: list[object] = []
        deadlines = Deadlines(clock, lambda: due.extend(deadlines.take_due(clock())))
        for seconds in FRACTIONS:
            deadline = loop.time() + seconds
            wakeups.at(deadline, loop.time())
            deadlines.add(seconds, deadline)
            await asyncio.sleep(seconds + 0.01)
        assert due == list(FRACTIONS)
        assert clock.count <= LOOKS * len(FRACTIONS)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


async def test_a_later_call_does_not_put_off_the_deadline_of_an_earlier_one() -> None:
    """Otherwise calls in steady succession would postpone it forever."""
    loop = asyncio.get_running_loop()
    peer = Peer(2, ChannelSettings())
    deadlines = CallDeadlines(lambda peer, call: None)
    deadlines.add(loop, loop.time() + 0.0503, peer, Call(Kind.CALL, 40, b"", b""), 1)
    first = deadlines._timer
    for _ in range(100):
        later = loop.time() + 0.0503
        deadlines.add(loop, later, peer, Call(Kind.CALL, 40, b"", b""), 1)
        assert deadlines._timer is first
    deadlines.add(loop, loop.time(), peer, Call(Kind.CALL, 40, b"", b""), 1)
    assert deadlines._timer is not first
    deadlines.close()


@LOOPS
def test_a_fabric_with_a_deadline_does_not_spin(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Each record postpones the next heartbeat to a time between two milliseconds."""

    async def main() -> None:
        clock = Looks(asyncio.get_running_loop())
        stream = StreamSettings(heartbeat_first=0.0104)
        settings = FabricSettings(stream=stream, carriers=())
        fabric = Fabric(1, settings, NO_KEYS, FabricCounters(), random.Random(1), clock=clock)
        await fabric.start(("127.0.0.1", 0))
        try:
            origin = fabric.originate(7, 1)
            origin.add_receiver(2, 0)
            await asyncio.sleep(0.02)
            clock.count = 0
            for _ in range(10):
                origin.publish(b"x", 1)
                await asyncio.sleep(0.015)
            assert origin.counters.sent["HEARTBEAT"] >= 10
            assert clock.count <= LOOKS * 10
        finally:
            fabric.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("pdt"), st.integers(0, 20))))
def test_keys_are_due_as_in_a_plain_table(steps: list[tuple[int, str, int]]) -> None:
    due, table = Due[int](), dict[int, tuple[int, int]]()
    for number, (key, step, at) in enumerate(steps):
        if step == "p":
            due.put(key, at)
            table[key] = at, number
        elif step == "d":
            due.discard(key)
            table.pop(key, None)
        else:
            expected = [key for key, (time, _) in sorted(table.items(), key=lambda one: one[1]) if time <= at]
            assert due.take(at) == expected
            for gone in expected:
                del table[gone]
        assert len(due) == len(table)


def test_a_removed_key_is_not_held() -> None:
    due = Due[object]()
    kept = [object() for _ in range(10)]
    for one in kept:
        due.put(one, 1e9)
    for _ in range(10_000):
        key = Key()
        held = weakref.ref(key)
        due.put(key, 2e9)
        due.discard(key)
        del key
        assert held() is None
    assert len(due._heap) < 200


class Key:
    pass
