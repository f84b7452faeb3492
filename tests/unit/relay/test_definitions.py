"""A joined host's topics: calls to a coordinator in this process, and the updates of the partitions."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from tests.unit.relay.world import until

from treecast.middleware.api.attachment import Attachment
from treecast.middleware.api.discovery import Address
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker.settings import BrokerSettings
from treecast.middleware.broker.values import ConfigChange, ConfigOperation, NewTopic, Topic
from treecast.middleware.control.server import LocalCoordinator, OpenCoordinator, ServerSettings
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.coordinator_link import CoordinatorLink
from treecast.middleware.relay.definitions import RelayDefinitions
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.relay.view_store import ViewStore
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE


class Led:
    """Records the calls to the partitions; `refuse` makes the next `apply` fail."""

    def __init__(self) -> None:
        self.open_: dict[str, set[int]] = {}
        self.told: list[tuple[str, str]] = []
        self.refuse = False
        self.pause: asyncio.Event | None = None

    def open(self, topic: Topic, led: Mapping[int, int]) -> None:
        self.told.append(("open", topic.name))
        self.open_[topic.name] = set(led)

    async def apply(self, topic: Topic, led: Mapping[int, int]) -> None:
        if self.pause is not None:
            await self.pause.wait()
        if self.refuse:
            self.refuse = False
            raise TreecastError(Fault.STORAGE, "full")
        self.told.append(("apply", topic.name))
        self.open_[topic.name] = set(led)

    def remove(self, topic: Topic) -> None:
        self.told.append(("remove", topic.name))
        del self.open_[topic.name]

    def put_aside(self, topic: Topic) -> None:
        self.told.append(("put aside", topic.name))
        del self.open_[topic.name]


class House:
    """One host with a coordinator; `attach` makes others."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.led = Led()
        self.forgotten: list[str] = []
        self.counters = RelayCounters()

    async def open(self) -> None:
        settings = ServerSettings(
            Address("127.0.0.1", 0), self.path / "coordinator.db", None, fsync=FsyncPolicy.NEVER
        )
        self.coordinator = OpenCoordinator(settings, time.monotonic)
        self.tables = Tables(self.path / "tables", FsyncPolicy.NEVER)
        self.client = LocalCoordinator(self.coordinator, random.Random(1))
        attachment = Attachment(self.client, hello("here"))
        self.host_id = (await attachment.attach()).session.host_id
        self.link = CoordinatorLink(self.client, attachment, ClusterView(), self.counters)
        self.link.load(ViewStore(self.tables))
        settings_ = BrokerSettings(self.path, default_partitions=2, topic_defaults={"retention.ms": "9"})
        self.definitions = RelayDefinitions(settings_, self.host_id, self.link, self.led, self._forget)
        await self.definitions.start()
        attachment.start()
        self.link.start()
        await self.link.first_seen(10)
        await self.definitions.settled()

    async def _forget(self, name: str) -> None:
        self.forgotten.append(name)

    async def close(self) -> None:
        await self.definitions.close()
        await self.link.close(detach=True)
        await self.coordinator.close()
        self.tables.close()

    async def reopen(self) -> None:
        await self.close()
        self.led = Led()
        await self.open()


def hello(name: str) -> pb.AttachRequest:
    return pb.AttachRequest(name=name, instance=name, address="h:1", version="1")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    await made.open()
    yield made
    await made.close()


async def refusal(awaitable) -> Fault:
    with pytest.raises(TreecastError) as refused:
        await awaitable
    return refused.value.fault


