"""DescribeConfigs, IncrementalAlterConfigs (KIP-339), AlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from treecast.middleware.broker import GROUPS, ConfigChange, ConfigOperation, Topic
from treecast.middleware.broker.access import Operation, ResourceKind
from treecast.middleware.model.errors import Fault, TreecastError

from .. import errors
from .. import versions as v
from ..internal import check_own, visible_topic, visible_topics
from .base import Context, Fields, Handler, Message, paced
from .config_rows import Row, broker_config_rows, group_config_rows, topic_config_rows

_TOPIC = 2
_BROKER = 4
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_GROUP = 32
_RESOURCES = frozenset({_TOPIC, _BROKER, _BROKER_LOGGER, _CLIENT_METRICS, _GROUP})  # KIP-1142
_OPERATIONS = {operation.value for operation in ConfigOperation}

_ChangesOf = Callable[[Mapping[str, str], Message], Sequence[ConfigChange]]


def _topic(ctx: Context, name: str) -> Topic:
    topic = visible_topic(ctx.cluster, name)
    if topic is None:
        raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {name}")
    return topic


def _check_broker(ctx: Context, name: str) -> None:
    """Raises INVALID_REQUEST unless `name` is this broker's id or "", the cluster-wide default."""
    if name not in ("", str(ctx.node_id)):
        raise TreecastError(Fault.INVALID_REQUEST, f"this is broker {ctx.node_id}, not {name}")


def _check(ctx: Context, operation: Operation, kind: int, name: str) -> None:
    """Raises FORBIDDEN_TOPIC, or the like, if the client lacks a right on a resource with configuration."""
    if kind == _TOPIC:
        ctx.check(operation, ResourceKind.TOPIC, name)
    elif kind == _GROUP:
        ctx.check(operation, ResourceKind.GROUP, name)
    else:
        ctx.check(operation, ResourceKind.CLUSTER)


# --- DescribeConfigs


async def describe_configs(ctx: Context, request: Message) -> Fields:
    resources = paced(ctx, request.resources)
    return {"results": [await _described(ctx, request, resource) async for resource in resources]}


async def _described(ctx: Context, request: Message, resource: Message) -> Fields:
    kind, name = resource.resource_type, resource.resource_name
    answer = {"resource_type": kind, "resource_name": name}
    try:
        _check(ctx, Operation.DESCRIBE_CONFIGS, kind, name)
        rows = await _rows(ctx, kind, name)
    except TreecastError as error:
        return answer | {"error_code": ctx.code(error), "error_message": error.detail, "configs": []}
    wanted = resource.configuration_keys
    return answer | {
        "error_code": errors.NONE,
        "error_message": None,
        "configs": [_shown(request, row) for row in rows if wanted is None or row["name"] in wanted],
    }


async def _rows(ctx: Context, kind: int, name: str) -> list[Row]:
    if kind == _TOPIC:
        return topic_config_rows(_topic(ctx, name).config, ctx.broker.topic_defaults)
    if kind == _BROKER:
        _check_broker(ctx, name)
        if name == "":
            return []  # there are no dynamic cluster-wide settings
        return broker_config_rows(ctx.node_id, ctx.address, ctx.broker, ctx.settings)
    if kind == _GROUP:
        return group_config_rows(await ctx.cluster.home(GROUPS, name).alter_config(name, ()), ctx.broker)
    raise TreecastError(Fault.NOT_SUPPORTED, f"resources of type {kind} have no configuration here")


def _shown(request: Message, row: Row) -> Row:
    if not request.include_synonyms:
        row["synonyms"] = []
    if not request.include_documentation:
        row["documentation"] = None
    return row


def _refuse_describe(request: Message, code: int, detail: str) -> Fields:
    return {"results": [_answer(r, code, detail) | {"configs": []} for r in request.resources]}


# --- IncrementalAlterConfigs, AlterConfigs


async def incremental_alter_configs(ctx: Context, request: Message) -> Fields:
    """Sets, resets, appends to or subtracts from single keys of topics and groups."""
    resources = paced(ctx, request.resources)
    return {"responses": [await _alter(ctx, request, resource, _changes) async for resource in resources]}


async def alter_configs(ctx: Context, request: Message) -> Fields:
    """Replaces all overrides of topics and groups. A key that is not named returns to its default."""
    resources = paced(ctx, request.resources)
    return {"responses": [await _alter(ctx, request, resource, _replacement) async for resource in resources]}


