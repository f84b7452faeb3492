"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from treecast.middleware.broker import NewTopic, Topic
from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.topic_config import WISHED_COPIES

from .. import errors
from .. import versions as v
from ..internal import check_own, visible_partition, visible_topics
from .base import (
    Context,
    Fields,
    Handler,
    Message,
    check_collision,
    check_create,
    colliding,
    flattened,
    paced,
    settled,
)
from .config_rows import topic_config_rows
from .offsets import PartitionRow, refuse_partitions, topic_rows

_UNSET = -1  # the broker chooses the count
_UNANSWERED = TreecastError(Fault.INTERNAL)


# --- CreateTopics


async def create_topics(ctx: Context, request: Message) -> Fields:
    """Creates each topic independently. Refuses a name that occurs twice in the request."""
    answers: dict[str, Topic | TreecastError] = {}
    allowed: list[NewTopic] = []
    flat: dict[str, str] = {}
    times = Counter(topic.name for topic in request.topics)
    async for asked in paced(ctx, request.topics):
        if asked.name in answers:
            continue
        try:
            if times[asked.name] > 1:
                raise TreecastError(
                    Fault.INVALID_REQUEST, f"topic {asked.name} is named twice in the request"
                )
            check_create(ctx, asked.name)
            check_collision(ctx.cluster, asked.name)
            other = flat.setdefault(flattened(asked.name), asked.name)
            if other != asked.name:
                raise colliding(asked.name, other)
            allowed.append(_new_topic(ctx, asked))
        except TreecastError as error:
            answers[asked.name] = error
        else:
            answers[asked.name] = _UNANSWERED
    made = await ctx.cluster.definitions.create_topics(allowed, validate_only=request.validate_only)
    answers |= {new.name: answer for new, answer in zip(allowed, made, strict=True)}
    rows = [_answer(ctx, name, answer) async for name, answer in paced(ctx, answers.items())]
    return {"topics": rows}


def _answer(ctx: Context, name: str, answer: Topic | TreecastError) -> Fields:
    if isinstance(answer, TreecastError):
        return _not_created(name, ctx.code(answer), answer.detail)
    return _created(ctx, answer)


def _new_topic(ctx: Context, asked: Message) -> NewTopic:
    partitions = asked.num_partitions
    if asked.assignments:
        if partitions != _UNSET or asked.replication_factor != _UNSET:
            raise TreecastError(
                Fault.INVALID_REQUEST,
                "with a replica assignment, neither partitions nor replication factor may be given",
            )
        indexes = sorted(row.partition_index for row in asked.assignments)
        if indexes != list(range(len(indexes))):
            raise TreecastError(Fault.INVALID_ASSIGNMENT, "partitions must be numbered from 0 without gaps")
        _check_assignment(ctx, [row.broker_ids for row in asked.assignments])
        partitions = len(indexes)
    missing = [row.name for row in asked.configs if row.value is None]
    if missing:
        raise TreecastError(Fault.INVALID_CONFIG, f"no value for {', '.join(missing)}")
    config = {row.name: row.value for row in asked.configs}
    if asked.replication_factor not in (_UNSET, 1):
        config.setdefault(WISHED_COPIES, str(_wished_copies(ctx, asked.replication_factor)))
    return NewTopic(asked.name, partitions, config)


def _wished_copies(ctx: Context, factor: int) -> int:
    """Returns `factor` if it is accepted; Connect, Streams and others ask for 3 by default.

    Raises INVALID_REPLICATION.
    """
    if factor < 1:
        raise TreecastError(Fault.INVALID_REPLICATION, "a replication factor must be above 0, or -1")
    if not ctx.broker.accept_replication_factor:
        raise TreecastError(
            Fault.INVALID_REPLICATION,
            f"replication factor {factor}: a partition has one leader, whose log every interested host"
            " copies, so only 1 or -1 can be asked for (accept_replication_factor is off)",
        )
    return factor


def _check_assignment(ctx: Context, assignment: Sequence[Sequence[int]]) -> None:
    """Raises INVALID_ASSIGNMENT unless each partition has one replica, on the only broker clients see."""
    if any(list(broker_ids) != [ctx.node_id] for broker_ids in assignment):
        raise TreecastError(
            Fault.INVALID_ASSIGNMENT, f"every partition needs exactly one replica, on broker {ctx.node_id}"
        )


def _created(ctx: Context, topic: Topic) -> Fields:
    configs = [
        {name: row[name] for name in ("name", "value", "read_only", "config_source", "is_sensitive")}
        for row in topic_config_rows(topic.config, ctx.broker.topic_defaults)
    ]
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": errors.NONE,
        "error_message": None,
        "num_partitions": topic.partitions,
        "replication_factor": 1,
        "configs": configs,
    }


def _not_created(name: str, code: int, detail: str) -> Fields:
    return {"name": name, "error_code": code, "error_message": detail, "configs": None}


