"""Event streams by group carriers: one copy for all hosts that the group reaches, unicast for the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.events.world import TestHost, World, until

from treecast.middleware.fabric.sockets.interfaces import interface_of
from treecast.middleware.fabric.standing import StandingSettings
from treecast.middleware.relay.carrier_group import CarrierSettings

QUICK = CarrierSettings(
    earns=0.0,
    tick=0.05,
    probe_first=0.05,
    probe_every=0.3,
    allot_again=0.1,
    much_of=500,
    standing=StandingSettings(missed=5, out=0.2),
)
BOTH = {2: "ip-multicast", 3: "ip-multicast"}
COUNT, SIZE = 200, 2000


@pytest.fixture
async def hosts(world: World, require: Callable[[object, str], None]) -> list[TestHost]:
    """Starts three hosts that may use groups."""
    require(interface_of("127.0.0.1").name, "the loopback interface is not known here")
    world.carriers = QUICK
    return await world.start(1, 2, 3)


def carriers(host: TestHost) -> dict[int, str]:
    return {peer.host: peer.carrier for stream in host.streams for peer in stream.origin.peers()}


def data_sent(host: TestHost) -> dict[str, int]:
    """Returns the bytes of live messages by carrier."""
    found: dict[str, int] = {}
    for stream in host.streams:
        for sent in stream.origin.sent():
            if sent.purpose == "data":
                found[sent.carrier] = found.get(sent.carrier, 0) + sent.size
    return found


async def test_two_hosts_earn_a_group_and_get_one_copy(world: World, hosts: list[TestHost]) -> None:
    a, b, c = hosts
    clients = [b.client(), c.client()]
    for client in clients:
        await client.subscribe("t/#")
    assert a.publish("t/first", b"", qos=1)
    await until(lambda: carriers(a) == BOTH)
    assert list(world.states) == [("$hosts", "2", "3")]
    before = data_sent(a)
    for number in range(COUNT):
        a.publish(f"t/{number % 7}", b"%d" % number + b"x" * SIZE, qos=number % 3)
        if number % 20 == 19:
            await until(lambda upto=number: all(len(client.got) >= upto for client in clients))
    await until(lambda: all(len(client.got) == COUNT + 1 for client in clients))
    sent = {name: size - before.get(name, 0) for name, size in data_sent(a).items()}
    assert COUNT * SIZE < sent["ip-multicast"] < 1.2 * COUNT * SIZE
    assert sent.get("unicast", 0) < 0.1 * COUNT * SIZE
    for client in clients:
        for topic in range(7):
            mine = [payload for name, payload, _ in client.got if name == f"t/{topic}"]
            assert mine == sorted(mine, key=lambda one: int(one.split(b"x")[0]))


async def test_one_host_earns_none_and_a_third_gets_unicast_until_it_answers(
    world: World, hosts: list[TestHost]
) -> None:
    a, b, c = hosts
    only = b.client()
    await only.subscribe("one")
    assert a.publish("one", b"x" * SIZE, qos=1)
    await until(lambda: only.got)
    (d,) = await world.start(4)
    d.fabric.on_probe = None  # as if the network did not carry the group
    clients = [b.client(), c.client(), d.client()]
    for client in clients:
        await client.subscribe("all")
    a.publish("all", b"first", qos=1)
    await until(lambda: carriers(a) == {**BOTH, 4: "unicast"})
    assert ("$hosts", "2") not in world.states
    for number in range(50):
        a.publish("all", b"%d" % number, qos=1)
    await until(lambda: all(len(client.got) == 51 for client in clients))


async def test_a_host_that_was_killed_joins_the_group_again(world: World, hosts: list[TestHost]) -> None:
    a, b, c = hosts
    there = b.client()
    await there.subscribe("t")
    await c.client().subscribe("t")
    a.publish("t", b"first", qos=1)
    await until(lambda: carriers(a) == BOTH)
    world.kill(3)
    (c,) = await world.start(3)
    back = c.client()
    await back.subscribe("t")
    a.publish("t", b"again", qos=1)
    await until(lambda: b"again" in back.payloads and b"again" in there.payloads)
    await until(lambda: carriers(a) == BOTH)
    a.publish("t", b"by the group", qos=1)
    await until(lambda: back.payloads[-1] == there.payloads[-1] == b"by the group")


async def test_without_the_coordinator_it_stays_unicast(world: World, hosts: list[TestHost]) -> None:
    a, b, c = hosts
    world.away = True
    clients = [b.client(), c.client()]
    for client in clients:
        await client.subscribe("t")
    a.publish("t", b"one", qos=1)
    await until(lambda: all(client.payloads == [b"one"] for client in clients))
    assert carriers(a) == {2: "unicast", 3: "unicast"}
    world.away = False
    await until(lambda: carriers(a) == BOTH)
