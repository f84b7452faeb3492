"""A broker's publish/subscribe without a face: published messages are kept, recorded and delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from treecast.middleware.broker import Broker, BrokerSettings, NewTopic
from treecast.middleware.broker.pubsub import Message, Subscriber, Subscription, Target, Waiter
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host
from treecast.middleware.model.records import Record
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records

PATIENCE = 30.0


class Reader(Subscriber):
    def __init__(self, broker: Broker, filter: bytes) -> None:
        super().__init__(broker.pubsub.hub.routes.next_serial())
        self.got: list[bytes] = []
        broker.pubsub.hub.subscribe(Subscription(self, filter, 1))

    def take(self, message: Message, target: Target) -> None:
        self.got.append(message.payload)


class Known(Waiter):
    def confirmed(self) -> None: ...


class Answers:
    """Counts the turns that were stored, and those that were refused. Implements `broker.Speaker`."""

    def __init__(self) -> None:
        self.said = 0
        self.refused = 0

    def gather(self) -> None: ...

    def say(self) -> None:
        self.said += 1

    def refuse(self) -> None:
        self.refused += 1


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def opened(folder: Path, fsync: FsyncPolicy) -> Broker:
    broker = Broker(BrokerSettings(folder, fsync=fsync), Host(1, "h"), Counters())
    await broker.start()
    return broker


@pytest.fixture(params=list(FsyncPolicy))
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    made = await opened(tmp_path, request.param)
    yield made
    await made.close()


def publish(broker: Broker, topic: bytes, payload: bytes, *, retain: bool = False) -> None:
    hub = broker.pubsub.hub
    message = Message(topic, payload, 1, retain)
    if retain:
        hub.retain(message)
    hub.publish(message, hub.routes.targets(topic), None)
    broker.pubsub.turn.ask()


async def test_a_topic_that_kafka_has_is_one_without_a_face(broker: Broker) -> None:
    await broker.cluster.definitions.create_topic(NewTopic("a.b", 1))
    await broker.begin_events()
    reader = Reader(broker, b"a/+")
    recorder = broker.pubsub.hub.routes.recorder
    assert recorder is not None
    await until(lambda: recorder.known(Known()))  # SUBACK waits for this
    partition = broker.cluster.partition("a.b", 0)
    batch = bytearray(build_batch([Record(None, b"of Kafka")]))
    partition.append(memoryview(batch), 0, None)
    await until(lambda: reader.got == [b"of Kafka"])
    publish(broker, b"a/b", b"of the hub")
    await until(lambda: reader.got == [b"of Kafka", b"of the hub"])
    log = broker.cluster.partition("a.b", 0)
    assert log.size > len(batch)
    assert [one.value for one in read_records(batch, 0, read_header(batch, 0))] == [b"of Kafka"]


async def test_an_answer_follows_what_is_stored(broker: Broker) -> None:
    await broker.begin_events()
    answers = Answers()
    broker.pubsub.turn.add_speaker(answers)
    publish(broker, b"t", b"x", retain=True)
    await until(lambda: answers.said)
    assert not answers.refused
    assert broker.pubsub.journal.size
    broker.pubsub.turn.remove_speaker(answers)


async def test_what_is_retained_outlives_the_broker(tmp_path: Path) -> None:
    for fsync in FsyncPolicy:
        broker = await opened(tmp_path / fsync.value, fsync)
        await broker.begin_events()
        publish(broker, b"t", b"x", retain=True)
        await broker.close()
        broker = await opened(tmp_path / fsync.value, fsync)
        assert [one.payload for one in broker.pubsub.hub.retained.all()] == [b"x"]
        await broker.close()


async def test_a_broker_that_never_began_events_closes(tmp_path: Path) -> None:
    broker = await opened(tmp_path, FsyncPolicy.BATCH)
    publish(broker, b"t", b"x", retain=True)
    await broker.close()
    broker = await opened(tmp_path, FsyncPolicy.BATCH)
    assert broker.pubsub.hub.retained.count == 1
    await broker.close()
