"""Interest: the exchange between hosts, and its confirmation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.channel.hosts import QUICK, kill
from tests.unit.relay.world import CLUSTER, KEY, LOOPBACK, World, until

from treecast.middleware.api.entries import Change, InterestEntry, Kind, Position, Update
from treecast.middleware.fabric.channel import Channels, Methods
from treecast.middleware.model.counters import ChannelCounters, RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.wishes import Wish, matches
from treecast.middleware.relay.interest import (
    INTEREST,
    Interest,
    InterestRequest,
    InterestSettings,
    spelled,
)


class Host:
    def __init__(self, number: int, run: int = 1) -> None:
        self.number = number
        self.methods = Methods()
        self.channels = Channels(
            number, run, CLUSTER, KEY, QUICK, ChannelCounters(), random.Random(number), self.methods.handle
        )
        self.methods.use(self.channels)
        self.counters = RelayCounters()
        self.recorded: list[tuple[int, list[str]]] = []
        self.away = False
        settings = InterestSettings(confirm=0.3, record_again=0.02)
        self.interest = Interest(self.methods, settings, self.counters, self.record)
        self.channels.on_up = lambda host, _: self.interest.host_up(host)
        self.channels.on_down = self.interest.host_down

    async def record(self, version: int, patterns: object) -> object:
        if self.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)
        self.recorded.append((version, list(patterns)))  # type: ignore[call-overload]
        return version

    def knows(self, other: Host, *patterns: tuple[str, ...]) -> bool:
        return self.interest.of(other.number) == set(patterns)

    async def close(self) -> None:
        await self.interest.close()
        await self.channels.close()


@asynccontextmanager
async def hosts(*numbers: int) -> AsyncIterator[list[Host]]:
    made = [Host(number) for number in numbers]
    addresses = {host.number: await host.channels.start(LOOPBACK) for host in made}
    for host in made:
        for number, address in addresses.items():
            host.channels.set_host(number, address)
    await until(lambda: all(a is b or a.channels.is_up(b.number) for a in made for b in made))
    try:
        yield made
    finally:
        for host in made:
            await host.close()


async def test_what_is_wanted_is_known_everywhere_when_it_is_confirmed() -> None:
    async with hosts(1, 2, 3) as (a, b, c):
        version = a.interest.want(Wish(("sport", "+")))
        a.interest.want(Wish(("news", "#")))
        await a.interest.confirmed(version)
        assert b.knows(a, ("sport", "+"), ("news", "#"))
        assert c.knows(a, ("sport", "+"), ("news", "#"))
        assert b.interest.hosts_for(("sport", "tennis")) == [1]
        assert b.interest.hosts_for(("sport",)) == []
        a.interest.want(Wish(("sport", "+")))
        a.interest.unwant(Wish(("sport", "+")))
        a.interest.unwant(Wish(("news", "#")))
        await a.interest.confirmed(a.interest.version)
        assert b.knows(a, ("sport", "+"))
        assert a.counters.unconfirmed_interest == 0
        await until(lambda: a.recorded[-1][1] == ["sport/+"])


async def test_a_host_that_comes_later_is_told_everything() -> None:
    async with hosts(1, 2) as (a, b):
        await a.interest.confirmed(a.interest.want(Wish(("t",))))
        kill(b.channels)
        await until(lambda: not a.channels.is_up(2))
        await a.interest.confirmed(a.interest.want(Wish(("u",))))  # an unreachable host is not waited for
        assert a.counters.unconfirmed_interest == 0
        again = Host(2, run=2)
        a.channels.set_host(2, await again.channels.start(LOOPBACK))
        await until(lambda: again.knows(a, ("t",), ("u",)))
        await again.close()


async def test_a_host_that_does_not_answer_is_not_waited_for_long() -> None:
    async with hosts(1, 2) as (a, b):
        await a.interest.confirmed(a.interest.want(Wish(("t",))))
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def silent(*_: object) -> tuple[int, bytes]:
            await never
            raise AssertionError

        b.methods._entries[INTEREST.number].handler = silent
        await a.interest.confirmed(a.interest.want(Wish(("u",))))
        assert a.counters.unconfirmed_interest == 1
        never.cancel()


async def test_who_lost_count_is_told_everything() -> None:
    async with hosts(1, 2) as (a, b):
        await a.interest.confirmed(a.interest.want(Wish(("t",))))
        b.interest._neighbours[1].version = 77
        a.interest.want(Wish(("u",)))
        await until(lambda: b.knows(a, ("t",), ("u",)))


async def test_bad_interest_is_refused() -> None:
    async with hosts(1, 2) as (a, b):
        request = InterestRequest(0, 5, [()])
        with pytest.raises(TreecastError) as caught:
            await a.methods.ask(2, INTEREST, request, 5.0)
        assert caught.value.fault is Fault.INVALID_REQUEST
        assert b.interest.of(1) == set()


async def test_the_coordinator_is_told_when_it_is_back() -> None:
    async with hosts(1) as (a,):
        a.away = True
        a.interest.want(Wish(("a/b", "50%")))
        await a.interest.confirmed(a.interest.version)
        await asyncio.sleep(0.05)
        a.away = False
        await until(lambda: a.recorded)
        assert a.recorded == [(2, ["a%2Fb/50%25"])]


LEVEL = st.sampled_from(["a", "b", "+", "#"])


@given(st.lists(LEVEL, min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=4))
def test_matching_is_what_a_plain_reading_says(pattern: list[str], levels: list[str]) -> None:
    def plain(pattern: list[str], levels: list[str]) -> bool:
        if pattern == ["#"]:
            return True
        if not pattern or not levels:
            return not pattern and not levels
        return pattern[0] in ("+", levels[0]) and plain(pattern[1:], levels[1:])

    assert matches(tuple(pattern), tuple(levels)) == plain(pattern, levels)
    assert spelled(("a", "b")) == "a/b"


async def test_what_the_coordinator_records_after_the_start_is_known(world: World) -> None:
    """For a host that is down, and has announced nothing to this run."""
    (a,) = await world.start(1)
    for version, patterns in ((1, ("t", "u")), (2, ("t",))):
        entry = InterestEntry(2, 1, version, patterns)
        changes = (Change(Kind.INTEREST, "2", entry),)
        a.view.apply(Update(snapshot=False, position=Position("h", 100 + version), changes=changes))
    assert a.distribution.interest.of(2) == {("t",)}