async def test_what_is_answered_is_there(house: House) -> None:
    made = await house.definitions.create_topic(NewTopic("t", config={"max.message.bytes": "7"}))
    assert (made.partitions, made.config.max_message_bytes, made.config.retention_ms) == (2, 7, 9)
    assert house.definitions.topics() == {"t": made}
    assert house.definitions.topic_by_id(made.topic_id) == made
    assert house.led.open_ == {"t": {0, 1}}
    grown = await house.definitions.create_partitions("t", 3)
    assert (grown.partitions, house.led.open_["t"]) == (3, {0, 1, 2})
    changes = [ConfigChange("max.message.bytes", DELETE, None), ConfigChange("retention.ms", SET, "5")]
    altered = await house.definitions.alter_topic("t", changes)
    assert altered.config.overrides == {"retention.ms": "5"}
    assert house.definitions.topics()["t"] == altered
    gone = await house.definitions.delete_topic("t")
    assert gone == altered
    assert (house.definitions.topics(), house.led.open_, house.forgotten) == ({}, {}, ["t"])
    assert await refusal(coroutine(house.definitions.topic_by_id, made.topic_id)) is Fault.UNKNOWN_TOPIC_ID


async def coroutine(function, *arguments):
    return function(*arguments)


async def test_kafkas_refusals(house: House) -> None:
    definitions = house.definitions
    await definitions.create_topic(NewTopic("t", 2))
    change = ConfigChange("retention.ms", SET, "x")
    for awaitable, fault in (
        (definitions.create_topic(NewTopic("t")), Fault.TOPIC_EXISTS),
        (definitions.create_topic(NewTopic("a b")), Fault.INVALID_TOPIC),
        (definitions.create_topic(NewTopic("u", 0)), Fault.INVALID_PARTITIONS),
        (definitions.create_topic(NewTopic("u", config={"x": "1"})), Fault.INVALID_CONFIG),
        (definitions.create_topic(NewTopic("u", leaders=("nobody",))), Fault.INVALID_ASSIGNMENT),
        (definitions.create_partitions("t", 2), Fault.INVALID_PARTITIONS),
        (definitions.create_partitions("u", 2), Fault.UNKNOWN_TOPIC),
        (definitions.alter_topic("t", [change]), Fault.INVALID_CONFIG),
        (definitions.alter_topic("u", []), Fault.UNKNOWN_TOPIC),
        (definitions.delete_topic("u"), Fault.UNKNOWN_TOPIC),
    ):
        assert await refusal(awaitable) is fault
    assert definitions.topics().keys() == {"t"}


async def test_validating_changes_nothing(house: House) -> None:
    definitions = house.definitions
    before = await definitions.create_topic(NewTopic("t", 1))
    assert (await definitions.create_topic(NewTopic("u", 5), validate_only=True)).partitions == 5
    assert (await definitions.create_partitions("t", 5, validate_only=True)).partitions == 5
    changes = [ConfigChange("retention.ms", SET, "5")]
    assert (await definitions.alter_topic("t", changes, validate_only=True)).config.retention_ms == 5
    assert definitions.topics() == {"t": before}


async def test_only_what_is_led_here_is_opened(house: House) -> None:
    await house.client.attach(hello("there"))
    await house.definitions.create_topic(NewTopic("t", 3, leaders=("there", "here", "there")))
    await house.definitions.create_topic(NewTopic("u", 1, leaders=("there",)))
    assert house.led.open_ == {"t": {1}, "u": set()}
    await house.client.create_topic(pb.CreateTopicEntryRequest(name="v", partitions=1, pinned=["here"]))
    await house.link.seen(house.coordinator.coordinator.stored.revision)
    await house.definitions.settled()
    assert house.led.open_["v"] == {0}


async def test_a_start_opens_what_was_known_and_follows_what_came_since(house: House) -> None:
    kept = await house.definitions.create_topic(NewTopic("t", 1))
    await house.definitions.create_topic(NewTopic("gone", 1))
    await house.definitions.close()
    await house.link.close(detach=False)
    await house.client.delete_topic("gone")
    await house.client.attach(hello("here"))
    await house.client.create_topic(pb.CreateTopicEntryRequest(name="new", partitions=1))
    await house.coordinator.close()
    house.tables.close()
    house.led = Led()
    await house.open()
    await house.link.seen(house.coordinator.coordinator.stored.revision)
    await house.definitions.settled()
    assert house.led.told[:2] == [("open", "gone"), ("open", "t")]
    assert sorted(house.led.told[2:]) == [("apply", "new"), ("remove", "gone")]
    assert house.definitions.topics()["t"] == kept
    assert house.forgotten == ["gone"]


