"""`broker.Cluster` at three hosts: one alone, the first of two joined hosts, and the second.

Real daemons without faces, in this process; each test runs against all three.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from treecast.middleware.broker import (
    GROUPS,
    LATEST_TIMESTAMP,
    TRANSACTIONS,
    Broker,
    Cluster,
    CommittedOffset,
    GroupHome,
    InitProducer,
    Isolation,
    JoinGroup,
    MemberIdentity,
    NewTopic,
    PartitionLeader,
    SyncGroup,
    TransactionHome,
)
from treecast.middleware.broker.cluster import KINDS
from treecast.middleware.broker.pubsub import Message, Subscriber, Subscription, Target, Waiter
from treecast.middleware.daemon.daemon import Daemon
from treecast.middleware.daemon.settings import Settings
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records

PATIENCE = 60.0
OFF = {"kafka": "off", "amqp": "off", "mqtt": "off", "stare": "off", "admin": "off"}
PARTITIONS = 4
PROTOCOLS = {GROUPS: GroupHome, TRANSACTIONS: TransactionHome}
T = TypeVar("T")


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def now_or_later(found: T | Future[T]) -> T:
    return await found if isinstance(found, Future) else found


async def up(folder: Path, name: str, fabric: str, **more: str) -> Daemon:
    given = {**OFF, "control": "127.0.0.1:0", "fabric": fabric, **more}
    daemon = Daemon(
        Settings(name=name, data=str(folder / name), runtime_dir=str(folder / f"run-{name}"), **given), {}
    )
    await daemon.start()
    return daemon


@pytest.fixture(params=["alone", "first of two", "second of two"])
async def broker(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Broker]:
    """The broker under test."""
    fabric = "off" if request.param == "alone" else "127.0.0.1:0"
    daemons = [await up(tmp_path, "a", fabric)]
    if request.param != "alone":
        join = daemons[0].listeners["control"].address
        token = f"@{tmp_path / 'a' / 'join-token'}"
        daemons.append(await up(tmp_path, "b", fabric, join=join, join_token=token))
    found = daemons[-1 if request.param == "second of two" else 0]._broker
    assert found is not None
    yield found
    for daemon in reversed(daemons):
        await daemon.close(1.0)


@pytest.fixture
def cluster(broker: Broker) -> Cluster:
    return broker.cluster


async def made(cluster: Cluster, name: str) -> None:
    """Creates a topic; returns when every leader knows it. Until then leaders refuse, and clients retry."""
    await cluster.definitions.create_topic(NewTopic(name, PARTITIONS))
    async with asyncio.timeout(PATIENCE):
        for index in range(PARTITIONS):
            while not await leads(cluster, name, index):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def leads(cluster: Cluster, name: str, index: int) -> bool:
    try:
        await now_or_later(
            cluster.partition(name, index).offset_for_time(LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED)
        )
    except TreecastError as error:
        if error.fault is not Fault.LEADER_UNAVAILABLE:
            raise
        return False
    return True


def batch(
    *values: bytes, producer: ProducerIdentity | None = None, transactional: bool = False
) -> memoryview:
    records = [Record(None, value) for value in values]
    if producer is None:
        return memoryview(bytearray(build_batch(records)))
    made = build_batch(records, producer=producer, base_sequence=0, transactional=transactional)
    return memoryview(bytearray(made))


async def append(cluster: Cluster, topic: str, index: int, *values: bytes) -> int:
    appended = await now_or_later(cluster.partition(topic, index).append(batch(*values), -1, None))
    return appended.base_offset


async def read(leader: PartitionLeader, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> list[bytes]:
    found = await now_or_later(leader.read(0, 1 << 20, isolation, at_least_one=True))
    data = b"".join(map(in_memory, found.chunks))
    values, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        if not header.control:
            values += [record.value or b"" for record in read_records(data, position, header)]
        position += header.size
    return values


async def test_topics_are_made_found_and_deleted(cluster: Cluster) -> None:
    told: list[str] = []
    definitions = cluster.definitions
    topic = await definitions.create_topic(NewTopic("t", PARTITIONS))
    assert (
        definitions.topics()["t"].topic_id
        == topic.topic_id
        == definitions.topic_by_id(topic.topic_id).topic_id
    )
    with pytest.raises(TreecastError) as refused:
        await definitions.create_topic(NewTopic("t", 1))
    assert refused.value.fault is Fault.TOPIC_EXISTS
    revision = definitions.revision
    definitions.listen(told.append)
    await definitions.create_partitions("t", PARTITIONS + 1)
    assert definitions.topics()["t"].partitions == PARTITIONS + 1
    await definitions.delete_topic("t")
    assert "t" not in definitions.topics()
    assert definitions.revision > revision
    assert told == ["t", "t"]
    with pytest.raises(TreecastError) as gone:
        cluster.partition("t", 0)
    assert gone.value.fault is Fault.UNKNOWN_TOPIC


async def test_every_partition_takes_and_gives_records(cluster: Cluster) -> None:
    await made(cluster, "t")
    for index in range(PARTITIONS):
        leader = cluster.partition("t", index)
        for number in range(3):
            assert await append(cluster, "t", index, b"%d" % number, b"more") == 2 * number
        assert await read(leader) == [b"0", b"more", b"1", b"more", b"2", b"more"]
        end = await now_or_later(leader.offset_for_time(LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED))
        assert end.offset == 6


async def test_producers_differ_and_what_they_repeat_is_stored_once(cluster: Cluster) -> None:
    await made(cluster, "t")
    producers = [await cluster.new_producer() for _ in range(3)]
    assert len({producer.producer_id for producer in producers}) == 3
    leader = cluster.partition("t", 0)
    for _ in range(2):
        appended = await now_or_later(leader.append(batch(b"x", producer=producers[0]), -1, None))
        assert appended.base_offset == 0
    assert await read(leader) == [b"x"]


async def test_every_kind_of_home_has_an_owner(cluster: Cluster) -> None:
    for kind in KINDS:
        home = cluster.home(kind, "x")
        wanted = {name for name in vars(PROTOCOLS[kind]) if not name.startswith("_")}
        assert wanted
        assert wanted <= set(dir(home))


async def test_a_group_has_a_home_that_keeps_its_offsets(cluster: Cluster) -> None:
    await made(cluster, "t")
    home, place = cluster.home(GROUPS, "g"), TopicPartition("t", 1)
    joined = await home.join(
        JoinGroup("g", "", None, "c", "here", 10_000, 10_000, "consumer", (("range", b""),), False)
    )
    member = MemberIdentity(joined.member_id, None, joined.generation)
    synced = await home.sync(
        SyncGroup("g", joined.generation, joined.member_id, None, None, None, ((joined.member_id, b"all"),))
    )
    assert synced.assignment == b"all"
    await home.heartbeat("g", member)
    assert await home.commit_offsets("g", member, {place: CommittedOffset(7)}) == {}
    found = await home.fetch_offsets("g", [place], require_stable=True)
    offset = found[place]
    assert isinstance(offset, CommittedOffset)
    assert offset.offset == 7
    assert [group.group_id for group in await cluster.list_groups()] == ["g"]
    assert await home.leave("g", [member]) == [None]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_transaction_over_all_partitions_is_decided_once(cluster: Cluster, committed: bool) -> None:
    await made(cluster, "t")
    home = cluster.home(TRANSACTIONS, "x")
    producer = await home.init_producer(InitProducer("x", 60_000))
    places = [TopicPartition("t", index) for index in range(PARTITIONS)]
    assert await home.add_partitions("x", producer, places) == {}
    for index in range(PARTITIONS):
        part = batch(b"x", producer=producer, transactional=True)
        await now_or_later(cluster.partition("t", index).append(part, -1, "x"))
    await home.end("x", producer, committed=committed)
    for index in range(PARTITIONS):
        leader = cluster.partition("t", index)
        end = await now_or_later(leader.offset_for_time(LATEST_TIMESTAMP, Isolation.READ_COMMITTED))
        assert end.offset == 2  # the record and its marker
        found = await now_or_later(leader.read(0, 1 << 20, Isolation.READ_COMMITTED, at_least_one=True))
        assert bool(found.aborted) is not committed
    assert [one.transactional_id for one in await cluster.list_transactions()] == ["x"]


# --- events


class Reader(Subscriber):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.pubsub.hub.routes.next_serial())
        self.got: list[bytes] = []

    def take(self, message: Message, target: Target) -> None:
        self.got.append(message.payload)


class Confirmed(Waiter):
    def __init__(self, done: Future[None]) -> None:
        self.done = done

    def confirmed(self) -> None:
        self.done.set_result(None)


async def confirmed(ask: Callable[[Waiter], bool]) -> None:
    done: Future[None] = asyncio.get_running_loop().create_future()
    if not ask(Confirmed(done)):
        async with asyncio.timeout(PATIENCE):
            await done


def publish(broker: Broker, topic: bytes, payload: bytes, *, retain: bool = False) -> None:
    hub, message = broker.pubsub.hub, Message(topic, payload, 1, retain)
    if retain:
        hub.retain(message)
    hub.publish(message, hub.routes.targets(topic), None)


async def test_a_subscription_is_confirmed_and_gets_what_is_published_then(broker: Broker) -> None:
    hub, events, reader = broker.pubsub.hub, broker.cluster.events, Reader(broker)
    assert hub.reach is events
    hub.subscribe(Subscription(reader, b"a/+", 1))
    await confirmed(events.known)
    publish(broker, b"a/b", b"x")
    assert reader.got == [b"x"]
    assert hub.unsubscribe(reader, b"a/+")
    await confirmed(events.known)
    publish(broker, b"a/b", b"y")
    assert reader.got == [b"x"]


async def test_what_is_retained_is_collected(broker: Broker) -> None:
    hub, events = broker.pubsub.hub, broker.cluster.events
    publish(broker, b"a/b", b"x", retain=True)
    await confirmed(lambda waiter: events.collect([b"a/+"], waiter))
    (kept,) = hub.retained.match(b"a/+", hub.clock.wall)
    assert (kept.payload, kept.stamp & 0xFFFFFFFF) == (b"x", events.host)
    publish(broker, b"a/b", b"", retain=True)
    assert hub.retained.match(b"a/+", hub.clock.wall) == []
    assert hub.retained.tombstones == events.buries


async def test_of_a_shared_subscription_each_message_goes_to_one_member(broker: Broker) -> None:
    hub, events = broker.pubsub.hub, broker.cluster.events
    readers = [Reader(broker) for _ in range(2)]
    for reader in readers:
        hub.shares.subscribe(b"g", Subscription(reader, b"s", 1))
    await confirmed(events.known)
    for number in range(10):
        publish(broker, b"s", b"%d" % number)
    await until(lambda: sum(len(reader.got) for reader in readers) == 10)
    assert all(reader.got for reader in readers)
    for reader in readers:
        assert hub.shares.unsubscribe(b"g", reader, b"s")
    assert [wish.filter for wish in hub.wishes] == []
