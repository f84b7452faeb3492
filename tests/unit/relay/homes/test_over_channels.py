"""The same calls over real channels: order, cancelling, a home that disappears."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from tests.unit.relay.homes.test_groups import T0, commit, committed, fault_of, join, sync
from tests.unit.relay.homes.town import Town, TownHost, until

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.values import CommittedOffset, InitProducer, MemberIdentity
from treecast.middleware.fabric.channel import Channels, ChannelSettings
from treecast.middleware.model.errors import Fault
from treecast.middleware.model.identity import TopicPartition

LOOPBACK = Address("127.0.0.1", 0)


class Wired:
    """Two hosts of a town, with calls over TCP."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.channels: dict[str, Channels] = {}

    async def start(self) -> None:
        self.a, self.b = await self.town.host("a"), await self.town.host("b")
        where = {host.host_id: await self._open(host) for host in (self.a, self.b)}
        for channels in self.channels.values():
            for host_id, address in where.items():
                channels.set_host(host_id, address)
        await until(
            lambda: all(channels.is_up(3 - n) for n, channels in enumerate(self.channels.values(), 1))
        )

    async def _open(self, host: TownHost) -> Address:
        made = Channels(
            host.host_id,
            1,
            "cluster",
            None,
            ChannelSettings(),
            host.counters.channel,
            random.Random(host.host_id),
            host.methods.handle,
        )
        host.methods.use(made)
        host.homes.router._is_up = made.is_up
        self.channels[host.name] = made
        return await made.start(LOOPBACK)


@pytest.fixture
async def wired(town: Town) -> AsyncIterator[Wired]:
    made = Wired(town)
    await made.start()
    yield made
    for channels in made.channels.values():
        await channels.close()


async def test_a_round_and_commits(wired: Wired) -> None:
    a, b = wired.a, wired.b
    first = await join(a)
    await sync(a, first, [])
    second = join(b)
    await until(lambda: len(a.parts.groups.loaded.waiters) == 1)
    leading, joined = await join(a, first.member_id), await second
    waiting = sync(b, joined)
    await sync(a, leading, [(joined.member_id, b"half")])
    assert (await waiting).assignment == b"half"
    me = MemberIdentity(joined.member_id, None, joined.generation)
    commits = [b.group.commit_offsets("g", me, {T0: CommittedOffset(n)}) for n in range(50)]
    assert await asyncio.gather(*commits) == [{}] * 50
    assert await committed(b) == {T0: 49}, "in the order of the calls"


async def test_a_member_that_leaves_takes_its_join_along(wired: Wired) -> None:
    await sync(wired.a, await join(wired.a), [])
    waiting = join(wired.b)
    await until(lambda: len(wired.a.parts.groups.loaded.waiters) == 1)
    waiting.cancel()
    await until(lambda: len(wired.a.parts.groups.loaded.waiters) == 0)


async def test_a_home_that_goes_away_while_a_member_waits(wired: Wired) -> None:
    await sync(wired.a, await join(wired.a), [])
    waiting = join(wired.b)
    await until(lambda: len(wired.a.parts.groups.loaded.waiters) == 1)
    await wired.channels["a"].close()
    assert await fault_of(waiting) is Fault.COORDINATOR_UNAVAILABLE
    assert await fault_of(committed(wired.b)) is Fault.COORDINATOR_UNAVAILABLE


async def test_a_transaction(wired: Wired) -> None:
    a, b = wired.a, wired.b
    where = TopicPartition("p", 0)
    wired.town.add_partitions(where)
    await commit(a, 1)
    producer = await a.transaction.init_producer(InitProducer("tx", 60_000))
    assert a.is_home("tx", HomeKind.TRANSACTION)
    assert await b.transaction.add_partitions("tx", producer, [where]) == {}
    await b.transaction.add_offsets("tx", producer, "g")
    await b.homes.guards.verify("tx", producer, where)
    assert await fault_of(b.homes.guards.verify("tx", producer, TopicPartition("p", 1))) is (
        Fault.NOT_IN_TRANSACTION
    )
    offsets = {T0: CommittedOffset(7)}
    assert await b.group.commit_transaction_offsets("g", MemberIdentity(), "tx", producer, offsets) == {}
    await b.transaction.end("tx", producer, committed=True)
    assert await committed(b) == {T0: 7}
