"""Groups of the classic protocol, and committed offsets."""

from __future__ import annotations

import random
from typing import Any, Final

from .base import GROUPS, Given, Named, Step, a_group, a_partition, a_topic, one

SIMPLE: Final = "g2"  # only commits
MEMBERS: Final = ("m0", "m1")


def committed_row(rng: random.Random) -> dict[str, Any]:
    return {
        "partition_index": a_partition(rng),
        "committed_offset": one(rng, (0, 3, 7), (-1, -2)),
        "committed_leader_epoch": one(rng, (-1, -1, 0), (5,)),
        "committed_metadata": one(rng, ("", "noted"), (None, "x" * 5000)),
    }


def commit(rng: random.Random) -> Step:
    if rng.random() < 0.2:
        return Step("OffsetCommit", rng.randint(2, 8), commits(Named(SIMPLE)))
    group = a_group(rng)
    member = rng.random() < 0.4
    generation = Given("generation", group.name, one(rng, (0,), (1, -1)))
    fields = commits(group) | {
        "generation_id_or_member_epoch": generation if member else one(rng, (-1,), (0, 1)),
        "member_id": Given("member", rng.choice(MEMBERS)) if member else one(rng, ("",), ("who",)),
        "topics": [{"name": a_topic(rng), "partitions": [committed_row(rng)]}],
    }
    return Step("OffsetCommit", rng.randint(2, 8), fields)


def commits(group: Named) -> dict[str, Any]:
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
    topics = [{"name": a_topic(rng), "partition_indexes": [a_partition(rng)]}]
    asked: list[dict[str, Any]] | None = None if version >= 2 and rng.random() < 0.3 else topics
    group = a_group(rng)
    fields: dict[str, Any] = {"require_stable": rng.random() < 0.3}
    if version >= 8:
        fields["groups"] = [{"group_id": group, "topics": asked}]
    else:
        fields |= {"group_id": group, "topics": asked}
    return Step("OffsetFetch", version, fields)


def delete_offsets(rng: random.Random) -> Step:
    """Deletes other offsets than those with which the groups began: a daemon forgets a group without any."""
    partition = {"partition_index": one(rng, (1,), (5, -1))}
    topic = {"name": a_topic(rng), "partitions": [partition]}
    return Step("OffsetDelete", 0, {"group_id": a_group(rng), "topics": [topic]})


def join(rng: random.Random) -> list[Step]:
    """A join, and the request for the assignment, without which a group soon removes the member."""
    group, member = a_group(rng), rng.choice(MEMBERS)
    protocols = one(rng, (("range",), ("range", "sticky"), ("sticky",)), ((),), 0.05)
    joins = {
        "group_id": one(rng, (group,), ("",), 0.03),
        "session_timeout_ms": one(rng, (30_000,), (1, 10**8), 0.05),
        "rebalance_timeout_ms": 2000,
        "member_id": Given("member", member) if rng.random() < 0.7 else one(rng, ("",), ("who",)),
        "group_instance_id": one(rng, (None,), ("i0", "i1"), 0.3),
        "protocol_type": one(rng, ("consumer",), ("", "connect"), 0.06),
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
    group, member = a_group(rng), rng.choice(MEMBERS)
    assigned = {"member_id": Given("member", member), "assignment": b"part"}
    fields = {
        "group_id": group,
        "generation_id": Given("generation", group.name, one(rng, (0,), (1, -1))),
        "member_id": one(rng, (Given("member", member),), ("", "who")),
        "group_instance_id": None,
        "protocol_type": one(rng, ("consumer", None), ("connect",)),
        "protocol_name": one(rng, ("range", None), ("sticky",)),
        "assignments": [assigned] if rng.random() < 0.8 else [],
    }
    return Step("SyncGroup", rng.randint(0, 5), fields)


def heartbeat(rng: random.Random) -> Step:
    group = a_group(rng)
    fields = {
        "group_id": group,
        "generation_id": Given("generation", group.name, one(rng, (0,), (1, -1))),
        "member_id": one(rng, (Given("member", rng.choice(MEMBERS)),), ("", "who")),
        "group_instance_id": one(rng, (None,), ("i0",)),
    }
    return Step("Heartbeat", rng.randint(0, 4), fields)


def leave(rng: random.Random) -> Step:
    version = rng.randint(0, 5)
    # Kafka rebalances if an id leaves that has not joined yet; a daemon has no reason to.
    member = one(rng, (Given("joined", rng.choice(MEMBERS)),), ("", "who"))
    fields: dict[str, Any] = {"group_id": a_group(rng)}
    if version >= 3:
        instance = one(rng, (None,), ("i0",))
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
    kind, key = one(rng, ((0, a_group(rng)), (1, Named("x0"))), ((9, Named("g0")), (0, "")))
    fields = {"key_type": kind} | ({"coordinator_keys": [key]} if version >= 4 else {"key": key})
    return Step("FindCoordinator", version, fields)
