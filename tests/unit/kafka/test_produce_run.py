"""Produce requests in one chunk: joined into one write if possible, answered as if each had come alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.broker import Appended, Broker, Isolation, NewTopic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Record
from treecast.middleware.storage.disk import Disk
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.kafka import errors
from treecast.shims.kafka.handlers import produce as handler
from treecast.shims.kafka.server import KafkaFace

Connect = Callable[[], Any]
MakeBatch = Callable[..., bytes]


def produce(partition: int, records: bytes | None, acks: int = 1, topic: str = "topic") -> dict[str, Any]:
    part = {"index": partition, "records": records}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout_ms": 1000,
        "topic_data": [{"name": topic, "partition_data": [part]}],
    }


def row(answer: Any) -> tuple[int, int]:
    (found,) = [row for topic in answer.responses for row in topic.partition_responses]
    return found.error_code, found.base_offset


def stored(broker: Broker, partition: int) -> bytes:
    found = broker.cluster.partition("topic", partition).read(
        0, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True
    )
    assert not isinstance(found, asyncio.Future)
    return b"".join(map(bytes, found.chunks))


def together(client: Any, *requests: dict[str, Any], version: int = 9) -> None:
    client.feed(b"".join(client.request("Produce", version, **fields) for fields in requests))


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the sizes of the writes to logs."""
    sizes: list[int] = []
    write = Disk.write

    def counting(self: Disk, descriptor: int, data: Any, position: int) -> int:
        sizes.append(len(data))
        return write(self, descriptor, data, position)

    monkeypatch.setattr(Disk, "write", counting)
    return sizes


async def test_a_chunk_is_one_write(client: Any, make_batch: MakeBatch, broker: Broker, writes: Any) -> None:
    batches = [make_batch(*([b"x"] * count)) for count in (1, 3, 2)]
    writes.clear()
    together(client, *(produce(0, batch) for batch in batches))
    answers = [row(await client.receive("Produce", 9)) for _ in batches]
    assert answers == [(0, 0), (0, 1), (0, 4)]
    assert [size for size in writes if size >= 60] == [sum(map(len, batches))]
    again = [row(await client.call("Produce", 9, **produce(0, batch))) for batch in batches]
    assert again == [(0, 6), (0, 7), (0, 10)]


async def test_a_run_ends_where_its_room_does(
    client: Any, make_batch: MakeBatch, broker: Broker, writes: Any
) -> None:
    batch = make_batch(b"x" * 4000)
    count = handler.RUN_BYTES // len(batch) + 2
    writes.clear()
    together(client, *(produce(0, batch) for _ in range(count)))
    assert [row(await client.receive("Produce", 9)) for _ in range(count)] == [(0, n) for n in range(count)]
    assert max(writes) <= handler.RUN_BYTES
    assert len(stored(broker, 0)) == count * len(batch)


async def test_one_that_is_refused_leaves_the_others(
    client: Any, make_batch: MakeBatch, broker: Broker
) -> None:
    good = make_batch(b"x")
    broken = bytearray(good)
    broken[-1] ^= 1
    large = make_batch(b"y" * 6000)
    together(client, *(produce(0, records) for records in (good, bytes(broken), good, large, good)))
    answers = [row(await client.receive("Produce", 9)) for _ in range(5)]
    assert answers == [
        (0, 0),
        (errors.CORRUPT_MESSAGE, -1),
        (0, 1),
        (errors.MESSAGE_TOO_LARGE, -1),
        (0, 2),
    ]


async def test_a_full_disk_refuses_all_and_keeps_none(
    client: Any, make_batch: MakeBatch, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Disk, descriptor: int, data: Any, position: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "write", full)
        together(client, *(produce(0, make_batch(b"x")) for _ in range(3)))
        answers = [row(await client.receive("Produce", 9)) for _ in range(3)]
    assert answers == [(errors.KAFKA_STORAGE_ERROR, -1)] * 3
    assert row(await client.call("Produce", 9, **produce(0, make_batch(b"x")))) == (0, 0)


