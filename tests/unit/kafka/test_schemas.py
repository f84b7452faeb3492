"""Topics with a schema on the Kafka face: filters name declared fields, whatever the records are."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.unit.kafka.conftest import NOW_MS
from tests.unit.kafka.test_fetch_filter import answered, batches, fetch, fill, prices
from tests.unit.kafka.test_views import HIGH, drop, make
from tests.unit.refusals import refusal

from treecast.middleware.broker import Broker, ConfigChange, ConfigOperation
from treecast.middleware.broker.schemas import TopicSchemas
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.filters.schemas.reader import reader_of
from treecast.middleware.model.errors import Fault
from treecast.middleware.model.records import Record
from treecast.middleware.model.topic_schema import (
    SCHEMA,
    SchemaVersion,
    TopicSchema,
    read_fields,
    write_schema,
)
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.kafka import errors


def setting(format: str, *fields: str) -> str:
    return write_schema(TopicSchema(format, tuple(SchemaVersion(read_fields(one)) for one in fields)))


async def declare(broker: Broker, text: str | None) -> None:
    operation = ConfigOperation.DELETE if text is None else ConfigOperation.SET
    await broker.cluster.definitions.alter_topic("topic", [ConfigChange(SCHEMA, operation, text)])


def orders(*prices: int) -> bytes:
    values = [struct.pack(">8sI", b"GOOGL", price) for price in prices]
    return build_batch([Record(b"k", value, (), NOW_MS) for value in values])


async def offsets(client: Any, text: str | None, topic: str = "topic") -> list[int]:
    fetch(client, text, topic=topic)
    row = await answered(client)
    assert row.error_code == 0
    return [offset for _, _, found in batches(bytes(row.records)) for offset in found]


async def test_filters_name_fields_of_a_fixed_layout(client: Any, broker: Broker) -> None:
    await declare(broker, setting("fixed", "stock:8s,price:u32"))
    await make(broker, text="stock == GOOGL and price > 5")
    fill(broker, orders(1, 9), prices("none"), orders(8))
    assert await offsets(client, None, HIGH) == [1, 3]
    assert await offsets(client, "not price > 5") == [0]
    assert await offsets(client, None) == [0, 1, 2, 3]
    assert broker.counters.broker.schema_unmet == {"topic": 2}


async def test_names_that_look_like_views_have_no_schema(broker: Broker) -> None:
    await declare(broker, setting("json", "price:u32"))
    await make(broker)
    schemas = TopicSchemas(broker.cluster.definitions, broker.counters.broker)
    assert schemas.of("topic") is schemas.of("topic/view/high") is schemas.of_kafka("topic.view.high")
    assert schemas.of("topic") is not None
    for name in ("topic/view/other", "topic/view", "topic/view/high/more", "topic/view/"):
        assert schemas.of(name) is None


async def test_a_topic_keeps_its_reader_until_its_schema_changes(broker: Broker) -> None:
    await declare(broker, setting("json", "price:u32"))
    schemas = TopicSchemas(broker.cluster.definitions, broker.counters.broker)
    first = schemas.of("topic")
    reader_of.cache_clear()  # as many other topics' schemas do
    assert first is not None
    assert schemas.of("topic") is first
    await declare(broker, setting("json", "price:u32", "price:u32,stock:8s"))
    second = schemas.of("topic")
    assert second is not None
    assert second is not first
    assert second.paths == (("price",), ("stock",))
    await declare(broker, None)
    assert schemas.of("topic") is None


async def test_records_of_damaged_text_are_left_out_and_readers_go_on(client: Any, broker: Broker) -> None:
    await make(broker)
    damaged = [Record(b"k", value, (), NOW_MS) for value in (b'{"price":"\xff"}', b'{"price":9,"\xff":1}')]
    fill(broker, prices(9), build_batch(damaged), prices(8))
    assert await offsets(client, None, HIGH) == [0, 3]
    assert await offsets(client, "price > 5") == [0, 3]
    await declare(broker, setting("json", "price:u32"))
    assert await offsets(client, "price > 5") == [0, 3]


@pytest.mark.parametrize("text", ["prize > 5", "price == abc"])
async def test_a_reader_whose_filter_does_not_fit_is_refused(client: Any, broker: Broker, text: str) -> None:
    await declare(broker, setting("json", "price:u32"))
    fill(broker, prices(1))
    fetch(client, text)
    assert (await answered(client)).error_code == errors.INVALID_REQUEST


async def test_views_and_schemas_have_to_fit_one_another(client: Any, broker: Broker) -> None:
    await declare(broker, setting("json", "price:u32"))
    with refusal(Fault.INVALID_CONFIG):
        await make(broker, text="prize > 5")
    await declare(broker, None)
    await make(broker, text="prize > 5")
    with refusal(Fault.INVALID_CONFIG):
        await declare(broker, setting("json", "price:u32"))
    await drop(broker)
    await declare(broker, setting("json", "price:u32"))


async def test_a_schema_grows_and_is_not_replaced(client: Any, broker: Broker) -> None:
    fill(broker, prices(9))
    await declare(broker, setting("json", "price:u32"))
    assert await offsets(client, "price > 5") == [0]
    for other in (setting("json", "price:u64"), setting("fixed", "price:u32"), '{"from":"json"}', "price"):
        with refusal(Fault.INVALID_CONFIG):
            await declare(broker, other)
    await declare(broker, setting("json", "price:u32", "price:u32,stock:8s"))
    assert await offsets(client, "price > 5 and not stock == GOOGL") == [0]
    await declare(broker, None)
    assert await offsets(client, "prize == 5") == []


async def test_consumers_of_a_view_share_what_was_filtered(
    client: Any, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[Record] = []
    plain = RecordFilter.matches
    monkeypatch.setattr(
        RecordFilter, "matches", lambda self, record: looked_at.append(record) or plain(self, record)
    )
    await make(broker)
    fill(broker, prices(1, 9, 7), prices(2))
    for _ in range(3):
        assert await offsets(client, None, HIGH) == [1, 2]
    assert len(looked_at) == 4
    assert broker.counters.face("kafka").filtered_records == 6
    fill(broker, prices(8))
    assert await offsets(client, None, HIGH) == [1, 2, 4]
    assert len(looked_at) == 5
