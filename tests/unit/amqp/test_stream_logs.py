"""Streams over a host's real partitions, with sessions in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from pamqp import commands
from tests.unit.amqp.face import Basic, Channel, Client, MemoryHost, Message, Queue
from tests.unit.loops import holds
from tests.unit.queues.host import run as run_of

from treecast.middleware.broker import Broker, BrokerSettings, NewTopic
from treecast.middleware.broker.queues import Run, message
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.amqp.dialect import AmqpHeaders
from treecast.shims.amqp.stream_logs import StreamLogs


class World:
    """A host with partitions, and one AMQP client."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.memory = MemoryHost()
        self.streams = StreamLogs(broker.cluster, broker.pubsub, lambda: None)
        self.memory.queues.use(AmqpHeaders(), self.streams)
        self.client = self.memory.client()
        self.got: list[object] = []

    async def until(self, count: int, client: Client | None = None) -> list[object]:
        """Returns the next `count` answers."""
        found: list[object] = []
        speaker = client or self.client

        def enough() -> bool:
            found.extend(speaker.got())
            return len(found) >= count

        await holds(enough)
        return found

    async def declare(self, name: str = "s", **arguments: object) -> object:
        asked = {"x-queue-type": "stream", **arguments}
        self.client.send(Queue.Declare(queue=name, durable=True, arguments=asked))  # type: ignore[arg-type]
        (answer,) = await self.until(1)
        return answer

    async def fill(self, *bodies: bytes, stream: str = "s") -> None:
        """Publishes, and waits until the partition has all."""
        partition = self.broker.cluster.partition(stream, 0)
        before = partition.size
        self.client.publish(stream, *bodies)
        await holds(lambda: partition.size > before)

    async def read(
        self, count: int, start: object = "first", prefetch: int = 0, stream: str = "s"
    ) -> list[Message]:
        """Returns `count` messages that a consumer of its own gets."""
        client = self.memory.client()
        client.ask(Basic.Qos(0, prefetch or count), Basic.QosOk)
        arguments = {} if start is None else {"x-stream-offset": start}
        client.send(Basic.Consume(queue=stream, consumer_tag="t", arguments=arguments))  # type: ignore[arg-type]
        ok, *found = await self.until(1 + count, client)
        assert isinstance(ok, Basic.ConsumeOk)
        assert all(isinstance(one, Message) for one in found)
        client.drop()
        return found  # type: ignore[return-value]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    broker = Broker(BrokerSettings(tmp_path), Host(1, "h"), Counters())
    await broker.start()
    await broker.begin_events()
    made = World(broker)
    yield made
    await made.streams.close()
    await broker.close()


def bodies(found: list[Message]) -> list[bytes]:
    return [one.body for one in found]


async def test_messages_are_read_again_and_again(world: World) -> None:
    assert isinstance(await world.declare(), Queue.DeclareOk)
    await world.fill(b"0", b"1", b"2")
    await world.fill(b"3")
    for _ in range(2):
        found = await world.read(4)
        assert bodies(found) == [b"0", b"1", b"2", b"3"]
        assert [one.headers["x-stream-offset"] for one in found] == [0, 1, 2, 3]
    assert bodies(await world.read(2, 2)) == [b"2", b"3"]
    assert bodies(await world.read(1, "last")) == [b"3"]
    assert bodies(await world.read(4, "1h")) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("start", ["next", None, 1000])
async def test_a_consumer_at_the_end_gets_what_comes(world: World, start: object) -> None:
    await world.declare()
    await world.fill(b"before")
    client = world.memory.client()
    client.ask(Basic.Qos(0, 5), Basic.QosOk)
    arguments = {} if start is None else {"x-stream-offset": start}
    client.send(Basic.Consume(queue="s", consumer_tag="t", arguments=arguments))  # type: ignore[arg-type]
    await world.until(1, client)
    reader = next(iter(world.memory.vhost.queues[b"s"].log._readers.values()))
    await holds(lambda: reader._reading._watched is not None)
    await world.fill(b"after")
    (message,) = await world.until(1, client)
    assert isinstance(message, Message)
    assert message.body == b"after"


async def test_acknowledgements_give_credit(world: World) -> None:
    await world.declare()
    await world.fill(*[b"%d" % number for number in range(10)])
    client = world.client
    client.ask(Basic.Qos(0, 3), Basic.QosOk)
    client.send(Basic.Consume(queue="s", consumer_tag="t", arguments={"x-stream-offset": "first"}))
    assert len(await world.until(4)) == 4
    for _ in range(50):
        await asyncio.sleep(0)
    assert client.got() == []
    client.send(Basic.Ack(2, True))
    assert len(await world.until(2)) == 2


async def test_kafkas_records_are_messages(world: World) -> None:
    await world.broker.cluster.definitions.create_topic(NewTopic("t.x", 1))
    records = [Record(b"k", b"%d" % number, (("h", b"v"),), 5) for number in range(3)]
    partition = world.broker.cluster.partition("t.x", 0)
    appended = partition.append(memoryview(bytearray(build_batch(records))), 1, None)
    assert not isinstance(appended, asyncio.Future)
    await world.declare("t.x")
    found = await world.read(3, stream="t.x")
    assert bodies(found) == [b"0", b"1", b"2"]
    assert found[1].headers == {"h": "v", "x-stream-offset": 1}
    assert isinstance(found[1].method, Basic.Deliver)
    assert (found[1].method.exchange, found[1].method.routing_key) == ("", "t.x")
    world.client.ask(Queue.Delete(queue="t.x"), Queue.DeleteOk)
    for _ in range(20):
        await asyncio.sleep(0)
    assert "t.x" in world.broker.cluster.definitions.topics()  # the stream has not made it


