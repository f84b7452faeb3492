"""Offsets, epochs, producers and transactions of partitions, as their leader and a replica tell them."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.relay.world import (
    COMMITTED,
    UNCOMMITTED,
    TestHost,
    World,
    content,
    headers_of,
    settled,
    until,
    wait_for_more,
)

from treecast.middleware.broker.values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity

PRODUCER = ProducerIdentity(7, 0)


async def test_offsets_are_the_leaders_word_and_the_replicas_where_it_is_away(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    for number in range(5):
        await a.produce(b"%d" % number)
    latest = await settled(b.partition().offset_for_time(LATEST_TIMESTAMP, UNCOMMITTED))
    earliest = await settled(b.partition().offset_for_time(EARLIEST_TIMESTAMP, UNCOMMITTED))
    assert (latest.offset, earliest.offset) == (5, 0)
    assert await settled(b.partition().end_of_epoch(0)) == (0, 5)
    await b.read(0)
    await until(b.copied())
    world.kill(1)
    await until(lambda: not b.channels.is_up(1))
    latest = await settled(b.partition().offset_for_time(LATEST_TIMESTAMP, UNCOMMITTED))
    assert latest.offset == 5


async def refused_end_of_epoch(host: TestHost, epoch: int) -> Fault:
    with pytest.raises(TreecastError) as caught:
        await settled(host.partition().end_of_epoch(epoch))
    return caught.value.fault


async def test_where_an_epoch_ends_that_may_go_on_only_the_leader_says(world: World) -> None:
    """A reader that the leader served is ahead of the replica, and must not take this for a loss."""
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    for number in range(10):
        await a.produce(b"%d" % number)
    await b.read(0)
    await until(b.copied())
    world.kill(1, power_loss=200)
    await until(lambda: not b.channels.is_up(1))
    assert await refused_end_of_epoch(b, 0) is Fault.LEADER_UNAVAILABLE
    await asyncio.sleep(world.settings.down_grace)
    assert await refused_end_of_epoch(b, 0) is Fault.LEADER_UNAVAILABLE
    (a,) = await world.start(1)
    kept = a.log().end_offset
    await a.produce(b"other")
    await until(lambda: b.copied()() and content(b.log()) == content(a.log()))
    world.kill(1)
    await until(lambda: not b.channels.is_up(1))
    assert await settled(b.partition().end_of_epoch(0)) == (0, kept)  # the next epoch has begun
    assert await refused_end_of_epoch(b, a.run) is Fault.LEADER_UNAVAILABLE
    assert await refused_end_of_epoch(b, a.run + 1) is Fault.LEADER_UNAVAILABLE


async def test_records_that_are_deleted_at_the_leader(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    for _ in range(4):
        await a.produce(b"x", b"y", b"z")
    await b.read(0)
    await until(b.copied())
    assert await settled(b.partition().delete_before(4)) == 4
    await until(lambda: b.log().start_offset == 4)
    with pytest.raises(TreecastError) as caught:
        await b.read(1)
    assert caught.value.fault is Fault.OFFSET_OUT_OF_RANGE
    (c,) = await world.start(3)  # begins at the batch that holds the log's start
    await c.read(4)
    await until(c.copied())
    await until(lambda: c.log().start_offset == 4)
    assert content(c.log()) == content(a.log())
    assert headers_of(content(c.log()))[0].base_offset == 3


async def test_producers_are_those_of_the_leader(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    assert await settled(b.partition().active_producers()) == ()
    await b.produce(b"a", producer=PRODUCER, base_sequence=0, transactional=True)
    (one,) = found = await settled(b.partition().active_producers())
    assert (one.producer, one.last_sequence, one.transaction_start) == (PRODUCER, 0, 0)
    assert found == await settled(a.partition().active_producers())
    world.kill(1)
    await until(lambda: not b.channels.is_up(1))
    await asyncio.sleep(world.settings.down_grace)
    with pytest.raises(TreecastError) as caught:
        await settled(b.partition().active_producers())
    assert caught.value.fault is Fault.LEADER_UNAVAILABLE


async def test_transactions_read_alike_at_leader_and_replica(world: World) -> None:
    await world.topic("t", 1)
    a, b = await world.start(1, 2)
    await b.read(0)
    await until(lambda: b.partition().replica.current)
    await b.produce(b"a", producer=PRODUCER, base_sequence=0, transactional=True)
    await a.produce(b"plain")
    await until(b.copied())
    assert (await b.read(0, COMMITTED)).size == 0
    assert (await b.read(0, COMMITTED)).last_stable_offset == 0
    woken = asyncio.create_task(wait_for_more(b.partition(), COMMITTED, time=10))
    await asyncio.sleep(0.02)
    await settled(b.partition().append_marker(PRODUCER, committed=False, coordinator_epoch=0))
    assert await woken
    await until(b.copied())
    there, here = await a.read(0, COMMITTED), await b.read(0, COMMITTED)
    assert there.aborted == here.aborted
    assert [one.producer_id for one in here.aborted] == [7]
    assert (there.last_stable_offset, there.size) == (here.last_stable_offset, here.size)
