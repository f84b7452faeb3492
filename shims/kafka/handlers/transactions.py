"""Producer ids and transactions (KIP-98, KIP-360, KIP-447)."""

from __future__ import annotations

from treecast.middleware.broker import (
    GROUPS,
    TRANSACTIONS,
    InitProducer,
    MemberIdentity,
    read_only,
    view_of,
)
from treecast.middleware.broker.access import CLUSTER, Operation, ResourceKind
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition

from .. import errors
from .. import versions as v
from .base import (
    Context,
    Fields,
    Handler,
    Message,
    by_topic,
    known_partition,
    refuse_at_top,
    unknown_partition,
)
from .offsets import commit_answer, refuse_partitions, split_commits


def _producer(request: Message) -> ProducerIdentity:
    return ProducerIdentity(request.producer_id, request.producer_epoch)


async def init_producer_id(ctx: Context, request: Message) -> Fields:
    """Returns a new identity, or the next epoch of a transactional id, which fences the previous one."""
    transactional_id = request.transactional_id
    if transactional_id == "":
        raise TreecastError(Fault.INVALID_REQUEST, "a transactional id cannot be empty")
    known = _producer(request)
    if (known.producer_id < 0) != (known.epoch < 0):
        raise TreecastError(Fault.INVALID_REQUEST, "producer id and epoch must be sent together")
    if transactional_id is None:
        if not ctx.may_write_idempotently:
            raise ctx.refusal(Operation.IDEMPOTENT_WRITE, ResourceKind.CLUSTER, CLUSTER)
        producer = await ctx.cluster.new_producer()
    else:
        home = ctx.cluster.home(TRANSACTIONS, transactional_id)
        producer = await home.init_producer(
            InitProducer(transactional_id, request.transaction_timeout_ms, known)
        )
    return {
        "error_code": errors.NONE,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def _refuse_init(request: Message, code: int, detail: str) -> Fields:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


# --- AddPartitionsToTxn


def _asked_partitions(request: Message) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]


def _partitions_answer(codes: dict[TopicPartition, int]) -> Fields:
    rows = (
        (partition, {"partition_index": partition.partition, "partition_error_code": code})
        for partition, code in codes.items()
    )
    return {
        "results_by_topic_v3_and_below": [
            {"name": name, "results_by_partition": partitions} for name, partitions in by_topic(rows)
        ]
    }


def _wrong(ctx: Context, partition: TopicPartition) -> TreecastError | None:
    """Returns why a partition cannot be in a transaction of this client."""
    if not ctx.may(Operation.WRITE, ResourceKind.TOPIC, partition.topic):
        return ctx.refusal(Operation.WRITE, ResourceKind.TOPIC, partition.topic)
    if not known_partition(ctx.cluster, partition):
        return unknown_partition(partition)
    view = view_of(ctx.cluster.definitions.topics(), partition.topic)
    return None if view is None else read_only(view)


async def add_partitions_to_txn(ctx: Context, request: Message) -> Fields:
    """Adds all partitions or none. If one may not be written, the others get OPERATION_NOT_ATTEMPTED."""
    asked = _asked_partitions(request)
    wrong = {partition: error for partition in asked if (error := _wrong(ctx, partition)) is not None}
    if wrong:
        return _partitions_answer(
            {p: ctx.code(wrong[p]) if p in wrong else errors.OPERATION_NOT_ATTEMPTED for p in asked}
        )
    transactional_id = request.v3_and_below_transactional_id
    producer = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    home = ctx.cluster.home(TRANSACTIONS, transactional_id)
    refused = await home.add_partitions(transactional_id, producer, asked)
    return _partitions_answer({p: ctx.code(refused[p]) if p in refused else errors.NONE for p in asked})


def _refuse_partitions_to_txn(request: Message, code: int, detail: str) -> Fields:
    return _partitions_answer(dict.fromkeys(_asked_partitions(request), code))


# --- AddOffsetsToTxn, EndTxn, TxnOffsetCommit


async def add_offsets_to_txn(ctx: Context, request: Message) -> Fields:
    home = ctx.cluster.home(TRANSACTIONS, request.transactional_id)
    await home.add_offsets(request.transactional_id, _producer(request), request.group_id)
    return {"error_code": errors.NONE}


async def end_txn(ctx: Context, request: Message) -> Fields:
    """Ends a transaction or, with Treecast's own fields (docs/faces/kafka.md), a batch staged in parts."""
    home = ctx.cluster.home(TRANSACTIONS, request.transactional_id)
    if request.treecast_batch >= 0:
        for part in request.treecast_parts:
            ctx.check(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, part.transactional_id)
        parts = {part.transactional_id: _producer(part) for part in request.treecast_parts}
        await home.end_parts(
            request.transactional_id,
            request.treecast_batch,
            parts,
            committed=request.committed,
            content=request.treecast_content,
        )
        return {"error_code": errors.NONE}
    await home.end(request.transactional_id, _producer(request), committed=request.committed)
    return {"error_code": errors.NONE}


def _refuse_end(request: Message, code: int, detail: str) -> Fields:
    """Adds the reason if the request has Treecast's own fields."""
    why = detail if request.treecast_batch >= 0 else ""
    return {"error_code": code, "treecast_why": why}


async def txn_offset_commit(ctx: Context, request: Message) -> Fields:
    """Stores offsets that take effect if the transaction commits."""
    commits, refused = await split_commits(ctx, request)
    member = MemberIdentity(request.member_id, request.group_instance_id, request.generation_id)
    home = ctx.cluster.home(GROUPS, request.group_id)
    more = await home.commit_transaction_offsets(
        request.group_id, member, request.transactional_id, _producer(request), commits
    )
    return await commit_answer(ctx, request, refused | dict(more))


HANDLERS = {
    v.INIT_PRODUCER_ID: Handler(init_producer_id, _refuse_init),
    v.ADD_PARTITIONS_TO_TXN: Handler(add_partitions_to_txn, _refuse_partitions_to_txn),
    v.ADD_OFFSETS_TO_TXN: Handler(add_offsets_to_txn, refuse_at_top),
    v.END_TXN: Handler(end_txn, _refuse_end),
    v.TXN_OFFSET_COMMIT: Handler(txn_offset_commit, refuse_partitions),
}