async def test_a_stream_makes_and_deletes_its_topic(world: World) -> None:
    await world.declare(**{"x-max-length-bytes": 1000, "x-max-age": "1h"})
    topic = world.broker.cluster.definitions.topics()["s"]
    assert (topic.partitions, topic.config.retention_bytes, topic.config.retention_ms) == (1, 1000, 3_600_000)
    client = world.memory.client()
    client.ask(Basic.Qos(0, 5), Basic.QosOk)
    client.send(Basic.Consume(queue="s", consumer_tag="t"))
    await world.until(1, client)
    world.client.ask(Queue.Delete(queue="s"), Queue.DeleteOk)
    (cancelled,) = await world.until(1, client)
    assert isinstance(cancelled, Basic.Cancel)
    await holds(lambda: "s" not in world.broker.cluster.definitions.topics())


async def test_without_its_topic_a_stream_refuses(world: World) -> None:
    await world.declare()
    await world.broker.cluster.definitions.delete_topic("s")
    world.client.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
    world.client.publish("s", b"x")
    (answer,) = world.client.got()
    assert isinstance(answer, Basic.Nack)
    await world.declare()
    world.client.publish("s", b"x")
    (answer,) = world.client.got()
    assert isinstance(answer, Basic.Ack)
    assert world.client.session.output.depends or not world.client.got()


async def test_what_amq_topic_records_in_the_streams_topic_is_there_once(world: World) -> None:
    await world.declare()
    stream = world.memory.vhost.queues[b"s"]
    assert stream.log._recorded(run_of(b"x", exchange="amq.topic", key="s"))
    assert not stream.log._recorded(run_of(b"x", exchange="amq.topic", key="other"))


@pytest.mark.parametrize(
    ("code", "attempt"),
    [
        (406, lambda: Basic.Consume(queue="s", consumer_tag="t")),
        (540, lambda: Basic.Consume(queue="s", consumer_tag="t", no_ack=True)),
        (540, lambda: Basic.Get(queue="s")),
        (540, lambda: Queue.Purge(queue="s")),
        (540, lambda: Queue.Delete(queue="s", if_empty=True)),
        (540, lambda: Queue.Delete(queue="s", if_unused=True)),
        (406, lambda: Queue.Declare(queue="s", durable=True)),
        (
            406,
            lambda: Queue.Declare(
                queue="t", durable=True, auto_delete=True, arguments={"x-queue-type": "stream"}
            ),
        ),
    ],
)
async def test_what_streams_refuse(world: World, code: int, attempt: Callable[[], object]) -> None:
    await world.declare()
    world.client.send(attempt())  # type: ignore[arg-type]
    assert world.client.closed() == (1 if code == 406 else 0, code)


@pytest.mark.parametrize("how", [Basic.Nack(0, True), Basic.Reject(1), Basic.Recover(True)])
async def test_nothing_is_returned_to_a_stream(world: World, how: object) -> None:
    await world.declare()
    await world.fill(b"x")
    world.client.ask(Basic.Qos(0, 3), Basic.QosOk)
    world.client.send(Basic.Consume(queue="s", consumer_tag="t", arguments={"x-stream-offset": "first"}))
    await world.until(2)
    world.client.send(how)  # type: ignore[arg-type]
    assert world.client.closed() == (0, 540)


async def test_a_topic_with_partitions_is_no_stream(world: World) -> None:
    await world.broker.cluster.definitions.create_topic(NewTopic("s", 2))
    answer = await world.declare()
    assert isinstance(answer, Channel.Close)
    assert answer.reply_code == 406
    assert "has 2 partitions" in answer.reply_text


@pytest.mark.parametrize(
    "config",
    [{"max.message.bytes": "1000"}, {"segment.bytes": "1000"}, {"cleanup.policy": "compact"}],
    ids=["message", "segment", "compacted"],
)
async def test_what_a_topic_does_not_take_is_not_confirmed(world: World, config: dict[str, str]) -> None:
    """The home refuses what the log would refuse later, and so does the origin of a message on its way."""
    await world.broker.cluster.definitions.create_topic(NewTopic("s", 1, config))
    await world.declare()
    client = world.client
    client.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.publish("s", bytes(2000))
    (answer,) = client.got()
    assert isinstance(answer, Basic.Nack)
    log = world.memory.vhost.queues[b"s"].log
    two = message(b"\0\0", b"0") + message(b"\0\0", bytes(2000))
    assert log.refusals(Run(b"", b"s", two, 2, 2001)) == ([0, 1] if "cleanup.policy" in config else [1])
    assert log.refusals(run_of(b"0", exchange="amq.topic", key="s")) == []  # the bridge decides
    assert not log.full()
    if "cleanup.policy" not in config:
        await world.fill(b"fits")
        (ack,) = client.got()
        assert isinstance(ack, Basic.Ack)
