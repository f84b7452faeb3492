"""Members of shared subscriptions and hosts come and go: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import asyncio
import random

import pytest
from msgspec.structs import replace
from tests.unit.events.faces import Face, Member
from tests.unit.events.world import TestHost, World, until


class Site:
    """Hosts with faces, and members at them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.faces: dict[int, Face] = {}
        self.members: list[Member] = []
        self.at: dict[Member, int] = {}
        self.sent: dict[int, list[int]] = {0: [], 1: [], 2: []}  # by QoS
        self.count = 0

    async def start(self, *numbers: int) -> list[TestHost]:
        hosts = await self.world.start(*numbers, share=False)
        for host in hosts:
            self.faces[host.number] = Face(host)
        for host in hosts:
            host.share()
        await until(lambda: all(self.world._sees(host) for host in self.world.hosts.values()))
        return hosts

    def kill(self, number: int, *, stored: bool = True) -> None:
        """Kills a host. `stored`: at the end of a turn, when everything has been written to the clients.

        Between storing and writing, a client without a lasting session would miss QoS 2 that nobody else may
        be sent.
        """
        if stored:
            self.faces[number].end_turn()
        for member in self.members:
            if self.at[member] == number and member.online:
                member.killed()
        self.world.kill(number, stored=stored)
        del self.faces[number]

    def add(self, member: Member, number: int) -> Member:
        self.members.append(member)
        self.at[member] = number
        return member

    async def member(self, name: str, number: int, *, lasting: bool = False, window: int = 100) -> Member:
        """Returns a connected member whose home knows it."""
        member = self.add(Member(name, lasting=lasting, window=window), number)
        member.connect(self.faces[number]).share()
        await self.settled()
        return member

    async def settled(self) -> None:
        """Returns when all homes know all members, and all hosts all interest."""

        def quiet(host: TestHost) -> bool:
            assert host.events is not None
            return not host.events.shares._shares or all(
                share.current for share in host.events.shares._shares.values()
            )

        await until(lambda: all(quiet(host) and host.interest.known for host in self.world.hosts.values()))

    def publish(self, number: int, count: int, qos: int = 2) -> None:
        """Publishes messages that are acknowledged: stored."""
        host = self.world.hosts[number]
        for _ in range(count):
            host.publish("t/x", b"%d" % self.count, qos)
            self.sent[qos].append(self.count)
            self.count += 1
        host.end_turn()

    def collect(self) -> list[int]:
        for member in self.members:
            member.collect()
        return sorted(int(payload) for member in self.members for payload in member.got)

    async def arrived(self) -> None:
        wanted = self.sent[1] + self.sent[2]
        await until(lambda: set(self.collect()) >= set(wanted))


@pytest.fixture
def site(world: World) -> Site:
    return Site(world)


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_the_last_member_of_a_host_leaves_goes_to_another_host(site: Site, qos: int) -> None:
    await site.start(1, 2)
    stays = await site.member("stays", 1)
    goes = await site.member("goes", 2, window=3)
    goes.acknowledges = False
    site.publish(1, 20, qos)
    await until(lambda: site.collect() and len(goes.got) == 3)  # its window is full; 7 wait for it
    goes.leave()
    left = set(range(20)) - {int(payload) for payload in goes.got} if qos == 2 else set(range(20))
    await until(lambda: site.collect() and {int(payload) for payload in stays.got} >= left)
    assert sorted(int(payload) for payload in stays.got) == sorted(left)


async def test_what_an_away_member_would_get_goes_to_one_that_is_connected(site: Site) -> None:
    await site.start(1, 2)
    here = await site.member("here", 1)
    away = await site.member("away", 2, lasting=True)
    away.drop()
    await site.settled()
    site.publish(1, 10)
    site.publish(2, 10)
    await site.arrived()
    assert len(here.got) == 20
    away.connect(site.faces[2])
    await site.settled()
    site.publish(1, 10)
    await site.arrived()
    assert len(away.got) == 5


async def test_what_nobody_can_be_given_waits_for_the_first_that_returns(site: Site) -> None:
    a, _ = await site.start(1, 2)
    first = await site.member("first", 1, lasting=True)
    second = await site.member("second", 2, lasting=True)
    first.drop()
    second.drop()
    await site.settled()
    site.publish(2, 10)
    await until(lambda: a.hub.shares.all()[0].waiting == 10)
    site.kill(1)
    site.kill(2)
    await site.start(2)
    second.connect(site.faces[2])
    await site.start(1)
    await site.arrived()
    assert site.collect() == list(range(10)) == [int(payload) for payload in second.got]


async def test_while_the_home_is_away_other_hosts_serve_each_message_once(site: Site) -> None:
    """The home returns: it gives out nothing that was given out meanwhile."""
    await site.start(1, 2, 3)
    at_home = await site.member("home", 1, lasting=True)
    other = await site.member("other", 2, lasting=True)
    site.kill(1)
    await until(lambda: not site.world.hosts[3].channels.is_up(1))
    site.publish(3, 10)
    site.publish(2, 10)
    await until(lambda: site.collect() and len(other.got) == 20)
    await site.start(1)
    at_home.connect(site.faces[1])
    await site.settled()
    site.publish(3, 10)
    await site.arrived()
    assert site.collect() == list(range(30))
    assert len(at_home.got) == 5