async def test_a_coordinator_that_lost_a_topic_deletes_nothing(house: House) -> None:
    for name in ("kept", "t"):
        await house.definitions.create_topic(NewTopic(name, 1))
    await house.close()
    store = sqlite3.connect(house.path / "coordinator.db")
    with store:
        store.execute("UPDATE meta SET value = 'another' WHERE name = 'history'")
        store.execute("DELETE FROM entries WHERE key = 't'")
    store.close()
    house.led = Led()
    await house.open()
    await house.link.fetch()
    await house.definitions.settled()
    assert sorted(house.led.told[:2]) == [("open", "kept"), ("open", "t")]
    assert house.led.told[2:] == [("put aside", "t")]
    assert house.forgotten == []


async def test_a_coordinator_that_was_begun_anew_is_not_believed(house: House) -> None:
    await house.definitions.create_topic(NewTopic("t", 1))
    await house.close()
    for path in house.path.glob("coordinator.db*"):
        path.unlink()
    house.led = Led()
    await house.open()
    assert await refusal(house.link.fetch()) is Fault.POLICY_VIOLATION
    await until(lambda: house.link.refused is not None)
    assert "its store is lost" in str(house.link.refused)
    assert house.led.told == [("open", "t")]
    assert house.definitions.topics().keys() == {"t"}
    await house.definitions.close()
    house.link.load(ViewStore(house.tables))  # the stored view is the known one
    assert house.link.view.topic("t") is not None


async def test_a_name_that_is_used_again_at_once(house: House) -> None:
    first = await house.definitions.create_topic(NewTopic("t", 1))
    house.led.pause = asyncio.Event()
    await house.client.delete_topic("t")
    await house.client.create_topic(pb.CreateTopicEntryRequest(name="t", partitions=1))
    house.led.pause.set()
    await house.link.seen(house.coordinator.coordinator.stored.revision)
    await house.definitions.settled()
    assert house.led.told == [("apply", "t"), ("remove", "t"), ("apply", "t")]
    assert house.definitions.topics()["t"].topic_id != first.topic_id


async def test_a_disk_that_refuses_one_topic_leaves_the_others(house: House) -> None:
    house.led.refuse = True
    await house.definitions.create_topic(NewTopic("t", 1))
    await house.definitions.create_topic(NewTopic("u", 1))
    assert house.led.open_ == {"u": {0}}


async def test_a_topic_that_is_brought_along_keeps_its_id(house: House) -> None:
    mine, other = uuid.uuid4(), uuid.uuid4()

    def brought(name: str, topic_id: uuid.UUID) -> pb.CreateTopicEntryRequest:
        return pb.CreateTopicEntryRequest(
            name=name, partitions=2, pinned=["here"], topic_id=topic_id.bytes, config={"retention.ms": "3"}
        )

    for _ in range(2):  # a repeat is allowed
        answer = await house.client.create_topic(brought("t", mine))
        assert answer.topic.topic_id == mine.bytes
    assert await refusal(house.client.create_topic(brought("t", other))) is Fault.TOPIC_EXISTS
    assert await refusal(house.client.create_topic(brought("u", mine))) is Fault.INVALID_REQUEST
    short = pb.CreateTopicEntryRequest(name="v", partitions=1, topic_id=b"short")
    assert await refusal(house.client.create_topic(short)) is Fault.INVALID_REQUEST
    await house.link.seen(answer.revision)
    await house.definitions.settled()
    assert house.definitions.topics()["t"].topic_id == mine


async def test_ids_of_producers_begin_above_what_was_given_out(house: House) -> None:
    session = house.link.session
    assert (await house.client.producer_ids(session, 5, at_least=100)) == range(100, 105)
    assert (await house.client.producer_ids(session, 5, at_least=50)) == range(105, 110)
