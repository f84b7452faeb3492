"""Random sequences for `kafka_requests.py`: valid and invalid requests about a few topics, producers and
groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

TOPICS: Final = ("t0", "t1", "t2")
GROUPS: Final = ("g0", "g1")  # exist from the first steps on, because Kafka begins them at refused joins
SIMPLE: Final = "g2"  # only commits
IDEMPOTENT: Final = ("p0",)
TRANSACTIONAL: Final = ("x0", "x1")
MEMBERS: Final = ("m0", "m1")
NEW: Final = "n0"  # a group of the new protocol
CONSUMERS: Final = ("c0", "c1", "c2")
SUBSCRIBED: Final = {"u0": 3, "u1": 2}  # its topics and their partitions, which nothing else uses
SUBSCRIPTIONS: Final = (("u0",), ("u1",), ("u0", "u1"), ("u0", "u1"), ("none",))
SETTINGS: Final = (
    *("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "segment.bytes"),
    *("compression.type", "message.timestamp.type", "min.insync.replicas", "delete.retention.ms", "odd"),
)
VALUES: Final = (
    *("compact", "delete", "compact,delete", "delete,odd", "100000000", "-1", "-2", "0", "1.5", "x", ""),
    *("zstd", "producer", "odd", "CreateTime", None),
)


@dataclass(frozen=True)
class Named:
    """A name of this sequence: servers keep the topics and groups of earlier ones."""

    name: str


@dataclass(frozen=True)
class Given:
    """A value that the server gave out last for `name`, plus `change`: an id, an epoch, a generation."""

    kind: str
    name: str
    change: int = 0


@dataclass(frozen=True)
class Records:
    """One batch of records. `harm` names what is wrong with its bytes. The changes are added to the epoch and
    the sequence number that are due.
    """

    count: int = 1
    producer: str = ""
    epoch_change: int = 0
    sequence_change: int = 0
    transactional: bool = False
    compression: int = 0
    keyed: bool = True
    harm: str = ""


class Step(NamedTuple):
    """One request."""

    api: str
    version: int
    fields: dict[str, Any]
    about: str = ""  # the producer or member that the response tells something about
    needs: Given | None = None  # without which no client sends this


Maker = Callable[[random.Random], Step | list[Step]]


def _one(rng: random.Random, usual: Sequence[Any], odd: Sequence[Any] = (), chance: float = 0.12) -> Any:
    return rng.choice(odd) if odd and rng.random() < chance else rng.choice(usual)


def _topic(rng: random.Random) -> Named:
    return Named(_one(rng, ("t0", "t0", "t1"), ("t2", "none")))


def _partition(rng: random.Random) -> int:
    return int(_one(rng, (0, 0, 1), (5, -1)))


def _group(rng: random.Random) -> Named:
    return Named(rng.choice(GROUPS))


# --- topics


def create_topic(rng: random.Random) -> Step:
    """At most one thing is wrong, because servers look for faults in different orders."""
    topic = {
        "name": Named(rng.choice(TOPICS)),
        "num_partitions": rng.choice((1, 2, 2, 3)),
        "replication_factor": rng.choice((1, 1, -1)),
        "assignments": [],
        "configs": [],
    }
    special: dict[str, Any] = _one(
        rng,
        ({},),
        (
            *({"name": Named(name)} for name in ("a b", "t.2", "t_2", "x" * 250)),
            *({"num_partitions": count} for count in (-1, 0, -2)),
            *({"replication_factor": factor} for factor in (0, 2, -2)),
            *({"configs": [_setting(rng)]} for _ in range(10)),
        ),
        0.5,
    )
    fields = {"topics": [topic | special], "timeout_ms": 10_000, "validate_only": rng.random() < 0.2}
    return Step("CreateTopics", rng.randint(4, 7), fields)


def _setting(rng: random.Random) -> dict[str, Any]:
    name, value = rng.choice(SETTINGS), rng.choice(VALUES)
    if name == "max.message.bytes" and value == "0":
        value = "1000000"  # or most batches would be refused for two reasons
    return {"name": name, "value": value}


def delete_topic(rng: random.Random) -> Step:
    name = Named(_one(rng, ("t1", "t2"), ("none",)))
    return Step("DeleteTopics", rng.randint(1, 5), {"topic_names": [name], "timeout_ms": 10_000})


def create_partitions(rng: random.Random) -> Step:
    topic = {"name": _topic(rng), "count": _one(rng, (2, 3), (0, 1, -1)), "assignments": None}
    fields = {"topics": [topic], "timeout_ms": 10_000, "validate_only": rng.random() < 0.2}
    return Step("CreatePartitions", rng.randint(0, 3), fields)


def metadata(rng: random.Random) -> Step:
    version = rng.randint(4, 12)
    by_id = version >= 12 and rng.random() < 0.5
    name = Named(_one(rng, TOPICS, ("a b", "none", "x" * 250)))
    given = Given("topic", name.name)
    topic: dict[str, Any] = {"topic_id": given, "name": None} if by_id else {"name": name}
    fields = {"topics": [topic], "allow_auto_topic_creation": False}
    return Step("Metadata", version, fields, needs=given if by_id else None)


def alter_configs(rng: random.Random) -> Step:
    configs = [_change(rng) for _ in range(rng.choice((1, 1, 2)))]
    resource = {"resource_type": 2, "resource_name": _topic(rng), "configs": configs}
    fields = {"resources": [resource], "validate_only": rng.random() < 0.2}
    return Step("IncrementalAlterConfigs", rng.randint(0, 1), fields)


def _change(rng: random.Random) -> dict[str, Any]:
    """Sets, resets, appends or subtracts."""
    operation = rng.choice((0, 0, 1, 2, 3))
    setting = _setting(rng)
    if setting["name"] == "cleanup.policy" and operation >= 2:
        setting["value"] = rng.choice(("delete", "compact", "compact,delete"))
    return setting | {"config_operation": operation}


def replace_configs(rng: random.Random) -> Step:
    configs = [_setting(rng) for _ in range(rng.choice((0, 1)))]
    resource = {"resource_type": 2, "resource_name": _topic(rng), "configs": configs}
    fields = {"resources": [resource], "validate_only": rng.random() < 0.2}
    return Step("AlterConfigs", rng.randint(0, 2), fields)


def describe_configs(rng: random.Random) -> Step:
    names = [rng.choice(SETTINGS) for _ in range(rng.choice((1, 1, 2)))]
    resource = {"resource_type": 2, "resource_name": _topic(rng), "configuration_keys": names}
    return Step("DescribeConfigs", rng.randint(1, 4), {"resources": [resource]})


# --- records


def _records(rng: random.Random) -> Records:
    harm = _one(rng, ("",), ("crc", "cut", "magic", "twice", "nothing", "offset", "control"), 0.15)
    compression = 0 if harm else _one(rng, (0,), (1, 2, 3, 4))
    return Records(rng.choice((1, 1, 2, 3)), compression=compression, keyed=rng.random() < 0.9, harm=harm)


def _produce(rng: random.Random, records: Records, transactional_id: Named | None = None) -> Step:
    unusual = rng.random() < 0.03
    if unusual:
        records = Records()
    topic, index = (Named("t0"), 0) if unusual else (_topic(rng), _partition(rng))
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
        epoch_change=_one(rng, (0,), (-1,) if producer in TRANSACTIONAL else (1, -1), 0.1),
        sequence_change=_one(rng, (0,), (1, -1, -2, 3), 0.2),
        transactional=producer in TRANSACTIONAL,
    )


def produce_in_transaction(rng: random.Random) -> list[Step]:
    """Adds a partition and writes to it, because a daemon writes no marker to partitions without records."""
    producer, topic, index = rng.choice(TRANSACTIONAL), Named(_one(rng, ("t0",), ("none",))), _partition(rng)
    given = Given("producer", producer)
    added = {f"v3_and_below_{field}": value for field, value in _producer(producer).items()}
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
    topic = _topic(rng)
    partition = {
        "partition": _partition(rng),
        "current_leader_epoch": _one(rng, (-1, -1, 0), (5,)),
        "fetch_offset": _one(rng, (0, 0, 1, 2, 3, 5, 8), (100, -1)),
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": _one(rng, (1 << 20,), (1, 80, 0)),
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
    moment = _one(rng, ("now", "next", "later", -1, -1, -2, -2, -3, 0), (-4, -7))
    partition = {
        "partition_index": _partition(rng),
        "current_leader_epoch": _one(rng, (-1, -1, 0), (5,)),
        "timestamp": moment,
    }
    # For the largest timestamp, Kafka may give an offset that DeleteRecords has removed.
    topic = {"name": Named("t1") if moment == -3 else _topic(rng), "partitions": [partition]}
    fields = {"replica_id": -1, "isolation_level": rng.randint(0, 1), "topics": [topic]}
    return Step("ListOffsets", rng.randint(1, 7), fields)


def delete_records(rng: random.Random) -> Step:
    partition = {"partition_index": _partition(rng), "offset": _one(rng, (0, 1, 2), (-1, 100, -2))}
    topic = {"name": Named(_one(rng, ("t0",), ("none",))), "partitions": [partition]}
    return Step("DeleteRecords", rng.randint(0, 2), {"topics": [topic], "timeout_ms": 10_000})


def end_of_epoch(rng: random.Random) -> Step:
    partition = {
        "partition": _partition(rng),
        "current_leader_epoch": _one(rng, (-1, 0), (5,)),
        "leader_epoch": _one(rng, (0,), (-1, 5)),
    }
    topic = {"topic": _topic(rng), "partitions": [partition]}
    return Step("OffsetForLeaderEpoch", rng.randint(2, 4), {"replica_id": -2, "topics": [topic]})


def describe_producers(rng: random.Random) -> Step:
    topic = {"name": _topic(rng), "partition_indexes": [_partition(rng)]}
    return Step("DescribeProducers", 0, {"topics": [topic]})


# --- producers


def _producer(name: str) -> dict[str, Any]:
    return {
        "transactional_id": Named(name),
        "producer_id": Given("producer", name),
        "producer_epoch": Given("epoch", name),
    }


def init_producer(rng: random.Random) -> Step:
    name = rng.choice(IDEMPOTENT + TRANSACTIONAL + TRANSACTIONAL)
    resumes = rng.random() < 0.2
    fields = {
        "transactional_id": Named(name) if name in TRANSACTIONAL else None,
        "transaction_timeout_ms": _one(rng, (60_000,), (0, -1, 10**9), 0.06),
        "producer_id": Given("producer", name) if resumes else -1,
        "producer_epoch": Given("epoch", name) if resumes else -1,
    }
    return Step("InitProducerId", rng.randint(0, 4), fields, name)


def commit_in_transaction(rng: random.Random) -> list[Step]:
    """Adds a group and commits for it: Kafka begins a group at a commit, even if it is then refused."""
    name, group = rng.choice(TRANSACTIONAL), _group(rng)
    given = Given("producer", name)
    member = rng.random() < 0.2
    committed = _producer(name) | {
        "group_id": group,
        "generation_id": Given("generation", group.name) if member else -1,
        "member_id": Given("member", "m0") if member else "",
        "group_instance_id": None,
        "topics": [{"name": _topic(rng), "partitions": [_committed(rng)]}],
    }
    added = _producer(name) | {"group_id": group}
    return [
        Step("AddOffsetsToTxn", rng.randint(0, 3), added, needs=given),
        Step("TxnOffsetCommit", rng.randint(0, 3), committed, needs=given),
    ]


def end_transaction(rng: random.Random) -> Step:
    name = rng.choice(TRANSACTIONAL)
    fields = _producer(name) | {"committed": rng.random() < 0.6}
    fields["producer_epoch"] = Given("epoch", name, _one(rng, (0,), (-1, 1), 0.05))
    return Step("EndTxn", rng.randint(0, 3), fields, needs=Given("producer", name))


def describe_transaction(rng: random.Random) -> Step:
    return Step(
        "DescribeTransactions", 0, {"transactional_ids": [Named(rng.choice((*TRANSACTIONAL, "none")))]}
    )


# --- groups


def _committed(rng: random.Random) -> dict[str, Any]:
    return {
        "partition_index": _partition(rng),
        "committed_offset": _one(rng, (0, 3, 7), (-1, -2)),
        "committed_leader_epoch": _one(rng, (-1, -1, 0), (5,)),
        "committed_metadata": _one(rng, ("", "noted"), (None, "x" * 5000)),
    }


def commit(rng: random.Random) -> Step:
    if rng.random() < 0.2:
        return Step("OffsetCommit", rng.randint(2, 8), _commits(Named(SIMPLE)))
    group = _group(rng)
    member = rng.random() < 0.4
    generation = Given("generation", group.name, _one(rng, (0,), (1, -1)))
    fields = _commits(group) | {
        "generation_id_or_member_epoch": generation if member else _one(rng, (-1,), (0, 1)),
        "member_id": Given("member", rng.choice(MEMBERS)) if member else _one(rng, ("",), ("who",)),
        "topics": [{"name": _topic(rng), "partitions": [_committed(rng)]}],
    }
    return Step("OffsetCommit", rng.randint(2, 8), fields)


def _commits(group: Named) -> dict[str, Any]:
    """Returns the fields of a commit by a client without a membership."""
    row = {
        "partition_index": 0,
        "committed_offset": 0,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [{"name": Named("t0"), "partitions": [row]}],
    }


def fetch_committed(rng: random.Random) -> Step:
    version = rng.randint(1, 8)
    topics = [{"name": _topic(rng), "partition_indexes": [_partition(rng)]}]
    asked: list[dict[str, Any]] | None = None if version >= 2 and rng.random() < 0.3 else topics
    group = _group(rng)
    fields: dict[str, Any] = {"require_stable": rng.random() < 0.3}
    if version >= 8:
        fields["groups"] = [{"group_id": group, "topics": asked}]
    else:
        fields |= {"group_id": group, "topics": asked}
    return Step("OffsetFetch", version, fields)


def delete_offsets(rng: random.Random) -> Step:
    """Deletes other offsets than those with which the groups began: a daemon forgets a group without any."""
    partition = {"partition_index": _one(rng, (1,), (5, -1))}
    topic = {"name": _topic(rng), "partitions": [partition]}
    return Step("OffsetDelete", 0, {"group_id": _group(rng), "topics": [topic]})


def join(rng: random.Random) -> list[Step]:
    """A join, and the request for the assignment, without which a group soon removes the member."""
    group, member = _group(rng), rng.choice(MEMBERS)
    protocols = _one(rng, (("range",), ("range", "sticky"), ("sticky",)), ((),), 0.05)
    joins = {
        "group_id": _one(rng, (group,), ("",), 0.03),
        "session_timeout_ms": _one(rng, (30_000,), (1, 10**8), 0.05),
        "rebalance_timeout_ms": 1000,
        "member_id": Given("member", member) if rng.random() < 0.7 else _one(rng, ("",), ("who",)),
        "group_instance_id": _one(rng, (None,), ("i0", "i1"), 0.3),
        "protocol_type": _one(rng, ("consumer",), ("", "connect"), 0.06),
        "protocols": [{"name": name, "metadata": b"\0" * 10} for name in protocols],
        "reason": None,
    }
    asks = {
        "group_id": group,
        "generation_id": Given("generation", group.name),
        "member_id": Given("member", member),
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": None,
        "assignments": [{"member_id": Given("member", member), "assignment": b"part"}],
    }
    return [
        Step("JoinGroup", rng.randint(2, 9), joins, member),
        Step("SyncGroup", rng.randint(0, 4), asks),
    ]


def synchronize(rng: random.Random) -> Step:
    group, member = _group(rng), rng.choice(MEMBERS)
    assigned = {"member_id": Given("member", member), "assignment": b"part"}
    fields = {
        "group_id": group,
        "generation_id": Given("generation", group.name, _one(rng, (0,), (1, -1))),
        "member_id": _one(rng, (Given("member", member),), ("", "who")),
        "group_instance_id": None,
        "protocol_type": _one(rng, ("consumer", None), ("connect",)),
        "protocol_name": _one(rng, ("range", None), ("sticky",)),
        "assignments": [assigned] if rng.random() < 0.8 else [],
    }
    return Step("SyncGroup", rng.randint(0, 5), fields)


def heartbeat(rng: random.Random) -> Step:
    group = _group(rng)
    fields = {
        "group_id": group,
        "generation_id": Given("generation", group.name, _one(rng, (0,), (1, -1))),
        "member_id": _one(rng, (Given("member", rng.choice(MEMBERS)),), ("", "who")),
        "group_instance_id": _one(rng, (None,), ("i0",)),
    }
    return Step("Heartbeat", rng.randint(0, 4), fields)


def leave(rng: random.Random) -> Step:
    version = rng.randint(0, 5)
    # Kafka rebalances if an id leaves that has not joined yet; a daemon has no reason to.
    member = _one(rng, (Given("joined", rng.choice(MEMBERS)),), ("", "who"))
    fields: dict[str, Any] = {"group_id": _group(rng)}
    if version >= 3:
        instance = _one(rng, (None,), ("i0",))
        fields["members"] = [{"member_id": member, "group_instance_id": instance, "reason": "done"}]
    else:
        fields["member_id"] = member
    return Step("LeaveGroup", version, fields)


def describe_group(rng: random.Random) -> Step:
    return Step(
        "DescribeGroups", rng.randint(0, 6), {"groups": [Named(rng.choice((*GROUPS, SIMPLE, "none")))]}
    )


def delete_group(rng: random.Random) -> Step:
    return Step("DeleteGroups", rng.randint(0, 2), {"groups_names": [Named(rng.choice((SIMPLE, "none")))]})


def find_coordinator(rng: random.Random) -> Step:
    version = rng.randint(0, 4)
    kind, key = _one(rng, ((0, _group(rng)), (1, Named("x0"))), ((9, Named("g0")), (0, "")))
    fields = {"key_type": kind} | ({"coordinator_keys": [key]} if version >= 4 else {"key": key})
    return Step("FindCoordinator", version, fields)


# --- groups of the new protocol (KIP-848)


def consumer_heartbeat(rng: random.Random) -> Step:
    """A member joins, goes on, changes its subscription, leaves, or is wrong about its epoch."""
    member = rng.choice(CONSUMERS)
    kind = rng.choices(("join", "go on", "change", "leave", "wrong"), (3, 8, 2, 1, 1))[0]
    epoch, owned = Given("member epoch", member), Given("owned", member)
    fields: dict[str, Any] = {
        "group_id": Named(NEW),
        "member_id": Named(member),
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": _one(rng, (owned, None)),
    }
    if kind == "join":
        fields |= {
            "member_epoch": 0,
            "rebalance_timeout_ms": _one(rng, (60_000,), (-1, 0), 0.05),
            "topic_partitions": [],
            # The uniform assignor may give the same number of other partitions.
            "server_assignor": _one(rng, ("range",), ("odd",), 0.05),
        }
    if kind in ("join", "change"):
        fields["subscribed_topic_names"] = [Named(name) for name in rng.choice(SUBSCRIPTIONS)]
    if kind == "change":  # Kafka takes unsubscribed topics from a member that still has to give up others
        fields["topic_partitions"] = owned
    if kind == "leave":
        fields |= {"member_epoch": -1, "topic_partitions": None}
    if kind == "wrong":
        fields["member_epoch"] = _one(rng, (Given("member epoch", member, 1),), (-3,))
    needs = None if kind == "join" else epoch
    return Step("ConsumerGroupHeartbeat", rng.randint(0, 1), fields, member, needs)


def describe_consumer_group(rng: random.Random) -> Step:
    return Step("ConsumerGroupDescribe", rng.randint(0, 1), {"group_ids": [Named(rng.choice((NEW, "none")))]})


MAKERS: Final[Mapping[Maker, int]] = {
    create_topic: 5,
    delete_topic: 2,
    create_partitions: 2,
    metadata: 2,
    alter_configs: 3,
    replace_configs: 1,
    describe_configs: 3,
    produce: 12,
    produce_in_order: 10,
    produce_in_transaction: 8,
    fetch: 14,
    list_offsets: 8,
    delete_records: 3,
    end_of_epoch: 2,
    describe_producers: 1,
    init_producer: 6,
    commit_in_transaction: 3,
    end_transaction: 6,
    describe_transaction: 1,
    commit: 6,
    fetch_committed: 5,
    delete_offsets: 2,
    join: 4,
    synchronize: 4,
    heartbeat: 3,
    leave: 2,
    describe_group: 2,
    delete_group: 1,
    find_coordinator: 1,
    consumer_heartbeat: 12,
    describe_consumer_group: 2,
}


def sequence(seed: int, count: int, *, far: bool) -> Iterator[Step]:
    """Yields about `count` steps after the creation of a topic and of groups.

    `far`: leaves leader epochs out of the requests. Another host knows the epoch from the leader's first
    answer on, and compares then.
    """
    rng = random.Random(seed)
    for name, partitions in (("t0", 2), *SUBSCRIBED.items()):
        topic = {"name": Named(name), "num_partitions": partitions, "replication_factor": 1}
        topic |= {"assignments": [], "configs": []}
        yield Step("CreateTopics", 7, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})
    for group in GROUPS:
        yield Step("OffsetCommit", 8, _commits(Named(group)))
    for make in rng.choices(list(MAKERS), list(MAKERS.values()), k=count):
        made = make(rng)
        for step in made if isinstance(made, list) else [made]:
            yield step._replace(fields=_without_epochs(step.fields)) if far else step


def _without_epochs(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_epochs(part) for part in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _without_epochs(part) for name, part in value.items()}
    return fields | {"current_leader_epoch": -1} if "current_leader_epoch" in fields else fields
