"""Transactions of producers, and hung transactions as operators see them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.model.identity import ProducerIdentity
from treecast.shims.kafka import errors

ZERO = uuid.UUID(int=0)
MakeBatch = Callable[..., bytes]
NOW_MS = 1_700_000_000_000  # of the broker's clock


# --- transactions


async def test_identities_are_new_each_time(client: Any) -> None:
    ids = {
        (await client.call("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=1)).producer_id
        for _ in range(3)
    }
    assert len(ids) == 3


async def test_identities_that_are_refused(client: Any) -> None:
    async def code(**fields: Any) -> int:
        return int((await client.call("InitProducerId", 4, **fields)).error_code)

    assert await code(transactional_id="", transaction_timeout_ms=1) == errors.INVALID_REQUEST
    late = {"transactional_id": "x", "transaction_timeout_ms": 10**9}
    assert await code(**late) == errors.INVALID_TRANSACTION_TIMEOUT
    half = {"transactional_id": "x", "transaction_timeout_ms": 1, "producer_id": 5, "producer_epoch": -1}
    assert await code(**half) == errors.INVALID_REQUEST


async def test_a_missing_partition_leaves_the_others_out(client: Any) -> None:
    init = await client.call("InitProducerId", 4, transactional_id="x", transaction_timeout_ms=1000)
    answer = await client.call(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=init.producer_id,
        v3_and_below_producer_epoch=init.producer_epoch,
        v3_and_below_topics=[{"name": "topic", "partitions": [0]}, {"name": "none", "partitions": [0]}],
    )
    codes = [
        p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition
    ]
    assert codes == [errors.OPERATION_NOT_ATTEMPTED, errors.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("version", "code"), [(1, errors.INVALID_PRODUCER_EPOCH), (3, errors.PRODUCER_FENCED)]
)
async def test_a_fenced_producer_is_told_so(version: int, code: int, client: Any) -> None:
    old = await client.call("InitProducerId", 4, transactional_id="x", transaction_timeout_ms=1000)
    await client.call("InitProducerId", 4, transactional_id="x", transaction_timeout_ms=1000)
    producer = {"producer_id": old.producer_id, "producer_epoch": old.producer_epoch}
    ended = await client.call("EndTxn", version, transactional_id="x", committed=True, **producer)
    assert ended.error_code == code


async def test_offsets_of_a_transaction(client: Any) -> None:
    init = await client.call("InitProducerId", 4, transactional_id="x", transaction_timeout_ms=1000)
    producer = {"producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
    added = await client.call("AddOffsetsToTxn", 3, transactional_id="x", group_id="g", **producer)
    assert added.error_code == 0
    row = {"partition_index": 0, "committed_offset": 9, "committed_metadata": None}
    topics = [{"name": "topic", "partitions": [row]}, {"name": "none", "partitions": [row]}]
    committed = await client.call(
        "TxnOffsetCommit",
        3,
        transactional_id="x",
        group_id="g",
        member_id="",
        generation_id=-1,
        topics=topics,
        **producer,
    )
    assert [p.error_code for t in committed.topics for p in t.partitions] == [0, 3]
    asked = [{"name": "topic", "partition_indexes": [0]}]
    unstable = await client.call("OffsetFetch", 7, group_id="g", topics=asked, require_stable=True)
    assert unstable.topics[0].partitions[0].error_code == errors.UNSTABLE_OFFSET_COMMIT
    assert (await client.call("EndTxn", 3, transactional_id="x", committed=True, **producer)).error_code == 0
    stable = await client.call("OffsetFetch", 7, group_id="g", topics=asked, require_stable=True)
    assert stable.topics[0].partitions[0].committed_offset == 9


# --- hung transactions


async def begun(client: Any, make_batch: MakeBatch, transactional_id: str) -> tuple[int, int]:
    """Begins a transaction with one record in topic-1. Returns its producer id and epoch."""
    made = await client.call(
        "InitProducerId", 4, transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    await client.call(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[{"name": "topic", "partitions": [1]}],
    )
    identity = ProducerIdentity(made.producer_id, made.producer_epoch)
    records = make_batch(b"x", producer=identity, base_sequence=0, transactional=True)
    data = [{"name": "topic", "partition_data": [{"index": 1, "records": records}]}]
    produced = await client.call(
        "Produce", 9, transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=data
    )
    assert produced.responses[0].partition_responses[0].error_code == 0
    return made.producer_id, made.producer_epoch


async def test_transactions_are_listed_and_described(client: Any, make_batch: MakeBatch) -> None:
    producer_id, epoch = await begun(client, make_batch, "open")
    made = await client.call("InitProducerId", 4, transactional_id="empty", transaction_timeout_ms=5_000)

    async def listed(version: int = 1, **filters: Any) -> dict[str, str]:
        answer = await client.call("ListTransactions", version, **filters)
        assert answer.error_code == 0
        return {one.transactional_id: one.transaction_state for one in answer.transaction_states}

    none = {"state_filters": [], "producer_id_filters": []}
    assert await listed(0, **none) == {"open": "Ongoing", "empty": "Empty"}
    assert await listed(**none | {"state_filters": ["Ongoing"]}) == {"open": "Ongoing"}
    assert await listed(**none | {"producer_id_filters": [made.producer_id]}) == {"empty": "Empty"}
    assert await listed(**none, duration_filter=0) == {"open": "Ongoing"}
    assert await listed(**none, duration_filter=2**60) == {}
    strange = await client.call("ListTransactions", 1, **none | {"state_filters": ["Odd", "Empty"]})
    assert strange.unknown_state_filters == ["Odd"]
    assert [one.transactional_id for one in strange.transaction_states] == ["empty"]

    answer = await client.call("DescribeTransactions", 0, transactional_ids=["open", "none"])
    found, missing = answer.transaction_states
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (0, "Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == (producer_id, epoch)
    assert found.transaction_start_time_ms == NOW_MS
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("topic", [1])]
    assert missing.error_code == errors.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("version", "code"), [(10, errors.INVALID_TXN_STATE), (11, errors.TRANSACTION_ABORTABLE)]
)
async def test_a_batch_beside_the_transaction_lets_the_producer_abort(
    client: Any, make_batch: MakeBatch, version: int, code: int
) -> None:
    """KIP-890: TRANSACTION_ABORTABLE from the version on that knows it."""
    identity = ProducerIdentity(*await begun(client, make_batch, "open"))
    records = make_batch(b"x", producer=identity, base_sequence=0, transactional=True)
    data = [{"name": "topic", "partition_data": [{"index": 0, "records": records}]}]
    answer = await client.call(
        "Produce", version, transactional_id="open", acks=-1, timeout_ms=1000, topic_data=data
    )
    assert answer.responses[0].partition_responses[0].error_code == code


async def test_producers_of_a_partition(client: Any, make_batch: MakeBatch) -> None:
    producer_id, epoch = await begun(client, make_batch, "open")
    topics = [
        {"name": "topic", "partition_indexes": [0, 1, 9]},
        {"name": "__consumer_offsets", "partition_indexes": [0]},
    ]
    answer = await client.call("DescribeProducers", 0, topics=topics)
    free, used, missing = answer.topics[0].partitions
    assert (free.error_code, free.active_producers) == (0, [])
    (one,) = used.active_producers
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (producer_id, epoch, 0)
    assert (one.current_txn_start_offset, one.last_timestamp) == (0, NOW_MS)
    assert missing.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert [(p.error_code, p.active_producers) for p in answer.topics[1].partitions] == [(0, [])]