async def test_a_home_that_is_cut_off_serves_what_is_published_on_its_side(site: Site) -> None:
    """Both sides give out messages, each its own, and go on with one home when they meet again."""
    a, b, c = await site.start(1, 2, 3)
    at_home = await site.member("home", 1)
    other = await site.member("other", 2)
    sides = [(a, b), (a, c)]
    for one, two in sides:
        for host, far in ((one, two), (two, one)):
            assert host.events is not None
            host.events.host_down(far.number)
    site.publish(1, 10)
    site.publish(3, 10)
    await until(lambda: len(site.collect()) == 20)
    assert len(at_home.got) == len(other.got) == 10
    for one, two in sides:
        for host, far in ((one, two), (two, one)):
            assert host.events is not None
            host.events.host_up(far.number)
    await site.settled()
    site.publish(1, 10)
    site.publish(3, 10)
    await site.arrived()
    assert site.collect() == list(range(40))
    assert len(at_home.got) == len(other.got) == 20


async def test_a_host_that_returns_alone_serves_its_members_once(site: Site) -> None:
    """The home comes back later, and does not serve them again."""
    await site.start(1, 2)
    await site.member("far", 2, lasting=True)  # at home at host 2
    near = await site.member("near", 1, lasting=True)
    site.kill(1)
    site.kill(2)
    await site.start(1)
    near.connect(site.faces[1])
    site.publish(1, 30)
    await until(lambda: site.collect() and len(near.got) == 30)
    await site.start(2)
    await site.settled()
    site.publish(1, 1)
    await site.arrived()
    assert site.collect() == list(range(31))


async def test_a_stream_that_goes_to_more_hosts_gives_each_message_to_one(site: Site) -> None:
    site.world.settings = replace(site.world.settings, most_streams=0)
    await site.start(1, 2, 3)
    for number in (1, 2, 3):
        await site.member(f"m{number}", number)
        await site.world.hosts[number].client().subscribe("other/#")
    site.publish(3, 30)
    await site.arrived()
    await site.settled()
    site.publish(3, 1)
    await site.arrived()
    assert site.collect() == list(range(31))


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_was_on_the_way_to_a_host_that_left_the_cluster(site: Site, qos: int) -> None:
    """QoS 1 goes to another member. QoS 2 does not: it may have been received."""
    (a, b) = await site.start(1, 2)
    stays = await site.member("stays", 1)
    await site.member("goes", 2)
    site.publish(1, 10, qos)
    site.world.kill(2)
    b.interest.on_change = None
    a.interest.host_left(2)
    assert a.events is not None
    a.events.host_left(2)
    site.members.pop()
    site.publish(1, 1, qos)
    count = 11 if qos == 1 else 6
    await until(lambda: len(site.collect()) >= count)
    assert len(stays.got) == len(set(stays.got)) == count


@pytest.mark.parametrize("seed", range(6))
async def test_members_and_hosts_in_any_order(site: Site, seed: int) -> None:
    """Random publishes, departures, returns and kills. In the end each QoS 2 message has come once."""
    rng = random.Random(seed)
    await site.start(1, 2, 3)
    for number in (1, 2, 3):
        await site.member(f"lasting{number}", number, lasting=True, window=rng.randrange(1, 10))
        await site.member(f"clean{number}", number, window=rng.randrange(1, 10))
    for _ in range(25):
        await step(site, rng)
    for number in (1, 2, 3):
        if number not in site.faces:
            await site.start(number)
    for member in site.members:
        if member.lasting and not member.online:
            member.connect(site.faces[site.at[member]])
    await site.arrived()
    site.publish(1, 3)
    await site.arrived()
    got = site.collect()
    assert [n for n in got if n in set(site.sent[2])] == site.sent[2]


async def step(site: Site, rng: random.Random) -> None:
    up = sorted(site.faces)
    what = rng.choice(["publish", "publish", "publish", "collect", "go", "come", "kill", "start", "unshare"])
    if what == "publish" and up:
        site.publish(rng.choice(up), rng.randrange(1, 30), rng.choice([1, 2, 2]))
    elif what == "collect":
        site.collect()
    elif what == "go":
        online = [member for member in site.members if member.online]
        if online:
            member = rng.choice(online)
            rng.choice([member.leave, member.drop])()
    elif what == "come":
        away = [m for m in site.members if not m.online and site.at[m] in site.faces]
        if away:
            member = rng.choice(away)
            member.connect(site.faces[site.at[member]]).share()
    elif what == "kill" and len(up) > 1:
        site.kill(rng.choice(up), stored=rng.random() < 0.5)
    elif what == "start" and len(up) < 3:
        await site.start(next(number for number in (1, 2, 3) if number not in site.faces))
    elif what == "unshare":
        online = [m for m in site.members if m.online and not m.lasting]
        if online:
            rng.choice(online).unshare()
    await asyncio.sleep(rng.choice([0, 0, rng.random() * 0.1]))  # other hosts go on for a while, or not
