"""Metadata, DescribeCluster, FindCoordinator: show the cluster as one broker, the daemon that answers."""

from __future__ import annotations

from treecast.middleware.broker import NewTopic, Topic
from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topics import check_kafka_name

from .. import errors
from .. import versions as v
from ..internal import visible_partition, visible_topic, visible_topic_by_id, visible_topics
from ..messages import NO_UUID
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
    refuse_with_message,
)

_LATER = TreecastError(Fault.LEADER_UNAVAILABLE, "the topic is created later: many others are new")
_ENDPOINT_BROKERS = 1
_KEY_TYPES = (0, 1)  # group, transactional id: every home is reached through the answering daemon


def broker_row(ctx: Context) -> Fields:
    host, port = ctx.address
    return {"node_id": ctx.node_id, "host": host, "port": port, "rack": None}


# --- Metadata


async def metadata(ctx: Context, request: Message) -> Fields:
    """Returns the topics requested by name or id, or all. Creates missing ones if both sides allow it."""
    return {
        "brokers": [broker_row(ctx)],
        "cluster_id": ctx.cluster.cluster_id,
        "controller_id": ctx.node_id,
        "topics": await _topics(ctx, request),
        "cluster_authorized_operations": _cluster_operations(ctx, request),
    }


def _cluster_operations(ctx: Context, request: Message) -> int:
    """Returns what the client may do to the cluster: nothing is told to who may not describe it."""
    asked = request.include_cluster_authorized_operations
    if asked and not ctx.may(Operation.DESCRIBE, ResourceKind.CLUSTER):
        return 0
    return ctx.operations(asked, ResourceKind.CLUSTER)


def _may_see(ctx: Context, name: str) -> bool:
    return ctx.may(Operation.DESCRIBE, ResourceKind.TOPIC, name)


async def _topics(ctx: Context, request: Message) -> list[Fields]:
    operations = bool(request.include_topic_authorized_operations)
    every = request.topics is None or (ctx.version == 0 and not request.topics)
    if every:
        topics = [topic for topic in visible_topics(ctx.cluster).values() if _may_see(ctx, topic.name)]
        return [topic_row(ctx, topic, operations) async for topic in paced(ctx, topics)]
    create = ctx.broker.auto_create_topics and request.allow_auto_topic_creation
    rows: dict[object, Fields] = {}
    missing: list[Message] = []
    async for asked in paced(ctx, request.topics):
        key = asked.topic_id if _by_id(asked) else asked.name
        if key in rows:
            continue
        try:
            topic = _find(ctx, asked, create)
        except TreecastError as error:
            rows[key] = _missing_row(ctx, asked, error)
        else:
            rows[key] = topic_row(ctx, topic, operations) if topic is not None else {}
            missing += [asked] if topic is None else []
    async for asked, made in paced(ctx, await _created(ctx, missing)):
        if isinstance(made, TreecastError):
            rows[asked.name] = _missing_row(ctx, asked, made)
        else:
            rows[asked.name] = topic_row(ctx, made, operations)
    return list(rows.values())


def _by_id(asked: Message) -> bool:
    """Whether a topic is requested by its id. The name is then null or, from the Java client, empty."""
    return asked.name is None or (not asked.name and asked.topic_id != NO_UUID)


def _find(ctx: Context, asked: Message, create: bool) -> Topic | None:
    """Returns a topic, or None for one that is to be created."""
    if _by_id(asked):
        found = visible_topic_by_id(ctx.cluster.definitions, asked.topic_id)
        if not _may_see(ctx, found.name):  # an id tells its name to nobody who may not see the topic
            raise TreecastError(Fault.UNKNOWN_TOPIC_ID)
        return found
    ctx.check(Operation.DESCRIBE, ResourceKind.TOPIC, asked.name)
    known = visible_topic(ctx.cluster, asked.name)
    if known is not None:
        return known
    check_kafka_name(asked.name)
    if not create:
        raise TreecastError(Fault.UNKNOWN_TOPIC)
    check_create(ctx, asked.name)
    check_collision(ctx.cluster, asked.name)
    return None


