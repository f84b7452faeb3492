"""Records and offsets in partitions."""

from __future__ import annotations

import random
from typing import Any

from .base import TRANSACTIONAL, Given, Named, Records, Step, a_partition, a_topic, one
from .transactions import producer_fields


def _records(rng: random.Random) -> Records:
    harm = one(rng, ("",), ("crc", "cut", "magic", "twice", "nothing", "offset", "control"), 0.15)
    compression = 0 if harm else one(rng, (0,), (1, 2, 3, 4))
    return Records(rng.choice((1, 1, 2, 3)), compression=compression, keyed=rng.random() < 0.9, harm=harm)


def _produce(rng: random.Random, records: Records, transactional_id: Named | None = None) -> Step:
    unusual = rng.random() < 0.03
    if unusual:
        records = Records()
    topic, index = (Named("t0"), 0) if unusual else (a_topic(rng), a_partition(rng))
    fields = {
        "transactional_id": transactional_id,
        "acks": 2 if unusual else rng.choice((-1, -1, 1)),
        "timeout_ms": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": index, "records": records}]}],
    }
    needs = Given("producer", records.producer) if records.producer else None
    return Step("Produce", rng.randint(3, 11), fields, needs=needs)


def produce(rng: random.Random) -> Step:
    return _produce(rng, _records(rng))


def produce_in_order(rng: random.Random) -> Step:
    return _produce(rng, _in_order(rng, "p0"))


def _in_order(rng: random.Random, producer: str) -> Records:
    """A batch that may be a repeat, or of the wrong epoch or sequence number."""
    return Records(
        count=rng.choice((1, 1, 2)),
        producer=producer,
        epoch_change=one(rng, (0,), (-1,) if producer in TRANSACTIONAL else (1, -1), 0.1),
        sequence_change=one(rng, (0,), (1, -1, -2, 3), 0.2),
        transactional=producer in TRANSACTIONAL,
    )


def produce_in_transaction(rng: random.Random) -> list[Step]:
    """Adds a partition and writes to it, because a daemon writes no marker to partitions without records."""
    producer, topic, index = rng.choice(TRANSACTIONAL), Named(one(rng, ("t0",), ("none",))), a_partition(rng)
    given = Given("producer", producer)
    added = {f"v3_and_below_{field}": value for field, value in producer_fields(producer).items()}
    added["v3_and_below_topics"] = [{"name": topic, "partitions": [index]}]
    first = Records(count=rng.choice((1, 2)), producer=producer, transactional=True)
    written = [first, *(_in_order(rng, producer) for _ in range(rng.choice((0, 0, 1, 2))))]
    steps = [Step("AddPartitionsToTxn", rng.randint(0, 3), added, needs=given)]
    for records in written:
        partition = {"index": index, "records": records}
        fields = {
            "transactional_id": Named(producer),
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": topic, "partition_data": [partition]}],
        }
        steps.append(Step("Produce", rng.randint(3, 11), fields, needs=given))
    return steps


def fetch(rng: random.Random) -> Step:
    version = rng.randint(5, 17)
    topic = a_topic(rng)
    partition = {
        "partition": a_partition(rng),
        "current_leader_epoch": one(rng, (-1, -1, 0), (5,)),
        "fetch_offset": one(rng, (0, 0, 1, 2, 3, 5, 8), (100, -1)),
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": one(rng, (1 << 20,), (1, 80, 0)),
    }
    named: dict[str, Any] = {"topic_id": Given("topic", topic.name)} if version >= 13 else {"topic": topic}
    fields = {
        "replica_id": -1,
        "max_wait_ms": 10,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": rng.randint(0, 1),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**named, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return Step("Fetch", version, fields)


def list_offsets(rng: random.Random) -> Step:
    moment = one(rng, ("now", "next", "later", -1, -1, -2, -2, -3, 0), (-4, -7))
    partition = {
        "partition_index": a_partition(rng),
        "current_leader_epoch": one(rng, (-1, -1, 0), (5,)),
        "timestamp": moment,
    }
    # For the largest timestamp, Kafka may give an offset that DeleteRecords has removed.
    topic = {"name": Named("t1") if moment == -3 else a_topic(rng), "partitions": [partition]}
    fields = {"replica_id": -1, "isolation_level": rng.randint(0, 1), "topics": [topic]}
    return Step("ListOffsets", rng.randint(1, 7), fields)


def delete_records(rng: random.Random) -> Step:
    partition = {"partition_index": a_partition(rng), "offset": one(rng, (0, 1, 2), (-1, 100, -2))}
    topic = {"name": Named(one(rng, ("t0",), ("none",))), "partitions": [partition]}
    return Step("DeleteRecords", rng.randint(0, 2), {"topics": [topic], "timeout_ms": 10_000})


def end_of_epoch(rng: random.Random) -> Step:
    partition = {
        "partition": a_partition(rng),
        "current_leader_epoch": one(rng, (-1, 0), (5,)),
        "leader_epoch": one(rng, (0,), (-1, 5)),
    }
    topic = {"topic": a_topic(rng), "partitions": [partition]}
    return Step("OffsetForLeaderEpoch", rng.randint(2, 4), {"replica_id": -2, "topics": [topic]})


def describe_producers(rng: random.Random) -> Step:
    topic = {"name": a_topic(rng), "partition_indexes": [a_partition(rng)]}
    return Step("DescribeProducers", 0, {"topics": [topic]})
