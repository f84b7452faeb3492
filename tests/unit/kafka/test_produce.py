"""Produce: appends, refusals, and requests that wait."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from treecast.middleware.broker import Appended, Broker, Cluster, Isolation, NewTopic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.kafka import errors
from treecast.shims.kafka.dispatch import KnownLeaders
from treecast.shims.kafka.server import KafkaFace

MakeBatch = Callable[..., bytes]


def produce(*parts: tuple[str, int, bytes | None], acks: int = -1, timeout_ms: int = 1000) -> dict[str, Any]:
    topics = [
        {"name": name, "partition_data": [{"index": index, "records": records}]}
        for name, index, records in parts
    ]
    return {"acks": acks, "timeout_ms": timeout_ms, "topic_data": topics}


def rows(answer: Any) -> list[Any]:
    return [row for topic in answer.responses for row in topic.partition_responses]


def end_offset(broker: Broker, topic: str = "topic", partition: int = 0) -> int:
    found = broker.cluster.partition(topic, partition).read(
        0, 0, Isolation.READ_UNCOMMITTED, at_least_one=False
    )
    assert not isinstance(found, asyncio.Future)
    return found.high_watermark


async def test_offsets_count_up(client: Any, make_batch: MakeBatch, broker: Broker) -> None:
    for expected in (0, 3, 6):
        answer = await client.call("Produce", 9, **produce(("topic", 0, make_batch(b"a", b"b", b"c"))))
        (row,) = rows(answer)
        assert (row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset) == (
            0,
            expected,
            -1,
            0,
        )
    assert end_offset(broker) == 9


async def test_each_partition_has_its_own_answer(client: Any, make_batch: MakeBatch, broker: Broker) -> None:
    definitions = broker.cluster.definitions
    await definitions.create_topic(NewTopic("compacted", 1, {"cleanup.policy": "compact"}))
    await definitions.create_topic(NewTopic("wide", 6, {"max.message.bytes": "5000"}))
    good = make_batch(b"x")
    broken = bytearray(good)
    broken[-1] ^= 1
    elsewhere = (5).to_bytes(8, "big") + good[8:]  # a base offset, which the CRC does not cover
    keyless = bytes(build_batch([Record(None, b"x")]))
    answer = await client.call(
        "Produce",
        8,
        **produce(
            ("topic", 0, good),
            ("topic", 1, bytes(broken)),
            ("missing", 0, good),
            ("topic", 9, good),
            ("wide", 0, None),
            ("wide", 1, make_batch(b"y" * 6000)),
            ("wide", 2, b"short"),
            ("wide", 3, good[:-1]),
            ("wide", 4, elsewhere),
            ("compacted", 0, keyless),
            ("wide", 5, good),
        ),
    )
    assert [row.error_code for row in rows(answer)] == [
        0,
        errors.CORRUPT_MESSAGE,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.INVALID_RECORD,
        errors.MESSAGE_TOO_LARGE,
        errors.INVALID_RECORD,
        errors.INVALID_RECORD,
        errors.INVALID_RECORD,
        errors.INVALID_RECORD,
        0,
    ]
    assert all(row.error_message for row in rows(answer) if row.error_code)
    assert end_offset(broker) == 1


async def test_a_partition_that_is_named_twice_is_refused(
    client: Any, make_batch: MakeBatch, broker: Broker
) -> None:
    good = make_batch(b"x")
    answer = await client.call(
        "Produce", 9, **produce(("topic", 0, good), ("topic", 1, good), ("topic", 0, good))
    )
    assert [row.error_code for row in rows(answer)] == [errors.INVALID_REQUEST, 0, errors.INVALID_REQUEST]
    assert (end_offset(broker), end_offset(broker, partition=1)) == (0, 1)


@pytest.fixture
def no_time(broker: Broker) -> None:
    """Any work is more than a pass of the loop has room for."""
    broker.work._seconds = broker.work._grace = -1.0


@pytest.mark.parametrize("acks", [-1, 0])
@pytest.mark.usefixtures("no_time")
async def test_a_request_for_many_partitions_takes_several_passes_in_order(
    client: Any, make_batch: MakeBatch, broker: Broker, acks: int
) -> None:
    await broker.cluster.definitions.create_topic(NewTopic("wide", 50))
    parts = [("wide", index, make_batch(b"x")) for index in range(50)]
    parts[7] = ("wide", 7, b"short")
    client.send("Produce", 9, **produce(*parts, acks=acks))
    assert end_offset(broker, "wide", 48) == 0
    client.send("Produce", 9, **produce(("wide", 49, make_batch(b"y"))))
    if acks:
        answer = await client.receive("Produce", 9)
        codes = [errors.NONE] * 50
        codes[7] = errors.INVALID_RECORD
        assert [row.error_code for row in rows(answer)] == codes
        (row,) = rows(await client.receive("Produce", 9))
        assert row.base_offset == 1
    else:
        for _ in range(120):
            await asyncio.sleep(0)
        assert client.transport.closed  # an error, and no other way to tell
    assert [end_offset(broker, "wide", index) for index in (0, 7, 48)] == [1, 0, 1]


@pytest.mark.parametrize("acks", [2, -2, 7])
async def test_unknown_acks_are_refused(
    acks: int, client: Any, make_batch: MakeBatch, broker: Broker
) -> None:
    answer = await client.call("Produce", 9, **produce(("topic", 0, make_batch(b"x")), acks=acks))
    assert [row.error_code for row in rows(answer)] == [errors.INVALID_REQUIRED_ACKS]
    assert end_offset(broker) == 0


async def test_without_acks_there_is_no_answer(client: Any, make_batch: MakeBatch, broker: Broker) -> None:
    client.send("Produce", 9, **produce(("topic", 0, make_batch(b"x")), acks=0))
    await client.nothing()
    assert end_offset(broker) == 1
    client._received += 1
    answer = await client.call("Produce", 9, **produce(("topic", 0, make_batch(b"y"))))
    assert rows(answer)[0].base_offset == 1


async def test_without_acks_an_error_closes(client: Any, make_batch: MakeBatch, face: KafkaFace) -> None:
    client.send("Produce", 9, **produce(("missing", 0, make_batch(b"x")), acks=0))
    assert client.transport.closed
    assert face.counters.protocol_errors == {"produce with acks=0 refused": 1}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_old_formats_are_refused_in_their_own_shape(version: int, client: Any) -> None:
    body = struct.pack(">hii", 1, 1000, 1) + struct.pack(">h5si", 5, b"topic", 2)
    body += struct.pack(">ii4s", 0, 4, b"old!") + struct.pack(">ii", 1, 0)
    frame = struct.pack(">hhih", 0, version, 99, -1) + body
    client.feed(struct.pack(">i", len(frame)) + frame)
    answer = await client.frame()
    refused = struct.pack(">hq", errors.UNSUPPORTED_VERSION, -1) + (b"\xff" * 8 if version == 2 else b"")
    expected = struct.pack(">ii", 99, 1) + struct.pack(">h5si", 5, b"topic", 2)
    expected += struct.pack(">i", 0) + refused + struct.pack(">i", 1) + refused
    assert answer == expected + (b"\0" * 4 if version else b"")


async def test_one_batch_of_magic_2_per_partition(client: Any, make_batch: MakeBatch, broker: Broker) -> None:
    batch = make_batch(b"x")
    old = bytearray(batch)
    old[16] = 1
    for records in (batch + batch, batch + b"left over", bytes(old)):
        (row,) = rows(await client.call("Produce", 9, **produce(("topic", 0, records))))
        assert row.error_code == errors.INVALID_RECORD
    assert end_offset(broker) == 0


async def test_zstd_is_refused_before_version_7(client: Any, make_batch: MakeBatch) -> None:
    zstd = make_batch(b"x" * 100, compression=Compression.ZSTD)
    codes = [
        rows(await client.call("Produce", version, **produce(("topic", 0, zstd))))[0].error_code
        for version in (6, 7)
    ]
    assert codes == [errors.UNSUPPORTED_COMPRESSION_TYPE, 0]


class SlowLeader:
    """A leader whose appends wait for the test."""

    here = True  # until the partition is led elsewhere

    def __init__(self) -> None:
        self.appends: list[asyncio.Future[Appended]] = []

    def append(self, *_: object) -> asyncio.Future[Appended]:
        self.appends.append(asyncio.get_running_loop().create_future())
        return self.appends[-1]


@pytest.fixture
def slow(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> SlowLeader:
    leader = SlowLeader()
    ordinary = broker.cluster.partition
    monkeypatch.setattr(
        broker.cluster,
        "partition",
        lambda topic, index: leader if (topic, index) == ("topic", 1) else ordinary(topic, index),
    )
    return leader


async def test_pipelined_appends_are_answered_in_order(
    client: Any, slow: SlowLeader, make_batch: MakeBatch
) -> None:
    for _ in range(3):
        client.send("Produce", 9, **produce(("topic", 1, make_batch(b"x"))))
    client.send("Produce", 9, **produce(("topic", 0, make_batch(b"quick"))))
    assert len(slow.appends) == 3
    for index in (2, 0):
        slow.appends[index].set_result(Appended(index, -1, 0))
    assert rows(await client.receive("Produce", 9))[0].base_offset == 0
    await client.nothing()
    slow.appends[1].set_exception(TreecastError(Fault.STORAGE, "disk full"))
    second = rows(await client.receive("Produce", 9))[0]
    assert (second.error_code, second.error_message) == (errors.KAFKA_STORAGE_ERROR, "disk full")
    assert rows(await client.receive("Produce", 9))[0].base_offset == 2
    assert rows(await client.receive("Produce", 9))[0].error_code == 0


async def test_other_requests_wait_their_turn_to_be_answered(
    client: Any, slow: SlowLeader, make_batch: MakeBatch
) -> None:
    client.send("Produce", 9, **produce(("topic", 1, make_batch(b"x"))))
    client.send("Metadata", 1, topics=[])
    await client.nothing()
    slow.appends[0].set_result(Appended(5, -1, 0))
    assert rows(await client.receive("Produce", 9))[0].base_offset == 5
    assert (await client.receive("Metadata", 1)).brokers[0].node_id == 7


async def test_an_append_that_takes_too_long(client: Any, slow: SlowLeader, make_batch: MakeBatch) -> None:
    client.send(
        "Produce", 9, **produce(("topic", 0, make_batch(b"x")), ("topic", 1, make_batch(b"x")), timeout_ms=1)
    )
    answer = rows(await client.receive("Produce", 9))
    assert [row.error_code for row in answer] == [0, errors.REQUEST_TIMED_OUT]
    slow.appends[0].set_exception(TreecastError(Fault.STORAGE))  # too late for the request
    await client.nothing()


async def test_a_closed_connection_leaves_appends_alone(
    client: Any, slow: SlowLeader, make_batch: MakeBatch
) -> None:
    client.send("Produce", 9, **produce(("topic", 1, make_batch(b"x"))))
    client.transport.close()
    await asyncio.sleep(0)
    assert not slow.appends[0].cancelled()
    slow.appends[0].set_exception(TreecastError(Fault.STORAGE))
    await client.nothing()


async def test_a_leader_that_breaks_spoils_one_partition(
    client: Any, slow: SlowLeader, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(slow, "append", broken)
    answer = await client.call(
        "Produce", 9, **produce(("topic", 1, make_batch(b"x")), ("topic", 0, make_batch(b"x")))
    )
    assert [row.error_code for row in rows(answer)] == [errors.UNKNOWN_SERVER_ERROR, 0]


# --- the records that caused a refusal (KIP-467)


@pytest.mark.parametrize("version", range(3, 13))
async def test_records_without_a_key_are_named(client: Any, broker: Broker, version: int) -> None:
    await broker.cluster.definitions.create_topic(NewTopic("compacted", 1, {"cleanup.policy": "compact"}))
    keys = [b"a", None, b"c", None]
    data = bytes(build_batch([Record(key, b"x", (), 1_700_000_000_000) for key in keys]))
    (row,) = rows(await client.call("Produce", version, **produce(("compacted", 0, data))))
    assert row.error_code == errors.INVALID_RECORD
    assert end_offset(broker, "compacted") == 0
    if version >= 8:
        assert [error.batch_index for error in row.record_errors] == [1, 3]
        assert all("this record has no key" in error.batch_index_error_message for error in row.record_errors)
        assert row.error_message == "topic compacted is compacted, record 1 has no key"


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
async def test_records_of_a_wrong_time_are_named(
    client: Any, broker: Broker, compression: Compression
) -> None:
    config = {"message.timestamp.after.max.ms": "1000", "message.timestamp.before.max.ms": "5000"}
    await broker.cluster.definitions.create_topic(NewTopic("timed", 1, config))
    now = 1_700_000_000_000
    times = [now, now + 1000, now + 1001, now - 5000, now - 5001]
    data = bytes(build_batch([Record(b"k", b"x", (), at) for at in times], compression=compression))
    (row,) = rows(await client.call("Produce", 9, **produce(("timed", 0, data))))
    assert row.error_code == errors.INVALID_TIMESTAMP
    assert [error.batch_index for error in row.record_errors] == [2, 4]
    assert f"timestamp {now + 1001} is not between" in row.record_errors[0].batch_index_error_message
    assert row.error_message == row.record_errors[0].batch_index_error_message


async def test_a_batch_that_is_wrong_as_a_whole_blames_no_record(client: Any, make_batch: MakeBatch) -> None:
    (row,) = rows(await client.call("Produce", 9, **produce(("topic", 0, make_batch(b"y" * 6000)))))
    assert (row.error_code, row.record_errors) == (errors.MESSAGE_TOO_LARGE, [])


class Counted:
    """A cluster that counts the look-ups of its partitions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def partition(self, topic: str, index: int) -> SlowLeader:
        self.asked.append((topic, index))
        return SlowLeader()


def test_a_partition_is_looked_up_again_once_its_leader_has_left() -> None:
    cluster = Counted()
    leaders = KnownLeaders(cast(Cluster, cluster))
    partition = cast(Callable[[str, int], SlowLeader], leaders.partition)
    first = partition("t", 0)
    assert partition("t", 0) is first
    assert partition("t", 1) is not first
    first.here = False
    assert partition("t", 0) is not first
    assert cluster.asked == [("t", 0), ("t", 1), ("t", 0)]
    for index in range(5000):
        partition("many", index)
    assert len(leaders._known) <= 1024


def test_partitions_of_deleted_topics_do_not_stay() -> None:
    leaders = KnownLeaders(cast(Cluster, Counted()))
    partition = cast(Callable[[str, int], SlowLeader], leaders.partition)
    kept = [partition("kept", index) for index in range(30)]
    for round_ in range(1000):
        partition(f"short-lived-{round_}", 0).here = False
        assert len(leaders._known) <= 64
    assert [partition("kept", index) for index in range(30)] == kept
