"""A fabric host without a broker, beside a daemon: the basis of an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiomqtt
import pytest

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.api.join_token import JoinToken
from treecast.middleware.broker.pubsub import Message, Subscriber, Subscription, Target
from treecast.middleware.broker.values import Appended, Isolation, PartitionRead
from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.records import Record
from treecast.middleware.relay.brokerless import BrokerlessHost, FabricHostSettings
from treecast.middleware.wire.record_batch import build_batch

WAIT = 30.0  # seconds


class Agent(Subscriber):
    """A host that subscribes and publishes."""

    def __init__(self, name: str, data: Path, daemon: DaemonProcess) -> None:
        super().__init__(1)
        token = JoinToken.parse((daemon.data / "join-token").read_text().strip())
        self.host = BrokerlessHost(FabricHostSettings(name, data, daemon.control, token), Counters())
        self.got: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    async def __aenter__(self) -> Agent:
        await self.host.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.host.close()

    def subscribe(self, filter: str) -> None:
        self.host.hub.subscribe(Subscription(self, filter.encode(), 1))

    def take(self, message: Message, target: Target) -> None:
        self.got.put_nowait((message.topic.decode(), message.payload))

    async def next(self) -> tuple[str, bytes]:
        async with asyncio.timeout(WAIT):
            return await self.got.get()


@pytest.fixture
async def agent(hosts: list[DaemonProcess], tmp_path: Path) -> AsyncIterator[Agent]:
    async with Agent("agent", tmp_path / "agent", hosts[0]) as made:
        channels = made.host.fabric_host.neighbours.channels
        await until(lambda: sum(peer.connected for peer in channels.peers()) == len(hosts))
        yield made


def client(daemon: DaemonProcess) -> aiomqtt.Client:
    host, _, port = daemon.ready["mqtt"].rpartition(":")
    return aiomqtt.Client(host, int(port))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_what_clients_of_daemons_publish_comes_to_the_agent(
    agent: Agent, hosts: list[DaemonProcess]
) -> None:
    agent.subscribe("plant/+/heat")
    await agent.host.wanted()
    for number, daemon in enumerate(hosts):
        async with client(daemon) as publisher:
            await publisher.publish(f"plant/{number}/cold", b"no")
            await publisher.publish(f"plant/{number}/heat", b"%d" % number, qos=1)
        assert await agent.next() == (f"plant/{number}/heat", b"%d" % number)


async def test_what_the_agent_publishes_comes_to_clients_of_daemons(
    agent: Agent, hosts: list[DaemonProcess]
) -> None:
    async with client(hosts[0]) as one, client(hosts[1]) as other:
        for subscriber in (one, other):
            await subscriber.subscribe("out/#", qos=1)
        for number in range(100):
            agent.host.publish("out/x", b"%d" % number)
        for subscriber in (one, other):
            async with asyncio.timeout(WAIT):
                got = [(await anext(subscriber.messages)).payload for _ in range(100)]
            assert got == [b"%d" % number for number in range(100)]


async def test_the_agent_writes_partitions_and_has_replicas_but_leads_none(
    agent: Agent, hosts: list[DaemonProcess]
) -> None:
    def create() -> set[str]:
        with DaemonClient(hosts[1].control) as daemon:
            daemon.create_topic("orders", 6)
            return {partition.leader for partition in daemon.describe_topic("orders").partitions}

    assert await asyncio.to_thread(create) == {"a", "b"}
    await until(lambda: "orders" in {topic.name for topic in agent.host.link.view.topics})
    partition = agent.host.partition("orders", 0)
    batch = build_batch([Record(b"k", b"v", (), 0)])
    appended = partition.append(memoryview(bytearray(batch)), -1, None)
    assert (appended if isinstance(appended, Appended) else await appended).base_offset == 0
    read = partition.read(0, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True)
    found = read if isinstance(read, PartitionRead) else await read
    assert found.high_watermark == 1
    await until(lambda: partition.size == found.size)  # the replica has caught up
    assert bytes(found.chunks[0])[61:] == batch[61:]


async def test_an_agent_that_comes_back_is_the_same_host(hosts: list[DaemonProcess], tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        async with Agent("again", tmp_path / "again", hosts[0]) as agent:
            ids.append(agent.host.link.session.host_id)
    assert ids[0] == ids[1]


# --- what agents have among themselves

WISH = ("$agents", "test", "+")


async def test_topics_of_agents_reach_agents_and_nobody_else(
    agent: Agent, hosts: list[DaemonProcess], tmp_path: Path
) -> None:
    async with Agent("second", tmp_path / "second", hosts[0]) as second, client(hosts[0]) as one:
        changed: list[bool] = []
        second.host.on_wanted_by_others(lambda: changed.append(True))
        agent.subscribe("$agents/test/#")
        agent.host.want(WISH)
        for filter in ("#", "$agents/#"):
            await one.subscribe(filter, qos=1)
        await until(lambda: any(WISH in found for found in second.host.wanted_by_others().values()))
        await until(lambda: changed)
        await one.publish("$agents/test/x", b"of a client", qos=1)
        second.host.publish("$agents/other/x", b"not wanted")
        second.host.publish("$agents/test/x", b"of an agent")
        assert await agent.next() == ("$agents/test/x", b"of an agent")
        second.host.publish("plain", b"to all")
        seen = {}
        async with asyncio.timeout(WAIT):
            while "plain" not in seen:
                message = await anext(one.messages)
                seen[str(message.topic)] = message.payload
        assert seen.pop("plain") == b"to all"
        assert set(seen.values()) <= {b"of a client"}  # its own, which stays at its daemon
        agent.host.unwant(WISH)
        await until(lambda: not any(WISH in found for found in second.host.wanted_by_others().values()))
        assert agent.got.empty()


async def test_what_is_wanted_before_a_start_is_known_with_it(
    hosts: list[DaemonProcess], tmp_path: Path
) -> None:
    """Nobody hears that a host wants less than before, while it has not taken up what it wanted."""
    async with Agent("watcher", tmp_path / "watcher", hosts[0]) as watcher:
        for _ in range(2):
            assert await wants_from_its_start(watcher, Agent("late", tmp_path / "late", hosts[0]).host)


async def wants_from_its_start(watcher: Agent, host: BrokerlessHost) -> bool:
    """Whether no word of the host's interest lacks what it wants."""
    heard: list[dict[int, set[tuple[str, ...]]]] = []
    watcher.host.on_wanted_by_others(lambda: heard.append(watcher.host.wanted_by_others()))
    try:
        await host.open(lambda: host.want(WISH))
        number = host.link.session.host_id
        await until(lambda: WISH in watcher.host.wanted_by_others().get(number, set()))
        return all(WISH in found[number] for found in heard if found.get(number))
    finally:
        await host.close()


async def test_the_first_definition_holds_at_all_agents(
    agent: Agent, hosts: list[DaemonProcess], tmp_path: Path
) -> None:
    async with Agent("third", tmp_path / "third", hosts[0]) as third:
        assert await agent.host.define("7:test/one", b"first") == b"first"
        assert await third.host.define("7:test/one", b"second") == b"first"
        await until(lambda: third.host.defined("7:test/") == {"7:test/one": b"first"})
        assert third.host.defined("7:other/") == {}
        await third.host.undefine("7:test/one")
        await until(lambda: agent.host.defined("7:test/") == {})
    assert "left out" not in hosts[0].log()
