"""A leader cuts its log because the owner of its records lost some: followers are cut with it."""

from __future__ import annotations

from tests.unit.relay.world import World, content, until

from treecast.middleware.storage import replicate


async def test_followers_are_cut_with_their_leader_and_go_on(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    for value in (b"one", b"two", b"lost", b"lost too"):
        await a.produce(value)
    await b.read(0)
    await until(b.copied())
    led = a.partitions.get("t", 0)
    assert replicate.truncate_to(led.log, 2, a.clock_ms) == 2
    a.relay.leading.begin_anew(led)
    led.log.begin_epoch(7)
    await a.produce(b"instead")
    await until(lambda: content(b.log()) == content(a.log()))
    assert b.log().epoch_entries == a.log().epoch_entries
    assert b.counters.truncations == 1
    await a.produce(b"later")
    await until(lambda: content(b.log()) == content(a.log()))
    assert b.counters.truncations == 1


async def test_a_cut_without_followers_needs_no_stream(world: World) -> None:
    await world.topic("t", 1)
    (a,) = await world.start(1)
    await a.produce(b"one")
    led = a.partitions.get("t", 0)
    replicate.truncate_to(led.log, 0, a.clock_ms)
    a.relay.leading.begin_anew(led)
    assert await a.produce(b"instead") == 0
