"""A host that has no room for more leaves its streams; the origins keep what they owe it."""

from __future__ import annotations

import asyncio

from tests.unit.events.test_kills import count_up, numbers
from tests.unit.events.world import Client, TestHost, World, until


def hold(host: TestHost, held: bool) -> None:
    assert host.events is not None
    receiving = host.events.receiving
    if held:
        receiving.hold()
    else:
        receiving.release()
    host.end_turn()


def owes(host: TestHost) -> bool:
    return any(record.owes for record in host.journal.records.values())


async def both(world: World) -> tuple[TestHost, TestHost, Client]:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    return a, b, client


async def test_what_is_published_meanwhile_comes_once_afterwards(world: World) -> None:
    a, b, client = await both(world)
    sent = count_up(a, 0, 20)
    await until(lambda: len(client.got) == sent)
    hold(b, True)
    hold(b, True)  # it may be told twice
    sent = count_up(a, sent, 50)
    a.end_turn()
    await asyncio.sleep(0.3)
    assert len(client.got) == 20
    assert owes(a)
    hold(b, False)
    await until(lambda: len(client.got) == sent)
    assert numbers(client) == list(range(sent))
    await until(lambda: not owes(a))


async def test_an_origin_that_is_killed_meanwhile_goes_on_afterwards(world: World) -> None:
    a, b, client = await both(world)
    sent = count_up(a, 0, 20)
    await until(lambda: len(client.got) == sent)
    hold(b, True)
    sent = count_up(a, sent, 30)
    a.end_turn()
    world.kill(1)
    (a,) = await world.start(1)
    sent = count_up(a, sent, 10)
    a.end_turn()
    await asyncio.sleep(0.3)
    assert len(client.got) == 20
    hold(b, False)
    await until(lambda: len(client.got) == sent)
    assert numbers(client) == list(range(sent))


async def test_a_host_that_is_held_from_its_start_receives_nothing(world: World) -> None:
    a, b, client = await both(world)
    hold(b, True)
    sent = count_up(a, 0, 10)
    a.end_turn()
    await asyncio.sleep(0.3)
    assert client.got == []
    hold(b, False)
    await until(lambda: len(client.got) == sent)
