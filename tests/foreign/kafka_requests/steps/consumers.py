"""Groups of the new protocol (KIP-848), and groups that members of both protocols share."""

from __future__ import annotations

import random
from typing import Any, Final

from .base import Given, Named, Step, Subscription, a_partition, one
from .groups import commits, committed_row

NEW: Final = "n0"  # a group of the new protocol
SHARED: Final = "w0"  # a group of members of both protocols
CONSUMERS: Final = ("c0", "c1", "c2")
STATIC: Final = "c2"
SUBSCRIBED: Final = {"u0": 3, "u1": 2}  # its topics and their partitions, which nothing else uses
SUBSCRIPTIONS: Final = (("u0",), ("u1",), ("u0", "u1"), ("u0", "u1"), ("none",))


def consumer_heartbeat(rng: random.Random) -> Step:
    """A member joins, goes on, changes its subscription, leaves, or is wrong about its epoch."""
    group, member = rng.choice((NEW, NEW, SHARED)), rng.choice(CONSUMERS)
    key = f"{member} in {group}"
    kind = rng.choices(("join", "go on", "change", "leave", "wrong"), (3, 8, 2, 1, 1))[0]
    epoch, owned = Given("member epoch", key), Given("owned", key)
    static = member == STATIC and group == NEW
    fields: dict[str, Any] = {
        "group_id": Named(group),
        "member_id": Named(member),
        "member_epoch": epoch,
        "instance_id": "i0" if static else None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": one(rng, (owned, None)),
    }
    if kind == "join":
        fields |= {
            "member_epoch": 0,
            "rebalance_timeout_ms": one(rng, (60_000,), (-1, 0), 0.05),
            "topic_partitions": [],
            # The uniform assignor may give the same number of other partitions.
            "server_assignor": one(rng, ("range",), ("odd",), 0.05),
        }
    if kind in ("join", "change"):
        fields["subscribed_topic_names"] = [Named(name) for name in rng.choice(SUBSCRIPTIONS)]
    if kind == "change":  # Kafka takes unsubscribed topics from a member that still has to give up others
        fields["topic_partitions"] = owned
    if kind == "leave":
        fields |= {"member_epoch": rng.choice((-1, -2)) if static else -1, "topic_partitions": None}
    if kind == "wrong":
        fields["member_epoch"] = one(rng, (Given("member epoch", key, 1),), (-3,))
    version = rng.randint(0, 1)
    if kind == "join":
        # Kafka refuses a static member that repeats its join. A daemon accepts it: the answer may be lost.
        return Step("ConsumerGroupHeartbeat", version, fields, key, unless=epoch if static else None)
    return Step("ConsumerGroupHeartbeat", version, fields, key, needs=epoch)


def describe_consumer_group(rng: random.Random) -> Step:
    group = Named(rng.choice((NEW, SHARED, "none")))
    return Step("ConsumerGroupDescribe", rng.randint(0, 1), {"group_ids": [group]})


def commit_as_consumer(rng: random.Random) -> Step:
    key = f"{rng.choice(CONSUMERS)} in {NEW}"
    epoch = Given("member epoch", key, one(rng, (0,), (1,)))
    fields = commits(Named(NEW)) | {
        "generation_id_or_member_epoch": epoch,
        "member_id": Named(key.split()[0]),
        "topics": [{"name": Named("u0"), "partitions": [committed_row(rng)]}],
    }
    return Step("OffsetCommit", 9, fields, needs=Given("member epoch", key))


def fetch_committed_as_consumer(rng: random.Random) -> Step:
    key = f"{rng.choice(CONSUMERS)} in {NEW}"
    group = {
        "group_id": Named(NEW),
        "member_id": Named(key.split()[0]),
        "member_epoch": Given("member epoch", key, one(rng, (0,), (1,))),
        "topics": [{"name": Named("u0"), "partition_indexes": [a_partition(rng)]}],
    }
    fields = {"groups": [group], "require_stable": rng.random() < 0.3}
    return Step("OffsetFetch", 9, fields, needs=Given("member epoch", key))


def share(rng: random.Random) -> list[Step]:
    """A member of the classic protocol joins the shared group, asks for its partitions, and is alive."""
    key = f"m0 in {SHARED}"  # one only: servers give them ids, by which the range assignor sorts members
    topics = [Named(name) for name in rng.choice(SUBSCRIPTIONS)]
    joins = {
        "group_id": Named(SHARED),
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 2000,
        "member_id": Given("member", key),
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": Subscription(tuple(topics))}],
        "reason": None,
    }
    asks = {
        "group_id": Named(SHARED),
        "generation_id": Given("joined generation", key),
        "member_id": Given("member", key),
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }
    alive = {name: asks[name] for name in ("group_id", "generation_id", "member_id", "group_instance_id")}
    given = Given("joined generation", key)
    steps = [
        Step("JoinGroup", rng.randint(4, 9), joins, key),
        Step("JoinGroup", rng.randint(4, 9), joins, key, Given("member", key)),
        Step("SyncGroup", rng.randint(3, 5), asks, needs=given),
        Step("Heartbeat", rng.randint(3, 4), alive, needs=given),
    ]
    left = {"group_id": Named(SHARED), "member_id": Given("joined", key)}
    return [
        *steps[: rng.choice((2, 3, 4, 4))],
        *([Step("LeaveGroup", 2, left, needs=Given("joined", key))] if rng.random() < 0.2 else []),
    ]
