"""Agent-Sub and Agent-Pub over a hub with its journal; a recording stands for the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from librt.strings import BytesWriter
from tests.unit.agents.test_codec import layout, read_publishes
from tests.unit.events.world import TestHost, World

from treecast.agents.common.status import AgentCounters
from treecast.agents.rabbitmq import hops
from treecast.agents.rabbitmq.codec import names_of, packets_of
from treecast.agents.rabbitmq.inbound import Inbound, Spool
from treecast.agents.rabbitmq.outbound import Outbound, Room
from treecast.agents.rabbitmq.session import Confirmed, Delivered
from treecast.agents.rabbitmq.topics import TOPIC, all_topics, topic_of
from treecast.middleware.broker.pubsub import Message, Subscriber, Subscription, Target, run_of
from treecast.middleware.wire.mqtt_publish import WITH_PROPERTIES

OWN, OTHER = hops.entry("cluster1", "lisbon"), hops.entry("cluster1", "oslo")
LARGE = 1 << 30


class Server:
    """Stands for an `AmqpConnection`: keeps what is written."""

    def __init__(self) -> None:
        self.session = self
        self.out = BytesWriter()
        self.piece = 8184
        self.over = ""
        self.full = False
        self.acknowledged: list[int] = []
        self.paused = False

    def acknowledge(self, channel: int, tag: int) -> None:
        self.acknowledged.append(tag)

    def flush_later(self) -> None: ...

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def bodies(self) -> list[bytes]:
        """Returns what was published since the last call."""
        data, self.out = self.out.getvalue(), BytesWriter()
        return [one[-1] for one in read_publishes(data)]  # type: ignore[misc]


class Foreign(Subscriber):
    """Another host that wants something."""

    def __init__(self, serial: int) -> None:
        super().__init__(serial)
        self.foreign = True
        self.got: list[bytes] = []

    def take(self, message: Message, target: Target) -> None:
        self.got.append(message.payload)


class Agent:
    """Both ways of one host."""

    def __init__(self, host: TestHost, *, window: int = 100, room: int = LARGE, spool: int = LARGE) -> None:
        self.host, self.hub = host, host.hub
        self.counters = AgentCounters()
        self.holds: list[bool] = []
        self.owed = 0
        self.outbound = Outbound(
            host.hub, host.turn, "/", OWN, window, False, self.counters, Room(room, self.holds.append)
        )
        self.outbound.use_exchanges({b"e"})
        self.outbound.restore(all_topics("/"))
        self.inbound = Inbound(
            host.hub, host.turn, self.outbound, "/", OWN, Spool(spool, lambda: self.owed), self.counters
        )
        self.inbound.use_kinds({"e": TOPIC})
        self.inbound.open()

    def attach(self) -> Server:
        server: Any = Server()
        self.outbound.attach(server, 1)
        self.inbound.attach(server, 2)
        return server  # type: ignore[no-any-return]

    def arrives(self, *bodies: bytes, hop: bytes = OTHER) -> None:
        """A run from another site."""
        data = layout([({}, body) for body in bodies])
        packets = packets_of(topic_of("/", b"e", TOPIC, b"k"), names_of(b"e", b"k"), data, hops.field(hop))
        run = run_of(WITH_PROPERTIES, packets)
        assert run is not None
        self.hub.feed_run(run, None)

    def wants(self, key: bytes) -> Foreign:
        other = Foreign(self.hub.routes.next_serial())
        self.hub.subscribe(Subscription(other, topic_of("/", b"e", TOPIC, key), 2))
        return other

    def delivers(self, *messages: tuple[dict[str, object], bytes], first: int = 1, **more: Any) -> None:
        """The server gives out a run."""
        data = layout(list(messages))
        flags = {"marked": False, "own": False, "further": False, **more}
        self.inbound.delivered(Delivered(2, first, len(messages), b"e", b"k", data, **flags))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    try:
        yield made
    finally:
        await made.close()


async def started(world: World, **more: Any) -> Agent:
    (host,) = await world.start(1)
    return Agent(host, **more)


# --- from other sites to the server


async def test_what_is_confirmed_is_settled_and_nothing_else(world: World) -> None:
    agent = await started(world)
    server = agent.attach()
    agent.arrives(b"1", b"2")
    agent.arrives(b"3")
    assert server.bodies() == [b"1", b"2", b"3"]
    assert agent.outbound.lag == 3
    agent.outbound.confirmed(Confirmed(1, 1, False, True))
    assert agent.outbound.lag == 3  # a run is settled whole
    agent.outbound.confirmed(Confirmed(1, 2, True, True))
    assert agent.outbound.lag == 1
    agent.outbound.confirmed(Confirmed(1, 3, False, True))
    assert (agent.outbound.lag, agent.counters.published) == (0, 3)


async def test_what_is_not_confirmed_is_published_again_in_order(world: World) -> None:
    agent = await started(world)
    server = agent.attach()
    agent.arrives(b"1")
    agent.arrives(b"2")
    assert server.bodies() == [b"1", b"2"]
    agent.outbound.confirmed(Confirmed(1, 1, False, True))
    agent.outbound.detach(refused=False)
    agent.arrives(b"3")
    assert agent.attach().bodies() == [b"2", b"3"]
    assert agent.counters.again == 1


async def test_after_a_kill_what_is_owed_is_published(world: World) -> None:
    agent = await started(world)
    agent.arrives(b"1", b"2")
    agent.host.end_turn()
    world.kill(1)
    agent = await started(world)
    server = agent.attach()
    agent.arrives(b"3")
    assert server.bodies() == [b"1", b"2", b"3"]
    agent.outbound.confirmed(Confirmed(1, 0, True, True))
    agent.host.end_turn()
    world.kill(1)
    agent = await started(world)
    assert agent.outbound.lag == 0
    assert agent.attach().bodies() == []


async def test_the_window_bounds_what_waits_for_confirms(world: World) -> None:
    agent = await started(world, window=2)
    server = agent.attach()
    for body in (b"1", b"2", b"3", b"4"):
        agent.arrives(body)
    assert server.bodies() == [b"1", b"2"]
    agent.outbound.confirmed(Confirmed(1, 1, False, True))
    assert server.bodies() == [b"3"]
    agent.outbound.block("low on memory")
    agent.outbound.confirmed(Confirmed(1, 3, True, True))
    assert server.bodies() == []
    agent.outbound.block("")
    assert server.bodies() == [b"4"]


async def test_a_message_that_is_refused_is_found_and_given_up(world: World) -> None:
    agent = await started(world)
    server = agent.attach()
    agent.arrives(b"1", b"bad", b"2")
    agent.arrives(b"3")
    server.bodies()
    published: list[bytes] = []
    refused = 0
    while agent.outbound.lag:
        agent.outbound.detach(refused=True)
        server = agent.attach()
        for number in range(1, 10):
            found = server.bodies()
            if not found or b"bad" in found:
                refused += b"bad" in found
                break
            published += found
            agent.outbound.confirmed(Confirmed(1, number, False, True))
    assert published == [b"1", b"2", b"3"]
    assert refused == 3
    assert agent.counters.refused_there == {"the server refuses it": 1}
    agent.arrives(b"4")
    agent.arrives(b"5")
    assert server.bodies() == [b"4", b"5"]  # no longer one at a time


async def test_beyond_the_bound_other_sites_are_told_to_keep_theirs(world: World) -> None:
    agent = await started(world, room=100)
    server = agent.attach()
    for _ in range(4):
        agent.arrives(b"x" * 10)
    assert agent.holds == [True]
    agent.outbound.confirmed(Confirmed(1, 4, True, True))
    assert agent.holds == [True, False]
    assert len(server.bodies()) == 4


async def test_own_messages_and_unknown_exchanges_are_counted(world: World) -> None:
    agent = await started(world)
    server = agent.attach()
    agent.arrives(b"1", hop=OWN)
    agent.outbound.use_exchanges(set())
    agent.arrives(b"2")
    assert server.bodies() == []
    assert agent.outbound.lag == 0
    assert agent.counters.looped == 1
    assert agent.counters.refused_there == {"its exchange is not carried here": 1}


# --- from the server to other sites


async def test_deliveries_are_acknowledged_once_they_are_stored(world: World) -> None:
    agent = await started(world)
    server, other = agent.attach(), agent.wants(b"k")
    agent.delivers(({}, b"1"), ({}, b"2"))
    agent.delivers(({}, b"3"), first=3)
    assert server.acknowledged == []
    agent.host.end_turn()
    assert server.acknowledged == [3]
    assert len(other.got) == 3
    assert (agent.counters.taken, agent.counters.sent) == (3, 3)
    assert agent.outbound.lag == 0  # they do not come back to the own server


async def test_what_nobody_wants_is_acknowledged(world: World) -> None:
    agent = await started(world)
    server = agent.attach()
    agent.delivers(({}, b"1"))
    agent.host.end_turn()
    assert server.acknowledged == [1]
    assert (agent.counters.unwanted, agent.counters.sent) == (1, 0)


async def test_what_came_from_a_site_of_the_cluster_stays(world: World) -> None:
    agent = await started(world)
    server, other = agent.attach(), agent.wants(b"k")
    agent.delivers(({}, b"1"), marked=True, own=True)
    agent.host.end_turn()
    assert (server.acknowledged, other.got, agent.counters.looped) == ([1], [], 1)


async def test_what_came_from_another_cluster_goes_on(world: World) -> None:
    agent = await started(world)
    agent.attach()
    other = agent.wants(b"k")
    agent.delivers(({"headers": {"x-treecast-hops": ["cluster2/oslo"]}}, b"1"), marked=True)
    [payload] = other.got
    assert b"cluster2/oslo" in payload
    assert b"cluster1/lisbon" in payload


async def test_further_keys_reach_those_who_want_them_once(world: World) -> None:
    agent = await started(world)
    agent.attach()
    first, both, second = agent.wants(b"k"), agent.wants(b"k"), agent.wants(b"l")
    agent.hub.subscribe(Subscription(both, topic_of("/", b"e", TOPIC, b"m"), 2))
    agent.delivers(({"headers": {"CC": ["l", "m", "nobody"]}}, b"1"), further=True)
    assert [len(one.got) for one in (first, both, second)] == [1, 1, 1]
    assert second.got[0].startswith(names_of(b"e", b"k"))


async def test_a_full_spool_leaves_the_messages_to_the_server(world: World) -> None:
    agent = await started(world, spool=1000)
    server = agent.attach()
    agent.wants(b"k")
    agent.delivers(({}, b"x" * 2000))
    agent.owed = 2000
    agent.host.end_turn()
    assert (server.acknowledged, server.paused, agent.counters.held) == ([], True, 1)
    agent.owed = 0
    agent.host.end_turn()
    assert (server.acknowledged, server.paused, agent.counters.held) == ([1], False, 1)


async def test_a_new_connection_counts_from_its_own_first_tag(world: World) -> None:
    agent = await started(world)
    agent.attach()
    agent.delivers(({}, b"1"), ({}, b"2"))
    agent.inbound.detach()
    agent.host.end_turn()
    server = agent.attach()
    agent.host.end_turn()
    assert server.acknowledged == []
    agent.delivers(({}, b"1"))
    agent.host.end_turn()
    assert server.acknowledged == [1]
