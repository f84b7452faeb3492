"""Runs sequences of requests at two Kafka servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from bench.peers.kafka.broker import KafkaBroker
from tests.foreign.sequences import Difference, Run, one_host, only, two_hosts

from .actor import PATIENCE_S, POLL_S, Actor, Address
from .steps import sequence
from .view import codes, differing

DELAY_MS: Final = "100"  # of a group's first generation, at both
OURS: Final = (
    *only("kafka"),
    *("--group-initial-rebalance-delay-ms", DELAY_MS, "--accept-replication-factor", "false"),
)
THEIRS: Final = {
    "group.initial.rebalance.delay.ms": DELAY_MS,
    "auto.create.topics.enable": "false",
    "group.consumer.assignment.interval.ms": "0",
}
# Codes of faults that servers look for at different times, so that another fault may be named instead:
# UNKNOWN_SERVER_ERROR (by which Kafka refuses some invalid requests), UNKNOWN_TOPIC_OR_PARTITION,
# TOPIC_ALREADY_EXISTS, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_TOPIC_ID.
EARLY: Final = frozenset({-1, 3, 36, 45, 100})
# Requests that are repeated for a moment until both servers answer the same.
READING: Final = frozenset(
    {
        *("Metadata", "Fetch", "ListOffsets", "OffsetFetch", "DescribeConfigs", "DescribeGroups"),
        *("OffsetForLeaderEpoch", "DescribeProducers", "DescribeTransactions", "FindCoordinator"),
    }
)


def run(settings: Run, seeds: range) -> list[Difference]:
    """Runs each step at both servers at the same time, because members of groups have time-outs."""
    peers: AbstractContextManager[tuple[Address, Address | None]]
    peers = other_host() if settings.far else real_kafka()
    with one_host(OURS) as daemon, peers as (there, creating), ThreadPoolExecutor(2) as pool:

        def compare(seed: int) -> Difference | None:
            now_ms = int(time.time() * 1000)
            here = Actor(daemon.address("kafka"), None, now_ms)
            actors = here, Actor(there, creating, now_ms)
            try:
                return _compare(settings, pool, actors, seed)
            finally:
                for actor in actors:
                    actor.close()

        return settings.differences(seeds, "other host" if settings.far else "Kafka", compare)


def _compare(
    settings: Run, pool: ThreadPoolExecutor, actors: tuple[Actor, Actor], seed: int
) -> Difference | None:
    for number, step in enumerate(sequence(seed, settings.count, far=settings.far), 1):
        described = f"{step.api} {step.version} {step.fields}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            one, other = pool.map(Actor.do, actors, (step, step))
            if agree(one, other):
                break
            if step.api not in READING or time.monotonic() > deadline:
                return Difference(seed, number, described, *differing(one, other))
            time.sleep(POLL_S)
        settings.note(number, described, one)
    return None


def agree(one: object, other: object) -> bool:
    """Whether two outcomes are the same, or refuse everything for reasons that may both hold."""
    if one == other:
        return True
    named, others = codes(one), codes(other)
    return bool(named and others and 0 not in named | others and EARLY & (named | others))


# --- servers


@contextmanager
def other_host() -> Iterator[tuple[Address, Address]]:
    """Gives the addresses of the client, and for the creation of topics."""
    with two_hosts(OURS) as (home, other):
        yield other.address("kafka"), home.address("kafka")


@contextmanager
def real_kafka() -> Iterator[tuple[Address, None]]:
    broker = KafkaBroker(properties=THEIRS)
    broker.start()
    try:
        yield broker.address, None
    finally:
        broker.stop()
