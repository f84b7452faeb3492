"""DescribeLogDirs: the size of each partition's log in bytes (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterator

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition

from .. import errors
from .. import versions as v
from ..internal import visible_partition
from .base import Context, Fields, Handler, Message, known_partition, paced
from .offsets import PartitionRow, topic_rows


async def describe_log_dirs(ctx: Context, request: Message) -> Fields:
    """Returns one directory, with the requested partitions, or with all if the request has null."""
    directory = {
        "error_code": errors.NONE,
        "log_dir": str(ctx.broker.data),
        "topics": topic_rows([row async for row in paced(ctx, _rows(ctx, request))]),
    }
    return {"error_code": errors.NONE, "results": [directory]}


def _rows(ctx: Context, request: Message) -> Iterator[PartitionRow]:
    for partition in _wanted(ctx, request):
        try:
            size = visible_partition(ctx.cluster, partition.topic, partition.partition).size
        except TreecastError:
            continue  # just deleted, or this host keeps no log of it
        yield partition, {"partition_index": partition.partition, "partition_size": size, "offset_lag": 0}


def _wanted(ctx: Context, request: Message) -> Iterator[TopicPartition]:
    if request.topics is None:
        for topic in ctx.cluster.definitions.topics().values():
            yield from (TopicPartition(topic.name, index) for index in range(topic.partitions))
        return
    for asked in request.topics:
        for index in asked.partitions:
            partition = TopicPartition(asked.topic, index)
            if known_partition(ctx.cluster, partition):
                yield partition


def _refuse(request: Message, code: int, detail: str) -> Fields:
    """Puts the error at the top, which exists from version 3 on, and in the row of the one directory."""
    return {"error_code": code, "results": [{"error_code": code, "log_dir": "", "topics": []}]}


HANDLERS = {v.DESCRIBE_LOG_DIRS: Handler(describe_log_dirs, _refuse)}
