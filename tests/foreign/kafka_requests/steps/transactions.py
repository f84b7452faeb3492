"""Producers and their transactions."""

from __future__ import annotations

import random
from typing import Any

from .base import IDEMPOTENT, TRANSACTIONAL, Given, Named, Step, a_group, a_topic, one
from .groups import committed_row


def producer_fields(name: str) -> dict[str, Any]:
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
        "transaction_timeout_ms": one(rng, (60_000,), (0, -1, 10**9), 0.06),
        "producer_id": Given("producer", name) if resumes else -1,
        "producer_epoch": Given("epoch", name) if resumes else -1,
    }
    return Step("InitProducerId", rng.randint(0, 4), fields, name)


def commit_in_transaction(rng: random.Random) -> list[Step]:
    """Adds a group and commits for it: Kafka begins a group at a commit, even if it is then refused."""
    name, group = rng.choice(TRANSACTIONAL), a_group(rng)
    given = Given("producer", name)
    member = rng.random() < 0.2
    committed = producer_fields(name) | {
        "group_id": group,
        "generation_id": Given("generation", group.name) if member else -1,
        "member_id": Given("member", "m0") if member else "",
        "group_instance_id": None,
        "topics": [{"name": a_topic(rng), "partitions": [committed_row(rng)]}],
    }
    added = producer_fields(name) | {"group_id": group}
    return [
        Step("AddOffsetsToTxn", rng.randint(0, 3), added, needs=given),
        Step("TxnOffsetCommit", rng.randint(0, 3), committed, needs=given),
    ]


def end_transaction(rng: random.Random) -> Step:
    name = rng.choice(TRANSACTIONAL)
    fields = producer_fields(name) | {"committed": rng.random() < 0.6}
    fields["producer_epoch"] = Given("epoch", name, one(rng, (0,), (-1, 1), 0.05))
    return Step("EndTxn", rng.randint(0, 3), fields, needs=Given("producer", name))


def describe_transaction(rng: random.Random) -> Step:
    return Step(
        "DescribeTransactions", 0, {"transactional_ids": [Named(rng.choice((*TRANSACTIONAL, "none")))]}
    )