async def _alter(ctx: Context, request: Message, resource: Message, changes_of: _ChangesOf) -> Fields:
    try:
        _check(ctx, Operation.ALTER_CONFIGS, resource.resource_type, resource.resource_name)
        if resource.resource_type == _BROKER:
            _check_broker(ctx, resource.resource_name)
            raise TreecastError(
                Fault.POLICY_VIOLATION, "a daemon's settings are set by its configuration file or flags"
            )
        if resource.resource_type == _GROUP:
            await _alter_group(ctx, request, resource, changes_of)
            return _answer(resource, errors.NONE, None)
        if resource.resource_type != _TOPIC:
            raise TreecastError(
                Fault.NOT_SUPPORTED, f"resources of type {resource.resource_type} have no configuration here"
            )
        _refuse_repeats(resource)
        topic = _topic(ctx, resource.resource_name)
        check_own(ctx.cluster, topic.name)
        await ctx.cluster.definitions.alter_topic(
            topic.name, changes_of(topic.config.overrides, resource), validate_only=request.validate_only
        )
    except TreecastError as error:
        return _answer(resource, ctx.code(error), error.detail)
    return _answer(resource, errors.NONE, None)


async def _alter_group(ctx: Context, request: Message, resource: Message, changes_of: _ChangesOf) -> None:
    name = resource.resource_name
    _refuse_repeats(resource)
    home = ctx.cluster.home(GROUPS, name)
    overrides = await home.alter_config(name, ())
    await home.alter_config(name, changes_of(overrides, resource), validate_only=request.validate_only)


def _refuse_repeats(resource: Message) -> None:
    twice = [name for name, times in Counter(row.name for row in resource.configs).items() if times > 1]
    if twice:
        raise TreecastError(Fault.INVALID_REQUEST, f"these keys are given twice: {', '.join(twice)}")


def _changes(overrides: Mapping[str, str], resource: Message) -> Sequence[ConfigChange]:
    for row in resource.configs:
        if row.config_operation not in _OPERATIONS:
            raise TreecastError(Fault.INVALID_REQUEST, f"unknown operation {row.config_operation}")
        if row.value is None and row.config_operation != ConfigOperation.DELETE:
            raise TreecastError(Fault.INVALID_REQUEST, f"no value for {row.name}")
    return [
        ConfigChange(row.name, ConfigOperation(row.config_operation), row.value) for row in resource.configs
    ]


def _replacement(overrides: Mapping[str, str], resource: Message) -> Sequence[ConfigChange]:
    named = {row.name: row.value for row in resource.configs}
    if None in named.values():
        raise TreecastError(Fault.INVALID_REQUEST, "a value is missing")
    gone = [ConfigChange(key, ConfigOperation.DELETE, None) for key in overrides if key not in named]
    return gone + [ConfigChange(key, ConfigOperation.SET, value) for key, value in named.items()]


def _answer(resource: Message, code: int, detail: str | None) -> Row:
    return {
        "error_code": code,
        "error_message": detail,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


def _refuse_alter(request: Message, code: int, detail: str) -> Fields:
    return {"responses": [_answer(resource, code, detail) for resource in request.resources]}


# --- ListConfigResources


def list_config_resources(ctx: Context, request: Message) -> Fields:
    """Lists topics and this broker. Version 0 lists client metrics only (KIP-714); there are none."""
    wanted = {_CLIENT_METRICS} if ctx.version == 0 else set(request.resource_types or _RESOURCES)
    if not wanted <= _RESOURCES:
        raise TreecastError(
            Fault.UNSUPPORTED_VERSION, f"resources of type {min(wanted - _RESOURCES)} have no configuration"
        )
    rows: list[Fields] = []
    if _TOPIC in wanted:
        rows += [{"resource_name": name, "resource_type": _TOPIC} for name in visible_topics(ctx.cluster)]
    if _BROKER in wanted:
        rows.append({"resource_name": str(ctx.node_id), "resource_type": _BROKER})
    return {"error_code": errors.NONE, "config_resources": rows}


def _refuse_list(request: Message, code: int, detail: str) -> Fields:
    return {"error_code": code, "config_resources": []}


HANDLERS = {
    v.DESCRIBE_CONFIGS: Handler(describe_configs, _refuse_describe),
    v.INCREMENTAL_ALTER_CONFIGS: Handler(incremental_alter_configs, _refuse_alter),
    v.ALTER_CONFIGS: Handler(alter_configs, _refuse_alter),
    v.LIST_CONFIG_RESOURCES: Handler(list_config_resources, _refuse_list),
}
