"""ListTransactions, DescribeTransactions, DescribeProducers: the APIs to find hung transactions (KIP-664)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from treecast.middleware.broker import ActiveProducer, TransactionListing
from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition

from .. import errors
from .. import versions as v
from ..internal import visible_partition
from .base import Context, Fields, Handler, Message, by_topic, known_partition, refuse_at_top, settled

_STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)
_UNKNOWN = "Unknown"  # the state of an id whose home cannot be reached


# --- ListTransactions


async def list_transactions(ctx: Context, request: Message) -> Fields:
    """Lists the transactional ids that match the filters: states, producer ids, and how long one is open."""
    states = {state for state in request.state_filters if state in _STATES}
    listings = await ctx.cluster.list_transactions()
    now_ms = int(time.time() * 1000)
    return {
        "error_code": errors.NONE,
        "unknown_state_filters": [state for state in request.state_filters if state not in _STATES],
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer.producer_id,
                "transaction_state": one.state,
            }
            for one in listings
            if _wanted(one, request, states, now_ms) and _may_see(ctx, one.transactional_id)
        ],
    }


def _may_see(ctx: Context, transactional_id: str) -> bool:
    return ctx.may(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, transactional_id)


def _wanted(one: TransactionListing, request: Message, states: set[str], now_ms: int) -> bool:
    if request.state_filters and one.state not in states:
        return False
    if request.producer_id_filters and one.producer.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or (
        one.started_ms >= 0 and now_ms - one.started_ms > request.duration_filter
    )


# --- DescribeTransactions


async def describe_transactions(ctx: Context, request: Message) -> Fields:
    known = {
        one.transactional_id: one for one in await ctx.cluster.list_transactions(request.transactional_ids)
    }
    asked = dict.fromkeys(request.transactional_ids)
    return {"transaction_states": [_described(ctx, id, known) for id in asked]}


def _described(ctx: Context, transactional_id: str, known: Mapping[str, TransactionListing]) -> Fields:
    if not _may_see(ctx, transactional_id):
        return _undescribed(transactional_id, errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    one = known.get(transactional_id)
    if one is None:
        return _undescribed(transactional_id, errors.TRANSACTIONAL_ID_NOT_FOUND)
    if one.state == _UNKNOWN:
        return _undescribed(transactional_id, errors.COORDINATOR_NOT_AVAILABLE)
    partitions = ((partition, {"index": partition.partition}) for partition in one.partitions)
    return {
        "error_code": errors.NONE,
        "transactional_id": transactional_id,
        "transaction_state": one.state,
        "transaction_timeout_ms": one.timeout_ms,
        "transaction_start_time_ms": one.started_ms,
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.epoch,
        "topics": [
            {"topic": topic, "partitions": [row["index"] for row in rows]}
            for topic, rows in by_topic(partitions)
        ],
    }


def _undescribed(transactional_id: str, code: int) -> Fields:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout_ms": -1,
        "transaction_start_time_ms": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "topics": [],
    }


def _refuse_describe(request: Message, code: int, detail: str) -> Fields:
    return {"transaction_states": [_undescribed(id, code) for id in request.transactional_ids]}


# --- DescribeProducers


async def describe_producers(ctx: Context, request: Message) -> Fields:
    rows = [
        (partition, await _producers(ctx, partition))
        for topic in request.topics
        for partition in (TopicPartition(topic.name, index) for index in topic.partition_indexes)
    ]
    return {"topics": [{"name": name, "partitions": partitions} for name, partitions in by_topic(rows)]}


async def _producers(ctx: Context, partition: TopicPartition) -> Fields:
    row = {"partition_index": partition.partition, "active_producers": []}
    if not ctx.may(Operation.READ, ResourceKind.TOPIC, partition.topic):
        refusal = ctx.refusal(Operation.READ, ResourceKind.TOPIC, partition.topic)
        return row | {"error_code": ctx.code(refusal), "error_message": refusal.detail}
    if not known_partition(ctx.cluster, partition):
        detail = f"there is no partition {partition}"
        return row | {"error_code": errors.UNKNOWN_TOPIC_OR_PARTITION, "error_message": detail}
    try:
        leader = visible_partition(ctx.cluster, partition.topic, partition.partition)
        found = await settled(leader.active_producers())
    except TreecastError as error:
        return row | {"error_code": ctx.code(error), "error_message": error.detail}
    return row | {"error_code": errors.NONE, "active_producers": [_producer(one) for one in found]}


def _producer(one: ActiveProducer) -> Fields:
    return {
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.epoch,
        "last_sequence": one.last_sequence,
        "last_timestamp": one.last_timestamp,
        "coordinator_epoch": one.coordinator_epoch,
        "current_txn_start_offset": one.transaction_start,
    }


def _refuse_producers(request: Message, code: int, detail: str) -> Fields:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": code, "error_message": detail}
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


HANDLERS = {
    v.LIST_TRANSACTIONS: Handler(list_transactions, refuse_at_top),
    v.DESCRIBE_TRANSACTIONS: Handler(describe_transactions, _refuse_describe),
    v.DESCRIBE_PRODUCERS: Handler(describe_producers, _refuse_producers),
}