async def test_who_asks_in_the_same_chunk_finds_what_came_before(client: Any, make_batch: MakeBatch) -> None:
    offsets = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "topic", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }
    data = b"".join(
        client.request(api, version, **fields)
        for api, version, fields in (
            ("Produce", 9, produce(0, make_batch(b"x", b"y"))),
            ("ListOffsets", 5, offsets),
            ("Produce", 9, produce(0, make_batch(b"z"))),
        )
    )
    client.feed(data)
    assert row(await client.receive("Produce", 9)) == (0, 0)
    answer = await client.receive("ListOffsets", 5)
    assert answer.topics[0].partitions[0].offset == 2
    assert row(await client.receive("Produce", 9)) == (0, 2)


async def test_what_is_malformed_closes_after_the_answers_before_it(
    client: Any, make_batch: MakeBatch, broker: Broker, face: KafkaFace
) -> None:
    good = [client.request("Produce", 9, **produce(0, make_batch(b"x"))) for _ in range(2)]
    client.feed(b"".join(good) + b"\0\0\0\x0c" + b"\0\0\0\x09" + b"\xff" * 8 + good[0])
    assert [row(await client.receive("Produce", 9)) for _ in good] == [(0, 0), (0, 1)]
    assert client.transport.closed
    assert face.counters.protocol_errors
    assert len(stored(broker, 0)) == 2 * len(make_batch(b"x"))


class _Waiting:
    """A leader whose appends wait."""

    here = True

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[Appended]] = []
        self.sizes: list[int] = []

    def append(self, batches: memoryview, acks: int, tid: str | None) -> asyncio.Future[Appended]:
        self.sizes.append(len(batches))
        self.futures.append(asyncio.get_running_loop().create_future())
        return self.futures[-1]