def _refuse_create(request: Message, code: int, detail: str) -> Fields:
    names = dict.fromkeys(topic.name for topic in request.topics)
    return {"topics": [_not_created(name, code, detail) for name in names]}


# --- DeleteTopics


async def delete_topics(ctx: Context, request: Message) -> Fields:
    """Deletes topics by name, from version 6 on by name or id."""
    rows: list[Fields] = []
    if ctx.version < 6:
        async for name in paced(ctx, dict.fromkeys(request.topic_names)):
            rows.append({"name": name} | await _delete(ctx, name))
        return {"responses": rows}
    async for asked in paced(ctx, request.topics):
        name = asked.name if asked.name is not None else _name_of(ctx, asked)
        row: Fields = {"name": name, "topic_id": asked.topic_id}
        if name is None:
            rows.append(dict(row) | _unknown_id())
        else:
            rows.append(dict(row) | await _delete(ctx, name))
    return {"responses": rows}


def _name_of(ctx: Context, asked: Message) -> str | None:
    for topic in visible_topics(ctx.cluster).values():
        if topic.topic_id == asked.topic_id and ctx.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name):
            return topic.name
    return None


def _unknown_id() -> dict[str, object]:
    return {"error_code": errors.UNKNOWN_TOPIC_ID, "error_message": Fault.UNKNOWN_TOPIC_ID.value}


async def _delete(ctx: Context, name: str) -> dict[str, object]:
    try:
        ctx.check(Operation.DELETE, ResourceKind.TOPIC, name)
        check_own(ctx.cluster, name)
        topic = await ctx.cluster.definitions.delete_topic(name)
    except TreecastError as error:
        return {"error_code": ctx.code(error), "error_message": error.detail}
    return {"error_code": errors.NONE, "error_message": None, "topic_id": topic.topic_id}


def _refuse_delete(request: Message, code: int, detail: str) -> Fields:
    named = [{"name": name} for name in request.topic_names]
    stated = [{"name": row.name or "", "topic_id": row.topic_id} for row in request.topics]
    return {"responses": [row | {"error_code": code, "error_message": detail} for row in named + stated]}


# --- CreatePartitions


async def create_partitions(ctx: Context, request: Message) -> Fields:
    times = Counter(topic.name for topic in request.topics)
    rows: list[Fields] = []
    async for asked in paced(ctx, request.topics):
        code, detail = errors.NONE, None
        try:
            if times[asked.name] > 1:
                raise TreecastError(
                    Fault.INVALID_REQUEST, f"topic {asked.name} is named twice in the request"
                )
            ctx.check(Operation.ALTER, ResourceKind.TOPIC, asked.name)
            check_own(ctx.cluster, asked.name)
            _check_growth(ctx, asked)
            await ctx.cluster.definitions.create_partitions(
                asked.name, asked.count, validate_only=request.validate_only
            )
        except TreecastError as error:
            code, detail = ctx.code(error), error.detail
        rows.append({"name": asked.name, "error_code": code, "error_message": detail})
    return {"results": rows}


def _check_growth(ctx: Context, asked: Message) -> None:
    topic = ctx.cluster.definitions.topics().get(asked.name)
    if topic is None or asked.assignments is None:
        return  # `create_partitions` of the definitions refuses a missing topic
    if len(asked.assignments) != asked.count - topic.partitions:
        raise TreecastError(Fault.INVALID_ASSIGNMENT, "each new partition needs one assignment")
    _check_assignment(ctx, [row.broker_ids for row in asked.assignments])


def _refuse_growth(request: Message, code: int, detail: str) -> Fields:
    return {
        "results": [
            {"name": topic.name, "error_code": code, "error_message": detail} for topic in request.topics
        ]
    }


# --- DeleteRecords


async def delete_records(ctx: Context, request: Message) -> Fields:
    rows: list[PartitionRow] = []
    partitions = ((topic, asked) for topic in request.topics for asked in topic.partitions)
    async for topic, asked in paced(ctx, partitions):
        partition = TopicPartition(topic.name, asked.partition_index)
        rows.append((partition, await _delete_before(ctx, partition, asked.offset)))
    return {"topics": topic_rows(rows)}


async def _delete_before(ctx: Context, partition: TopicPartition, offset: int) -> Fields:
    row = {"partition_index": partition.partition}
    try:
        ctx.check(Operation.DELETE, ResourceKind.TOPIC, partition.topic)
        leader = visible_partition(ctx.cluster, partition.topic, partition.partition)
        start = await settled(leader.delete_before(offset))
    except TreecastError as error:
        return row | {"error_code": ctx.code(error), "low_watermark": -1}
    return row | {"error_code": errors.NONE, "low_watermark": start}


HANDLERS = {
    v.CREATE_TOPICS: Handler(create_topics, _refuse_create),
    v.DELETE_TOPICS: Handler(delete_topics, _refuse_delete),
    v.CREATE_PARTITIONS: Handler(create_partitions, _refuse_growth),
    v.DELETE_RECORDS: Handler(delete_records, refuse_partitions),
}
