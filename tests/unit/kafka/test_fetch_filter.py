"""Fetch with a filter: fewer records in batches at their own offsets, within the requested size."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.broker import Broker, NewTopic
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records
from treecast.shims.kafka import errors
from treecast.shims.kafka.server import KafkaFace

NOW_MS = 1_700_000_000_000


def fetch(
    client: Any,
    text: str | None,
    *,
    offset: int = 0,
    max_wait_ms: int = 0,
    isolation: int = 0,
    topic: str = "topic",
) -> None:
    """Sends a Fetch of version 12 whose last tagged fields hold the filter."""
    frame = client.request(
        "Fetch",
        12,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10**6,
        session_epoch=-1,
        isolation_level=isolation,
        topics=[
            {
                "topic": topic,
                "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10**6}],
            }
        ],
    )
    if text is not None:
        tag = b"\x01\xe3\xe8\x01" + bytes([len(text.encode())]) + text.encode()
        frame = struct.pack(">i", len(frame) - 5 + len(tag)) + frame[4:-1] + tag
    client.feed(frame)


async def answered(client: Any) -> Any:
    (topic,) = (await client.receive("Fetch", 12)).responses
    (row,) = topic.partitions
    return row


def batches(data: bytes) -> list[tuple[int, int, list[int]]]:
    """Returns (base offset, last offset, the records' offsets) of each batch."""
    found = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        records = [] if header.control else read_records(data, position, header)
        found.append((header.base_offset, header.last_offset, [record.offset for record in records]))
        position += header.size
    return found


def prices(*values: object, **options: Any) -> bytes:
    records = [Record(b"k", json.dumps({"price": value}).encode(), (), NOW_MS) for value in values]
    return build_batch(records, **options)


def fill(broker: Broker, *sent: bytes, topic: str = "topic") -> None:
    for batch in sent:
        broker.cluster.partition(topic, 0).append(memoryview(bytearray(batch)), -1, None)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
async def test_what_does_not_pass_is_left_out(client: Any, broker: Broker, compression: Compression) -> None:
    fill(
        broker,
        prices(1, 9, 2, 8, compression=compression),
        prices(1, 2),
        prices(9, 9, compression=compression),
    )
    fetch(client, "price > 5")
    row = await answered(client)
    assert (row.error_code, row.high_watermark) == (0, 8)
    assert batches(bytes(row.records)) == [(0, 3, [1, 3]), (4, 5, []), (6, 7, [6, 7])]


async def test_without_a_filter_and_with_one_that_all_pass_bytes_are_the_same(
    client: Any, broker: Broker
) -> None:
    fill(broker, prices(1, 2, 3), prices(4))
    found = []
    for text in (None, "true", "price > 0"):
        fetch(client, text)
        found.append(bytes((await answered(client)).records))
    assert found[0] == found[1] == found[2]


async def test_a_reader_gets_on_where_nothing_passes(client: Any, broker: Broker) -> None:
    fill(broker, prices(*range(40)))
    fetch(client, "false", offset=5)
    assert batches(bytes((await answered(client)).records)) == [(0, 39, [])]


async def test_at_the_end_it_waits_as_any_fetch(client: Any, broker: Broker, face: KafkaFace) -> None:
    fill(broker, prices(1))
    fetch(client, "price > 5", offset=1, max_wait_ms=60_000)
    await client.nothing()
    fill(broker, prices(9))
    assert batches(bytes((await answered(client)).records)) == [(1, 1, [1])]
    assert face.counters.filtered_records == 0


async def test_transactions_stay_what_they_are(client: Any, broker: Broker) -> None:
    """The batch keeps its producer; the marker and the list of aborted transactions do not change."""
    call = client.call
    init = await call("InitProducerId", 4, transactional_id="tx", transaction_timeout_ms=60_000)
    fields = {"producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
    await call(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id="tx",
        v3_and_below_topics=[{"name": "topic", "partitions": [0]}],
        **{f"v3_and_below_{name}": value for name, value in fields.items()},
    )
    producer = ProducerIdentity(init.producer_id, init.producer_epoch)
    data = prices(1, 9, producer=producer, base_sequence=0, transactional=True)
    topics = [{"name": "topic", "partition_data": [{"index": 0, "records": data}]}]
    await call("Produce", 9, transactional_id="tx", acks=-1, timeout_ms=100, topic_data=topics)
    await call("EndTxn", 3, transactional_id="tx", committed=False, **fields)
    fetch(client, "price > 5", isolation=1)
    row = await answered(client)
    records = bytes(row.records)
    assert batches(records) == [(0, 1, [1]), (2, 2, [])]
    first, marker = read_header(records, 0), read_header(records, read_header(records, 0).size)
    assert (first.transactional, first.producer_id, first.base_sequence) == (True, init.producer_id, 0)
    assert marker.control
    assert [(a.producer_id, a.first_offset) for a in row.aborted_transactions] == [(init.producer_id, 0)]


@pytest.mark.parametrize("text", ["price >", "avg(price) > 5", ""])
async def test_what_is_no_filter_is_refused(client: Any, broker: Broker, text: str) -> None:
    fill(broker, prices(1))
    fetch(client, text)
    row = await answered(client)
    assert (row.error_code, bytes(row.records or b"")) == (errors.INVALID_REQUEST, b"")


async def test_others_have_their_turn_while_many_records_are_looked_at(
    client: Any, broker: Broker, face: KafkaFace, connect: Callable[[], Any]
) -> None:
    await broker.cluster.definitions.create_topic(NewTopic("large", 1, {}))
    fill(broker, prices(*[n % 10 for n in range(5000)]), topic="large")
    fetch(client, "price == 3", topic="large")
    await connect().call("ApiVersions", 0)
    assert not client.transport.sent
    ((_, last, offsets),) = batches(bytes((await answered(client)).records))
    assert (last, offsets) == (4999, list(range(3, 5000, 10)))
    assert face.counters.filtered_records == 4500
