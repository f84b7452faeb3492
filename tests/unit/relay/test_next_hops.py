"""The ways of a message, as operators are shown them: by what streams, groups and leaders are now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.events import world as events
from tests.unit.relay.world import World, until

from treecast.middleware.fabric.core.states import PeerState
from treecast.middleware.fabric.sockets.udp import shown
from treecast.middleware.relay.carrier_group import CarrierSettings
from treecast.middleware.relay.next_hops import NextHop, NextHops

GROUPS = CarrierSettings(earns=0.0, tick=0.05, probe_first=0.05, probe_every=0.3)


async def test_a_topic_with_two_leaders(world: World) -> None:
    await world.topic("t", 1, 2)
    a, b, c = await world.start(1, 2, 3)
    topic = a.definitions.known["t"]
    await c.read(0)
    await c.read(0, index=1)
    await until(lambda: a.relay.leading.of_topic("t") and b.relay.leading.of_topic("t"))
    to_a = NextHop(3, (1,), "channel", "h:1", why="leads t-0")
    to_b = NextHop(3, (2,), "channel", "h:1", why="leads t-1")
    at_c, why = shown(c.fabric.address), "no other carrier is in use here"
    on = [NextHop(leader, (3,), "unicast", at_c, f"t-{leader - 1}", 0, why) for leader in (1, 2)]
    assert await c.ways.of_topic(topic) == [to_a, to_b, *on]
    assert await a.ways.of_topic(topic) == [
        NextHop(1, (1,), "local", why="leads t-0"),
        NextHop(1, (2,), "channel", "h:1", why="leads t-1"),
        *on,
    ]
    world.kill(2)
    await until(lambda: not c.channels.is_up(2))
    *known, last = await c.ways.of_topic(topic)
    assert known == [to_a, to_b, on[0]]
    assert (last.sender, last.hosts, last.carrier) == (2, (), "nothing")
    assert last.why.startswith("the leader does not answer")
    world.kill(3)
    await until(lambda: [way.carrier for way in a.ways.of_led("t")] == ["nothing"])
    (silent,) = a.ways.of_led("t")
    assert (silent.hosts, silent.stream) == ((3,), "t-0")
    assert silent.why == f"it {PeerState.SILENT.value}; no channel to 3"


async def test_messages_to_hosts(tmp_path: Any) -> None:
    world = events.World(tmp_path)
    world.carriers = GROUPS
    a, b, c = await world.start(1, 2, 3)
    try:
        distribution: Any = SimpleNamespace(events=a.events, choice=a.choice)
        unused: Any = SimpleNamespace()
        ways = NextHops(distribution, a.fabric, a.methods, unused, lambda host: "")

        def found() -> list[NextHop]:
            return ways.of_targets(a.hub.routes.targets(b"t"))

        await b.client().subscribe("t")
        assert a.events is not None
        at_b, at_c = shown(b.fabric.address), shown(c.fabric.address)
        first = "no stream goes to these hosts yet: the first message begins one"
        assert found() == [NextHop(1, (2,), "unicast", at_b, why=first)]
        assert a.streams == []  # none was begun for the answer
        a.publish("t", b"", qos=1)
        name = "mqtt to 2"
        await events.until(lambda: a.streams)
        assert found() == [NextHop(1, (2,), "unicast", at_b, name, 0, "ip-multicast: a group needs 2 hosts")]
        await c.client().subscribe("t")
        assert found() == [
            NextHop(1, (host,), "unicast", at, why=first) for host, at in ((2, at_b), (3, at_c))
        ]
        a.events.remotes[3].deaf = True
        silent, other = found()
        assert silent == NextHop(1, (3,), "nothing", why="it takes no messages")
        assert (other.hosts, other.stream) == ((2,), name)
    finally:
        await world.close()
