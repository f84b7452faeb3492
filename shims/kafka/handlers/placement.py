"""ElectLeaders and ListPartitionReassignments: clients see one replica per partition, which is its leader."""

from __future__ import annotations

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

from .. import errors
from .. import versions as v
from .base import Context, Fields, Handler, Message, by_topic, known_partition, paced, refuse_with_message

_PREFERRED, _UNCLEAN = 0, 1


async def elect_leaders(ctx: Context, request: Message) -> Fields:
    """Answers ELECTION_NOT_NEEDED for each requested partition.

    A request for all partitions gets an empty list: Kafka's answer then names only those whose leader has
    changed.
    """
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise TreecastError(Fault.INVALID_REQUEST, f"unknown election type {request.election_type}")
    asked = [
        TopicPartition(topic.topic, index)
        for topic in request.topic_partitions or ()
        for index in topic.partitions
    ]
    rows = [(partition, _elected(ctx, partition)) async for partition in paced(ctx, asked)]
    return {
        "error_code": errors.NONE,
        "replica_election_results": [
            {"topic": topic, "partition_result": results} for topic, results in by_topic(rows)
        ],
    }


def _elected(ctx: Context, partition: TopicPartition) -> Fields:
    row = {"partition_id": partition.partition}
    if not known_partition(ctx.cluster, partition):
        detail = f"there is no partition {partition}"
        return row | {"error_code": errors.UNKNOWN_TOPIC_OR_PARTITION, "error_message": detail}
    return row | {
        "error_code": errors.ELECTION_NOT_NEEDED,
        "error_message": "the partition has one replica, which leads it",
    }


def _refuse_elections(request: Message, code: int, detail: str) -> Fields:
    """Puts the error at the top, which exists from version 1 on, and in the row of each partition."""
    results = [
        {
            "topic": topic.topic,
            "partition_result": [
                {"partition_id": index, "error_code": code, "error_message": detail}
                for index in topic.partitions
            ],
        }
        for topic in request.topic_partitions or ()
    ]
    return {"error_code": code, "replica_election_results": results}


def list_partition_reassignments(ctx: Context, request: Message) -> Fields:
    """Returns an empty list: no reassignment is ever in progress."""
    return {"error_code": errors.NONE, "error_message": None, "topics": []}


HANDLERS = {
    v.ELECT_LEADERS: Handler(elect_leaders, _refuse_elections),
    v.LIST_PARTITION_REASSIGNMENTS: Handler(list_partition_reassignments, refuse_with_message),
}
