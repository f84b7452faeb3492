"""DescribeLogDirs: how many bytes each partition keeps (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterator

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition

from .. import errors
from .. import versions as v
from ..internal import visible_partition
from .base import Context, Fields, Handler, Message, known_partition
from .offsets import PartitionRow, topic_rows


def describe_log_dirs(ctx: Context, request: Message) -> Fields:
    """One directory, with the partitions asked for, or all of them where null is asked."""
    directory = {
        "error_code": errors.NONE,
        "log_dir": str(ctx.broker.data),
        "topics": topic_rows(_rows(ctx, request)),
    }
    return {"error_code": errors.NONE, "results": [directory]}


def _rows(ctx: Context, request: Message) -> Iterator[PartitionRow]:
    for partition in _wanted(ctx, request):
        try:
            size = visible_partition(ctx.cluster, partition.topic, partition.partition).size
        except TreecastError:
            continue  # deleted just now, or no log of it is kept here
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
    """At the top from version 3 on; before, for the one directory."""
    return {"error_code": code, "results": [{"error_code": code, "log_dir": "", "topics": []}]}


HANDLERS = {v.DESCRIBE_LOG_DIRS: Handler(describe_log_dirs, _refuse)}