async def _created(ctx: Context, missing: list[Message]) -> list[tuple[Message, Topic | TreecastError]]:
    """Creates as many of the missing topics as may be created now. The others are as a topic whose creation
    is not over yet: clients ask again."""
    answers: list[tuple[Message, Topic | TreecastError]] = []
    chosen: list[Message] = []
    flat: dict[str, str] = {}
    most = ctx.creations.take(len(missing))
    async for asked in paced(ctx, missing):
        other = flat.setdefault(flattened(asked.name), asked.name)
        if other != asked.name:
            answers.append((asked, colliding(asked.name, other)))
        elif len(chosen) < most:
            chosen.append(asked)
        else:
            answers.append((asked, _LATER))
    if not chosen:
        return answers
    definitions = ctx.cluster.definitions
    made = await definitions.create_topics([NewTopic(asked.name) for asked in chosen])
    for asked, answer in zip(chosen, made, strict=True):
        if isinstance(answer, TreecastError) and answer.fault is Fault.TOPIC_EXISTS:
            # another client may have created it meanwhile
            answer = definitions.topics().get(asked.name, answer)
        answers.append((asked, answer))
    return answers


def topic_row(ctx: Context, topic: Topic, operations: bool) -> Fields:
    return {
        "error_code": errors.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [_partition_row(ctx, topic.name, index) for index in range(topic.partitions)],
        "topic_authorized_operations": ctx.operations(operations, ResourceKind.TOPIC, topic.name),
    }


def _partition_row(ctx: Context, topic: str, index: int) -> Fields:
    node = [ctx.node_id]
    row = {"partition_index": index, "replica_nodes": node, "isr_nodes": node, "offline_replicas": []}
    try:
        epoch = visible_partition(ctx.cluster, topic, index).leader_epoch
    except TreecastError:
        return row | {"error_code": errors.LEADER_NOT_AVAILABLE, "leader_id": -1}
    return row | {"error_code": errors.NONE, "leader_id": ctx.node_id, "leader_epoch": epoch}


def _missing_row(ctx: Context, asked: Message, error: TreecastError) -> Fields:
    name = None if _by_id(asked) else asked.name
    if name is None and ctx.version < 12:
        name = ""
    row = {"error_code": ctx.code(error), "name": name}  # the rest is what a field has that is left out
    return row if asked.topic_id == NO_UUID else row | {"topic_id": asked.topic_id}


def _refuse_metadata(request: Message, code: int, detail: str) -> Fields:
    rows: list[Fields] = [
        {"error_code": code, "name": asked.name or "", "topic_id": NO_UUID, "partitions": []}
        for asked in request.topics or ()
    ]
    return {"brokers": [], "topics": rows}


# --- DescribeCluster


def describe_cluster(ctx: Context, request: Message) -> Fields:
    if request.endpoint_type != _ENDPOINT_BROKERS:
        return {"error_code": errors.UNSUPPORTED_ENDPOINT_TYPE, "endpoint_type": request.endpoint_type}
    host, port = ctx.address
    return {
        "cluster_id": ctx.cluster.cluster_id,
        "controller_id": ctx.node_id,
        "brokers": [{"broker_id": ctx.node_id, "host": host, "port": port}],
        "cluster_authorized_operations": _cluster_operations(ctx, request),
    }


# --- FindCoordinator


async def find_coordinator(ctx: Context, request: Message) -> Fields:
    """Answers for one key up to version 3, for many from version 4 on."""
    if ctx.version >= 4:
        keys = paced(ctx, request.coordinator_keys)
        rows = [{"key": key} | _coordinator(ctx, request, key) async for key in keys]
        return {"coordinators": rows}
    return _coordinator(ctx, request, request.key)


def _coordinator(ctx: Context, request: Message, key: str) -> dict[str, object]:
    if request.key_type not in _KEY_TYPES:
        return _no_coordinator(errors.INVALID_REQUEST, f"there are no keys of type {request.key_type}")
    kind = ResourceKind.TRANSACTIONAL_ID if request.key_type else ResourceKind.GROUP
    if not ctx.may(Operation.DESCRIBE, kind, key):
        refusal = ctx.refusal(Operation.DESCRIBE, kind, key)
        return _no_coordinator(ctx.code(refusal), refusal.detail)
    host, port = ctx.address
    return {
        "error_code": errors.NONE,
        "error_message": None,
        "node_id": ctx.node_id,
        "host": host,
        "port": port,
    }


def _no_coordinator(code: int, detail: str) -> dict[str, object]:
    return {"error_code": code, "error_message": detail, "node_id": -1, "host": "", "port": -1}


def _refuse_coordinator(request: Message, code: int, detail: str) -> Fields:
    if request.coordinator_keys:
        return {
            "coordinators": [{"key": key} | _no_coordinator(code, detail) for key in request.coordinator_keys]
        }
    return _no_coordinator(code, detail)


HANDLERS = {
    v.METADATA: Handler(metadata, _refuse_metadata),
    v.DESCRIBE_CLUSTER: Handler(describe_cluster, refuse_with_message),
    v.FIND_COORDINATOR: Handler(find_coordinator, _refuse_coordinator),
}
