"""Filters travel with interest: messages that no subscriber of a host wants do not leave for that host."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.events.world import Client, TestHost, World, until

from treecast.middleware.broker.filtering import content_filter
from treecast.middleware.broker.pubsub import Subscription
from treecast.middleware.model.wishes import Wish
from treecast.middleware.relay import narrowing
from treecast.middleware.relay.narrowing import Narrowing


async def subscribe(client: Client, topics: str, text: str) -> None:
    client.host.hub.subscribe(Subscription(client, topics.encode(), 2, content=content_filter(text)))
    await client.subscribe()


def numbers(first: int, until: int) -> list[bytes]:
    return [b'{"n": %d}' % n for n in range(first, until)]


def publish(host: TestHost, payloads: list[bytes], topic: str = "t") -> None:
    for payload in payloads:
        host.publish(topic, payload, 1)


def ended(client: Client, host: TestHost) -> Callable[[], bool]:
    """Publishes what passes every filter here; returns whether the client has it."""
    had = client.payloads.count(b'{"n": 99}')
    publish(host, [b'{"n": 99}'])
    return lambda: client.payloads.count(b'{"n": 99}') > had


async def test_only_what_passes_is_sent(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    some, other, every = b.client(), b.client(), c.client()
    await subscribe(some, "t", "n > 7")
    publish(a, numbers(0, 10))
    await until(lambda: some.payloads == numbers(8, 10))
    assert a.counters.messages_sent == 2
    await subscribe(other, "t", "n == 1")
    publish(a, numbers(0, 10))
    await until(lambda: (other.payloads, some.payloads) == (numbers(1, 2), numbers(8, 10) * 2))
    assert a.counters.messages_sent == 5
    await every.subscribe("#")
    publish(a, numbers(0, 10))
    await until(lambda: every.payloads == numbers(0, 10))
    await until(lambda: len(some.payloads) == 6)
    assert b.counters.messages_received == 2 + 3 + 3


async def test_a_host_with_a_subscription_that_wants_all_gets_all(world: World) -> None:
    a, b = await world.start(1, 2)
    some, every = b.client(), b.client()
    await subscribe(some, "t", "n > 7")
    await every.subscribe("t")
    publish(a, numbers(0, 10))
    await until(lambda: every.payloads == numbers(0, 10))
    every.unsubscribe("t")
    await some.subscribe()
    sent = a.counters.messages_sent
    publish(a, numbers(0, 10))
    await until(ended(some, a))
    assert a.counters.messages_sent - sent == 3
    some.unsubscribe("t")
    await some.subscribe()
    publish(a, numbers(90, 100))
    assert a.counters.messages_sent - sent == 3


async def test_a_change_of_interest_does_not_copy_all_that_the_host_wants(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await world.start(1, 2)
    some, every = b.client(), b.client()
    copies: list[int] = []
    monkeypatch.setattr(a.interest, "told_by", copies.append)
    monkeypatch.setattr(a.interest, "of", copies.append)
    await every.subscribe("u")
    await subscribe(some, "t", "n > 7")
    publish(a, numbers(0, 10))
    await until(lambda: some.payloads == numbers(8, 10))
    await every.subscribe("t")
    publish(a, numbers(0, 10))
    await until(lambda: every.payloads == numbers(0, 10))
    every.unsubscribe("t")
    await some.subscribe()
    sent = a.counters.messages_sent
    publish(a, numbers(0, 10))
    await until(ended(some, a))
    assert a.counters.messages_sent - sent == 3
    assert copies == []


async def test_retained_messages_go_to_all_hosts(world: World) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await subscribe(client, "t", "n > 7")
    a.publish("t", b'{"n": 1}', 1, retain=True)
    a.publish("t", b'{"n": 8}', 1)
    await until(lambda: client.payloads == [b'{"n": 8}'])
    assert a.counters.messages_sent == 2


async def test_a_host_that_starts_again_is_told_of_filters(world: World) -> None:
    _, b = await world.start(1, 2)
    client = b.client()
    await subscribe(client, "t/+", "n > 7")
    await world.hosts[1].stop()
    (a,) = await world.start(1)
    await until(lambda: a.interest.told_by(2) == {("t", "+"), ("$only", "n > 7", "t", "+")})
    publish(a, numbers(0, 10), "t/x")
    await until(lambda: client.payloads == numbers(8, 10))
    assert a.counters.messages_sent == 2
    assert a.interest.of(2) == {("t", "+")}


async def test_nobody_misses_a_message_while_filters_come_and_go(world: World) -> None:
    world.loss = 0.02
    a, b, c = await world.start(1, 2, 3)
    always = {host.number: host.client() for host in (b, c)}
    await subscribe(always[2], "t", "n >= 50")
    await subscribe(always[3], "t", "n < 60")
    fickle = {host.number: host.client() for host in (b, c)}
    rng, wants, sent = random.Random(3), dict.fromkeys(fickle, False), list[int]()
    for _ in range(40):
        batch = [rng.randrange(100) for _ in range(rng.randrange(6))]
        sent += batch
        publish(a, [b'{"n": %d}' % n for n in batch])
        number = rng.choice([2, 3])
        if wants[number]:
            fickle[number].unsubscribe("t")
        elif rng.random() < 0.5:
            await subscribe(fickle[number], "t", f"n > {rng.randrange(100)}")
        else:
            await fickle[number].subscribe("t")
        wants[number] = not wants[number]
    expected = {
        2: [b'{"n": %d}' % n for n in sent if n >= 50],
        3: [b'{"n": %d}' % n for n in sent if n < 60],
    }
    await until(lambda: all(always[number].payloads == expected[number] for number in always))


def test_filters_are_announced_while_they_are_few() -> None:
    noted, pattern = Narrowing(), ("t",)
    wishes = [Wish(pattern, content_filter(f"n == {number}")) for number in range(narrowing.MOST + 1)]
    for number, wish in enumerate(wishes[:-1]):
        assert noted.add(wish) == ([("$only", f"n == {number}", "t")], [])
    added, removed = noted.add(wishes[-1])
    assert (added, len(removed), noted.all()) == ([], narrowing.MOST, [])
    added, removed = noted.remove(wishes[0])
    assert (len(added), removed) == (narrowing.MOST, [])
    assert noted.add(Wish(pattern)) == ([], added)
    assert noted.remove(Wish(pattern)) == (added, [])
    for wish in wishes[1:]:
        noted.remove(wish)
    assert noted.announced(pattern) == []