@pytest.fixture
def waiting(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> _Waiting:
    leader = _Waiting()
    cluster = type(broker.cluster)
    monkeypatch.setattr(cluster, "partition", lambda self, topic, index: leader)
    return leader


async def test_all_wait_for_the_one_append(waiting: _Waiting, client: Any, make_batch: MakeBatch) -> None:
    batches = [make_batch(*([b"x"] * count)) for count in (2, 1)]
    together(client, *(produce(0, batch) for batch in batches))
    await client.nothing()
    assert waiting.sizes == [sum(map(len, batches))]
    waiting.futures[0].set_result(Appended(40, -1, 0))
    assert [row(await client.receive("Produce", 9)) for _ in batches] == [(0, 40), (0, 42)]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_all_are_told_that_it_failed(
    cancelled: bool, waiting: _Waiting, client: Any, make_batch: MakeBatch
) -> None:
    together(client, *(produce(0, make_batch(b"x")) for _ in range(2)))
    if cancelled:
        waiting.futures[0].cancel()
    else:
        waiting.futures[0].set_exception(TreecastError(Fault.STORAGE, "no"))
    expected = errors.NOT_LEADER_OR_FOLLOWER if cancelled else errors.KAFKA_STORAGE_ERROR
    assert [row(await client.receive("Produce", 9)) for _ in range(2)] == [(expected, -1)] * 2


async def test_a_client_that_leaves_while_they_wait(
    waiting: _Waiting, client: Any, make_batch: MakeBatch
) -> None:
    together(client, *(produce(0, make_batch(b"x")) for _ in range(2)))
    client.connection.connection_lost(None)
    waiting.futures[0].set_result(Appended(0, -1, 0))
    await client.nothing()


def idempotent(sequence: int, count: int = 1, producer_id: int = 5) -> bytes:
    records = [Record(b"k", b"v", (), 1_700_000_000_000)] * count
    producer = ProducerIdentity(producer_id, 0)
    return bytes(build_batch(records, producer=producer, base_sequence=sequence))


async def test_batches_of_one_idempotent_producer_are_one_write(
    client: Any, broker: Broker, writes: list[int]
) -> None:
    batches = [idempotent(sequence, count) for sequence, count in ((0, 1), (1, 3), (4, 1))]
    writes.clear()
    together(client, *(produce(0, batch) for batch in batches))
    assert [row(await client.receive("Produce", 9)) for _ in batches] == [(0, 0), (0, 1), (0, 4)]
    assert [size for size in writes if size >= 60] == [sum(map(len, batches))]
    assert row(await client.call("Produce", 9, **produce(0, batches[1]))) == (0, 1)  # a repeat
    assert len(stored(broker, 0)) == sum(map(len, batches))


async def test_idempotent_batches_that_come_again_are_answered_as_the_first_time(
    client: Any, broker: Broker
) -> None:
    batches = [idempotent(sequence) for sequence in range(3)]
    together(client, *(produce(0, batch) for batch in batches[:2]))
    together(client, *(produce(0, batch) for batch in batches))
    assert [row(await client.receive("Produce", 9))[1] for _ in range(5)] == [0, 1, 0, 1, 2]
    assert len(stored(broker, 0)) == 3 * len(batches[0])


async def test_idempotent_batches_go_to_another_host_one_by_one(waiting: _Waiting, client: Any) -> None:
    """The other host's answer comes too late to fall back to single batches."""
    batches = [idempotent(sequence) for sequence in range(2)]
    together(client, *(produce(0, batch) for batch in batches))
    assert waiting.sizes == list(map(len, batches))
    for offset, future in enumerate(waiting.futures):
        future.set_result(Appended(offset, -1, 0))
    assert [row(await client.receive("Produce", 9)) for _ in batches] == [(0, 0), (0, 1)]


def _drawn(rng: random.Random, make_batch: MakeBatch, sequences: dict[int, int]) -> dict[str, Any]:
    """Draws a request of any kind that Produce knows."""
    partition = int(rng.random() < 0.2)
    values = [b"v" * rng.randrange(40)] * rng.randrange(1, 4)
    records: bytes | None = make_batch(*values)
    kind = rng.random()
    if kind < 0.1:
        broken = bytearray(records or b"")
        broken[rng.randrange(17, len(broken))] ^= 1 << rng.randrange(8)
        records = bytes(broken)
    elif kind < 0.6:
        sequence = sequences[partition]
        if rng.random() < 0.1:
            sequence -= rng.randrange(-1, 3)  # a repeat, or one that is too early
        else:
            sequences[partition] += len(values)
        records = idempotent(max(sequence, 0), len(values), producer_id=5 + (rng.random() < 0.1))
    elif kind < 0.65:
        records = rng.choice([None, b"", b"short", (records or b"") * 2])
    return produce(partition, records, rng.choice([1, 1, 1, -1]))


@pytest.mark.parametrize("seed", range(12))
async def test_it_is_as_if_each_had_come_alone(
    seed: int, connect: Connect, make_batch: MakeBatch, broker: Broker
) -> None:
    """The same requests at once, and one by one on a fresh topic, give the same responses and logs."""
    rng = random.Random(seed)
    sequences = {0: 0, 1: 0}
    requests = [_drawn(rng, make_batch, sequences) for _ in range(40)]
    joined, alone = connect(), connect()
    together(joined, *requests)
    at_once = [row(await joined.receive("Produce", 9)) for _ in requests]
    bytes_at_once = [stored(broker, 0), stored(broker, 1)]
    await broker.cluster.definitions.delete_topic("topic")
    await _create(broker)
    one_by_one = [row(await alone.call("Produce", 9, **fields)) for fields in requests]
    assert at_once == one_by_one
    assert bytes_at_once == [stored(broker, 0), stored(broker, 1)]


async def _create(broker: Broker) -> None:
    await broker.cluster.definitions.create_topic(NewTopic("topic", 2, {"max.message.bytes": "5000"}))
