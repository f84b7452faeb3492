"""Retained messages of several hosts: the latest of each topic wins, and removed ones stay removed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.events.world import TestHost, World

from treecast.middleware.broker.pubsub import Message, Waiter
from treecast.middleware.broker.pubsub.stamps import Stamps, written_at
from treecast.middleware.relay.events.ports import EventSettings


class Collected(Waiter):
    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def confirmed(self) -> None:
        self.done.set_result(None)


def retain(host: TestHost, topic: str, payload: bytes) -> None:
    """Stores and publishes the message, as the face does."""
    message = Message(topic.encode(), payload, 1, True)
    host.hub.retain(message)
    host.hub.publish(message, host.hub.routes.targets(message.topic), None)


async def retained(host: TestHost, filter: str) -> dict[str, bytes]:
    """Returns the retained messages that a subscriber gets."""
    waiter = Collected()
    if not host.hub.reach.collect([filter.encode()], waiter):
        await waiter.done
    found = host.hub.retained.match(filter.encode(), host.hub.clock.wall)
    assert len({message.topic for message in found}) == len(found)
    return {message.topic.decode(): message.payload for message in found}


async def test_who_subscribes_gets_what_any_host_has_retained(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    retain(a, "t/a", b"of a")
    retain(b, "t/b", b"of b")
    retain(a, "u", b"not asked for")
    assert await retained(c, "t/#") == {"t/a": b"of a", "t/b": b"of b"}
    assert await retained(c, "t/+") == {"t/a": b"of a", "t/b": b"of b"}


async def test_the_latest_of_a_topic_wins_wherever_it_was_published(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    b.hub.clock.wall = a.hub.clock.wall - 3600  # its clock is an hour slow
    retain(a, "t", b"1")
    assert await retained(b, "t") == {"t": b"1"}
    retain(b, "t", b"2")  # b has seen the first one
    assert await retained(c, "t") == {"t": b"2"}
    assert await retained(a, "t") == {"t": b"2"}


async def test_what_is_emptied_does_not_come_back(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    retain(a, "t", b"1")
    assert await retained(c, "t") == {"t": b"1"}  # now c has a copy too
    assert await retained(b, "t") == {"t": b"1"}
    retain(b, "t", b"")
    assert await retained(c, "t") == {}
    assert await retained(a, "#") == {}
    world.kill(2)
    assert await retained(a, "t") == {}
    (b,) = await world.start(2)
    assert b.hub.retained.tombstones == 1
    b.hub.clock.wall += 8 * 24 * 3600
    b.hub.sweep()
    assert b.hub.retained.tombstones == 0
    assert b.hub.counters.expired == 0


async def test_a_host_that_does_not_answer_is_not_waited_for_long(world: World) -> None:
    world.settings = EventSettings(retained_wait=0.05)
    a, b, c = await world.start(1, 2, 3)
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def silent(*_: object) -> tuple[object, bytes]:
        await never
        raise AssertionError

    retain(b, "t", b"1")
    a.methods._entries[121].handler = silent  # type: ignore[assignment]
    assert await retained(c, "t") == {"t": b"1"}
    assert c.counters.retained_late == 1
    never.cancel()


async def test_many_are_answered_page_by_page(world: World) -> None:
    world.settings = EventSettings(page_bytes=3000, retained_wait=60.0)
    a, b = await world.start(1, 2)
    for number in range(100):
        retain(a, f"t/{number}", b"x" * (number + 1))
    assert await retained(b, "t/+") == {f"t/{n}": b"x" * (n + 1) for n in range(100)}


async def test_topics_of_the_host_itself_are_not_asked_for(world: World) -> None:
    a, b = await world.start(1, 2)
    a.hub.retained.put(Message(b"$SYS/broker/version", b"a", retain=True))
    assert await retained(b, "$SYS/#") == {}
    assert await retained(b, "#") == {}


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["set", "clear", "ask"])), max_size=30))
def test_stamps_rise_at_each_host_and_over_what_it_has_seen(steps: Sequence[tuple[int, str]]) -> None:
    clocks = [Stamps(host) for host in range(3)]
    rng, seen, given_out = random.Random(1), [0, 0, 0], set()
    for host, step in steps:
        if step == "ask":
            other = rng.randrange(3)
            clocks[host].seen(seen[other])
            seen[host] = max(seen[host], seen[other])
        else:
            stamp = clocks[host].next(rng.choice([0.0, 5.0, 1e9]))
            assert stamp > seen[host]
            assert stamp not in given_out
            seen[host] = stamp
            given_out.add(stamp)


def test_a_stamp_says_when_it_was_given() -> None:
    assert written_at(Stamps(7).next(1_700_000_000.5)) == 1_700_000_000.5
