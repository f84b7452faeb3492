"""Fetch: bounds, the at-least-one rule, long polls, isolation, sessions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from treecast.middleware.broker import Broker, NewTopic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.shims.kafka import errors
from treecast.shims.kafka.server import KafkaFace

MakeBatch = Callable[..., bytes]


def fetch(
    *parts: tuple[int, int],
    topic: str = "topic",
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 10**6,
    partition_bytes: int = 10**6,
    **more: Any,
) -> dict[str, Any]:
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": partition_bytes}
        for index, offset in parts
    ]
    fields = {"max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "session_epoch": -1}
    return fields | {"topics": [{"topic": topic, "partitions": partitions}]} | more


def rows(answer: Any) -> list[Any]:
    return [row for topic in answer.responses for row in topic.partitions]


def sizes(answer: Any) -> list[int]:
    return [len(row.records or b"") for row in rows(answer)]


def fill(broker: Broker, partition: int, batches: Sequence[bytes]) -> None:
    for batch in batches:
        broker.cluster.partition("topic", partition).append(memoryview(bytearray(batch)), -1, None)


async def test_batches_come_back_as_they_were_sent(
    client: Any, broker: Broker, make_batch: MakeBatch
) -> None:
    sent = [make_batch(b"a", b"b"), make_batch(b"c")]
    fill(broker, 0, sent)
    (row,) = rows(await client.call("Fetch", 11, **fetch((0, 0))))
    assert (row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset) == (0, 3, 3, 0)
    records = bytes(row.records)
    assert records[61 : len(sent[0])] == sent[0][61:]
    assert records[8:12] == sent[0][8:12]
    assert [records[7], records[len(sent[0]) + 7]] == [0, 2]
    assert row.aborted_transactions is None


def by_id(topic_id: uuid.UUID, *parts: tuple[int, int], **more: Any) -> dict[str, Any]:
    fields = fetch(*parts, **more)
    (asked,) = fields["topics"]
    del asked["topic"]
    asked["topic_id"] = topic_id
    return fields


@pytest.mark.parametrize("version", [13, 17])
async def test_a_topic_is_named_by_its_id(
    client: Any, broker: Broker, make_batch: MakeBatch, version: int
) -> None:
    fill(broker, 0, [make_batch(b"a")])
    topic = broker.cluster.definitions.topics()["topic"]
    answer = await client.call("Fetch", version, **by_id(topic.topic_id, (0, 0), (9, 0)))
    (found,) = answer.responses
    assert found.topic_id == topic.topic_id
    assert [(row.error_code, bool(row.records)) for row in found.partitions] == [(0, True), (3, False)]
    for unknown in (uuid.uuid4(), uuid.UUID(int=0)):
        answer = await client.call("Fetch", version, **by_id(unknown, (0, 0)))
        assert (answer.responses[0].topic_id or uuid.UUID(int=0)) == unknown
        assert [row.error_code for row in rows(answer)] == [errors.UNKNOWN_TOPIC_ID]


async def test_another_topic_of_the_same_name_has_another_id(
    client: Any, broker: Broker, make_batch: MakeBatch
) -> None:
    """A fetch that waits for the old one does not read the new one."""
    definitions = broker.cluster.definitions
    before = definitions.topics()["topic"].topic_id
    client.send("Fetch", 13, **by_id(before, (0, 0), max_wait_ms=60_000))
    await definitions.delete_topic("topic")
    await definitions.create_topic(NewTopic("topic", 2))
    answer = await client.receive("Fetch", 13)
    assert [row.error_code for row in rows(answer)] == [errors.UNKNOWN_TOPIC_ID]
    fill(broker, 0, [make_batch(b"a")])
    for topic_id, expected in (
        (before, errors.UNKNOWN_TOPIC_ID),
        (definitions.topics()["topic"].topic_id, errors.NONE),
    ):
        (row,) = rows(await client.call("Fetch", 13, **by_id(topic_id, (0, 0))))
        assert row.error_code == expected


async def test_an_offset_inside_a_batch_gives_the_whole_batch(
    client: Any, broker: Broker, make_batch: MakeBatch
) -> None:
    batch = make_batch(b"a", b"b", b"c")
    fill(broker, 0, [batch])
    assert sizes(await client.call("Fetch", 4, **fetch((0, 2)))) == [len(batch)]


async def test_bounds_and_the_at_least_one_rule(client: Any, broker: Broker, make_batch: MakeBatch) -> None:
    batch = make_batch(b"x" * 1000)
    size = len(batch)
    fill(broker, 0, [batch] * 3)
    fill(broker, 1, [batch] * 3)
    assert sizes(await client.call("Fetch", 11, **fetch((0, 0), (1, 0), max_bytes=1))) == [size, 0]
    assert sizes(await client.call("Fetch", 11, **fetch((0, 3), (1, 0), max_bytes=1))) == [0, size]
    assert sizes(await client.call("Fetch", 11, **fetch((0, 0), (1, 0), partition_bytes=1))) == [size, 0]
    assert sizes(await client.call("Fetch", 11, **fetch((0, 0), (1, 0), max_bytes=3 * size))) == [3 * size, 0]
    assert sizes(await client.call("Fetch", 11, **fetch((0, 0), (1, 0), max_bytes=4 * size))) == [
        3 * size,
        size,
    ]
    assert (
        sizes(await client.call("Fetch", 11, **fetch((0, 0), (1, 0), partition_bytes=2 * size)))
        == [2 * size] * 2
    )


async def test_errors_are_told_per_partition_and_at_once(
    client: Any, broker: Broker, make_batch: MakeBatch
) -> None:
    fill(broker, 0, [make_batch(b"x")])
    wanted = fetch((0, 0), (0, 7), (5, 0), max_wait_ms=60_000, min_bytes=10**6)
    wanted["topics"][0]["partitions"].append(
        {"partition": 1, "fetch_offset": 0, "partition_max_bytes": 1, "current_leader_epoch": 99}
    )
    answer = await client.call("Fetch", 11, **wanted)
    assert [row.error_code for row in rows(answer)] == [
        0,
        errors.OFFSET_OUT_OF_RANGE,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.UNKNOWN_LEADER_EPOCH,
    ]


async def test_a_long_poll_ends_when_enough_has_come(
    client: Any, broker: Broker, make_batch: MakeBatch
) -> None:
    batch = make_batch(b"x" * 100)
    client.send("Fetch", 11, **fetch((0, 0), (1, 0), max_wait_ms=60_000, min_bytes=len(batch) + 1))
    fill(broker, 0, [batch])
    await client.nothing()
    fill(broker, 1, [batch])
    assert sizes(await client.receive("Fetch", 11)) == [len(batch)] * 2


async def test_a_long_poll_ends_when_its_time_is_over(
    client: Any, broker: Broker, make_batch: MakeBatch
) -> None:
    batch = make_batch(b"x")
    fill(broker, 0, [batch])
    answer = await client.call("Fetch", 11, **fetch((0, 0), max_wait_ms=5, min_bytes=10**6))
    assert sizes(answer) == [len(batch)]


async def test_a_long_poll_ends_when_its_partition_goes(client: Any, broker: Broker) -> None:
    client.send("Fetch", 11, **fetch((0, 0), max_wait_ms=60_000))
    await client.nothing()
    await broker.cluster.definitions.delete_topic("topic")
    answer = await client.receive("Fetch", 11)
    assert [row.error_code for row in rows(answer)] == [errors.UNKNOWN_TOPIC_OR_PARTITION]


async def test_many_polls_share_one_append(
    connect: Callable[[], Any], broker: Broker, make_batch: MakeBatch
) -> None:
    clients = [connect() for _ in range(20)]
    for one in clients:
        one.send("Fetch", 11, **fetch((0, 0), max_wait_ms=60_000))
    fill(broker, 0, [make_batch(b"x")])
    for one in clients:
        assert sizes(await one.receive("Fetch", 11))[0] > 0


async def test_a_lost_connection_watches_no_more(client: Any, broker: Broker) -> None:
    client.send("Fetch", 11, **fetch((0, 0), max_wait_ms=60_000))
    (pending,) = client.connection._pending
    client.transport.close()
    await asyncio.sleep(0)
    assert pending._wait is None


async def test_read_committed_stops_at_the_open_transaction(
    client: Any, broker: Broker, make_batch: MakeBatch
) -> None:
    call = client.call
    init = await call("InitProducerId", 4, transactional_id="tx", transaction_timeout_ms=60_000)
    producer = {"producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
    v3 = {f"v3_and_below_{name}": value for name, value in producer.items()}
    plain = make_batch(b"before")
    fill(broker, 0, [plain])
    await call(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id="tx",
        v3_and_below_topics=[{"name": "topic", "partitions": [0]}],
        **v3,
    )

    identity = ProducerIdentity(init.producer_id, init.producer_epoch)
    open_batch = make_batch(b"open", producer=identity, base_sequence=0, transactional=True)
    topics = [{"name": "topic", "partition_data": [{"index": 0, "records": open_batch}]}]
    answer = await call("Produce", 9, transactional_id="tx", acks=-1, timeout_ms=100, topic_data=topics)
    assert answer.responses[0].partition_responses[0].error_code == 0
    (row,) = rows(await call("Fetch", 11, **fetch((0, 0), isolation_level=1)))
    assert (len(row.records), row.last_stable_offset, row.high_watermark) == (len(plain), 1, 2)

    client.send("Fetch", 11, **fetch((0, 1), isolation_level=1, max_wait_ms=60_000))
    await client.nothing()
    other = type(client)(client.connection._face)
    ended = await other.call("EndTxn", 3, transactional_id="tx", committed=False, **producer)
    assert ended.error_code == 0
    (row,) = rows(await client.receive("Fetch", 11))
    assert [(a.producer_id, a.first_offset) for a in row.aborted_transactions] == [(identity.producer_id, 1)]
    assert row.last_stable_offset == row.high_watermark == 3


async def test_sessions_are_not_kept(client: Any) -> None:
    first = await client.call("Fetch", 11, **fetch((0, 0), session_epoch=0))
    assert (first.error_code, first.session_id, len(rows(first))) == (0, 0, 1)
    unknown = await client.call("Fetch", 11, **fetch((0, 0), session_id=5, session_epoch=1))
    assert (unknown.error_code, unknown.responses) == (errors.FETCH_SESSION_ID_NOT_FOUND, [])
    final = await client.call("Fetch", 11, **fetch((0, 0), session_id=5, session_epoch=-1))
    assert (final.error_code, len(rows(final))) == (0, 1)


async def test_an_unknown_isolation_is_refused(client: Any) -> None:
    answer = await client.call("Fetch", 11, **fetch((0, 0), isolation_level=2))
    assert [row.error_code for row in rows(answer)] == [errors.INVALID_REQUEST]


class FarLeader:
    """A leader on another host: every read waits."""

    here = True
    leader_epoch = 0

    def __init__(self, near: Any) -> None:
        self.near = near
        self.reads = 0

    def check_leader_epoch(self, current: int) -> None:
        pass

    def read(self, *args: Any, **named: Any) -> asyncio.Future[Any]:
        self.reads += 1
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(self._answer, found, args, named)
        return found

    def _answer(self, found: asyncio.Future[Any], args: Any, named: Any) -> None:
        if not found.done():
            found.set_result(self.near.read(*args, **named))

    def watch(self, *args: Any) -> None:
        self.near.watch(*args)

    def unwatch(self, *args: Any) -> None:
        self.near.unwatch(*args)


async def test_reads_that_wait(
    client: Any, broker: Broker, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = FarLeader(broker.cluster.partition("topic", 0))
    monkeypatch.setattr(broker.cluster, "partition", lambda topic, index: far)
    client.send("Fetch", 11, **fetch((0, 0), max_wait_ms=60_000))
    await client.nothing()
    far.near.append(memoryview(bytearray(make_batch(b"x"))), -1, None)
    assert sizes(await client.receive("Fetch", 11))[0] > 0
    assert far.reads == 2


async def test_a_broken_log_spoils_one_partition(
    client: Any, face: KafkaFace, broker: Broker, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 1, [make_batch(b"x")])
    broken = broker.cluster.partition("topic", 0)
    monkeypatch.setattr(type(broken), "read", spoiled(type(broken).read, broken))
    answer = await client.call("Fetch", 5, **fetch((0, 0), (1, 0)))
    assert [row.error_code for row in rows(answer)] == [errors.NOT_LEADER_OR_FOLLOWER, 0]


def spoiled(read: Any, broken: Any) -> Any:
    def maybe(self: Any, *args: Any, **named: Any) -> Any:
        if self is broken:
            raise TreecastError(Fault.STORAGE)
        return read(self, *args, **named)

    return maybe
