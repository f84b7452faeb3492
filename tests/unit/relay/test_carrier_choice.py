"""The carrier of a topic: unicast until a group is worth it, and for hosts that the group does not reach."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing

import pytest
from msgspec.structs import replace
from tests.unit.fabric import broadcast
from tests.unit.relay.world import TestHost, World, content, until

from treecast.middleware.fabric.carriers.registry import register
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import interface_of
from treecast.middleware.fabric.sockets.udp import shown
from treecast.middleware.fabric.standing import StandingSettings
from treecast.middleware.relay.carrier_group import CarrierSettings
from treecast.middleware.relay.carrier_troubles import sentences
from treecast.middleware.wire import stare

QUICK = CarrierSettings(
    earns=0.0,
    tick=0.05,
    probe_first=0.05,
    probe_every=0.3,
    allot_again=0.1,
    much_of=50,
    standing=StandingSettings(missed=2, out=0.2),
)


def carriers(host: TestHost, topic: str = "t") -> dict[int, str]:
    return {
        peer.host: peer.carrier
        for stream in host.relay.leading.of_topic(topic)
        for peer in stream.origin.peers()
    }


def reasons(host: TestHost, topic: str = "t") -> dict[int, str]:
    """Why each receiver of a topic gets live data by unicast."""
    choice = host.distribution.choice
    return {
        one: choice.why_unicast(stream, one)
        for stream in host.relay.leading.of_topic(topic)
        for one in stream.hosts()
    }


def by_broadcast(world: World) -> FabricSettings:
    register(broadcast.NAME, broadcast.make)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    return replace(world.fabric, carriers=(broadcast.NAME, "ip-multicast"), options={broadcast.NAME: port})


async def followed(world: World, *hosts: TestHost) -> None:
    for host in hosts:
        await host.read(0)
        await until(host.copied())


@pytest.fixture
def multicast(require: Callable[[object, str], None]) -> None:
    require(interface_of("127.0.0.1").name, "the loopback interface is not known here")


async def test_two_followers_earn_a_group_and_one_does_not(world: World, multicast: None) -> None:
    world.carriers = QUICK
    await world.topic("t", 1)
    a, b, c = await world.start(1, 2, 3)
    await a.produce(b"one")
    await followed(world, b)
    assert carriers(a) == {2: "unicast"}
    assert reasons(a) == {2: "ip-multicast: a group needs 2 hosts"}
    assert world.states == {}
    await followed(world, c)
    await until(lambda: carriers(a) == {2: "ip-multicast", 3: "ip-multicast"})
    state_id = world.states[("t",)]
    assert a.distribution.choice.group_of(("t",)) == (state_id, [2, 3])
    for number in range(20):
        await a.produce(b"%d" % number + b"x" * 2000)
    await until(b.copied())
    await until(c.copied())
    assert content(b.log()) == content(c.log()) == content(a.log())
    origin = a.relay.leading.of_topic("t")[0].origin
    await until(lambda: all(row.closed for row in origin.rows().values()))
    assert await c.partition().leader.unfollow() is None
    await until(lambda: carriers(a) == {2: "unicast"})
    await until(lambda: not c.distribution.choice._asked)


async def test_who_answers_no_probe_gets_unicast(world: World, multicast: None) -> None:
    world.carriers = QUICK
    await world.topic("t", 1)
    a, b, c, d = await world.start(1, 2, 3, 4)
    await a.produce(b"one")
    d.fabric.on_probe = None  # as if the network did not carry the group
    await followed(world, b, c, d)
    await until(lambda: carriers(a) == {2: "ip-multicast", 3: "ip-multicast", 4: "unicast"})
    await until(lambda: reasons(a)[4] == "has not answered a probe of ip-multicast yet")
    (stream,) = a.relay.leading.of_topic("t")
    group = f"{socket.inet_ntoa(stare.group(stream.origin.group, ipv6=False))}:{stare.PORT}"
    unicast = shown(d.fabric.address)
    found = [(name, copy.address, copy.hosts) for name, copy in stream.origin.copies()]
    assert found == [("ip-multicast", group, (2, 3)), ("unicast", unicast, (4,))]
    await a.produce(b"x" * 5000)
    await until(d.copied())
    c.fabric.on_probe = None
    await until(lambda: carriers(a) == {2: "unicast", 3: "unicast", 4: "unicast"})
    assert a.counters.group_hosts_lost == 1
    await until(lambda: reasons(a)[2] == "ip-multicast reaches no other host: a group needs two")
    assert reasons(a)[3].startswith("it has stopped answering probes (for 0 s): a switch may have forgotten")
    await a.produce(b"x" * 5000)
    for host in (b, c, d):
        await until(host.copied())


async def test_who_was_lost_returns_when_it_answers_again(world: World, multicast: None) -> None:
    world.carriers = QUICK
    await world.topic("t", 1)
    a, b, c, d = await world.start(1, 2, 3, 4)
    await a.produce(b"one")
    await followed(world, b, c, d)
    whole = dict.fromkeys((2, 3, 4), "ip-multicast")
    await until(lambda: carriers(a) == whole)
    choice, (stream,) = a.distribution.choice, a.relay.leading.of_topic("t")
    assert choice.troubles() == []
    answers = d.fabric.on_probe
    d.fabric.on_probe = None
    a.fabric.on_unreached(stream.origin, 4)  # type: ignore[misc]
    assert carriers(a) == {**whole, 4: "unicast"}
    (trouble,) = choice.troubles()
    group = f"{socket.inet_ntoa(stare.group(stream.origin.group, ipv6=False))}:{stare.PORT}"
    told = (trouble.carrier, trouble.group, trouble.topic, trouble.lost, trouble.reached)
    assert told == ("ip-multicast", group, "t", (4,), 2)
    assert sentences([trouble], "host {}".format) == [
        f"group {group} (t) does not reach host 4, but 2 other hosts: packets of the group do not arrive;"
        " a switch may have forgotten the membership: is there an IGMP querier on this network, and does the"
        " switch's IGMP snooping list the group at that port? Unicast goes there until it is reached again."
    ]
    assert reasons(a)[4].startswith("packets of the group do not arrive (for 0 s): a switch may have")
    d.fabric.on_probe = answers
    await until(lambda: carriers(a) == whole)
    assert (choice.troubles(), a.counters.group_hosts_lost) == ([], 1)
    await a.produce(b"x" * 5000)
    await until(d.copied())


async def test_a_group_that_reaches_nobody_says_so_of_all(world: World, multicast: None) -> None:
    world.carriers = QUICK
    await world.topic("t", 1)
    a, b, c = await world.start(1, 2, 3)
    await a.produce(b"one")
    await followed(world, b, c)
    await until(lambda: carriers(a) == {2: "ip-multicast", 3: "ip-multicast"})
    b.fabric.on_probe = c.fabric.on_probe = None
    (stream,) = a.relay.leading.of_topic("t")
    a.fabric.on_unreached(stream.origin, 3)  # type: ignore[misc]
    assert carriers(a) == {2: "unicast", 3: "unicast"}
    (trouble,) = a.distribution.choice.troubles()
    assert (trouble.lost, trouble.reached) == ((2, 3), 0)
    assert "reaches no host of 2, 3" in sentences([trouble], str)[0]
    assert all("a switch may have forgotten" in reason for reason in reasons(a).values())
    many = sentences([trouble, replace(trouble, topic="u")], str)
    assert len(many) == 1
    assert "(t) and 1 more reach no host" in many[0]


async def test_without_a_coordinator_a_topic_stays_on_unicast_until_it_is_back(
    world: World, multicast: None
) -> None:
    world.carriers = QUICK
    world.away = True
    await world.topic("t", 1)
    a, b, c = await world.start(1, 2, 3)
    await a.produce(b"one")
    await followed(world, b, c)
    await until(lambda: ("t",) in a.distribution.choice._groups)
    assert set(carriers(a).values()) == {"unicast"}
    assert set(reasons(a).values()) == {"the coordinator has allotted no state id for ip-multicast yet"}
    world.away = False
    await until(lambda: set(carriers(a).values()) == {"ip-multicast"})


async def test_what_names_its_receivers_needs_no_coordinator(world: World) -> None:
    world.carriers, world.away = QUICK, True
    world.fabric = by_broadcast(world)
    await world.topic("t", 1)
    a, b, c = await world.start(1, 2, 3)
    await a.produce(b"one")
    await followed(world, b)
    await until(lambda: carriers(a) == {2: broadcast.NAME})  # one host is enough
    await followed(world, c)
    await until(lambda: carriers(a) == {2: broadcast.NAME, 3: broadcast.NAME})
    assert (a.distribution.choice.group_of(("t",)), world.states) == ((0, [2, 3]), {})
    await a.produce(b"x" * 5000)
    await until(b.copied())
    await until(c.copied())
    c.fabric.on_probe = None  # as if the network stopped carrying it
    await until(lambda: carriers(a) == {2: broadcast.NAME, 3: "unicast"})
    assert reasons(a)[3].startswith(
        "it has stopped answering probes (for 0 s): look at the network on the way"
    )
    assert await b.partition().leader.unfollow() is None
    await until(lambda: carriers(a) == {3: "unicast"})


async def test_each_stream_goes_by_the_first_carrier_that_reaches_its_hosts(
    world: World, multicast: None
) -> None:
    world.carriers = QUICK
    world.fabric = by_broadcast(world)
    await world.topic("t", 1)
    await world.topic("u", 1)
    a, b, c = await world.start(1, 2, 3)
    reached = a.fabric.carriers.named(broadcast.NAME)
    assert isinstance(reached, broadcast.Broadcast)
    for topic in ("t", "u"):
        await a.produce(b"one", topic=topic)
    for host in (b, c):
        await host.read(0, topic="t")
    await until(lambda: set(carriers(a).values()) == {broadcast.NAME})
    reached.hosts.clear()  # like a carrier of trees that lost its network
    await until(lambda: carriers(a) == {2: "ip-multicast", 3: "ip-multicast"})
    assert set(world.states) == {("t",)}
    reached.hosts.add(2)
    await b.read(0, topic="u")
    await until(lambda: carriers(a, "u") == {2: broadcast.NAME})
    await until(lambda: carriers(a) == {2: broadcast.NAME, 3: "unicast"})
    await until(lambda: not b.distribution.choice._asked)


async def test_interest_of_partitions_is_told(world: World) -> None:
    await world.topic("a.b", 1)
    a, b = await world.start(1, 2)
    await a.produce(b"one", topic="a.b")
    await b.read(0, topic="a.b")
    await until(lambda: a.distribution.interest.of(2) == {("a", "b")})
    await until(lambda: world.recorded.get(2, (0, []))[1] == ["a/b"])
