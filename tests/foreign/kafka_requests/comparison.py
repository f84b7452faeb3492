"""Runs sequences at two servers, and finds the first difference of each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.kafka.broker import KafkaBroker
from rich.console import Console
from rich.progress import track

from treecast.middleware.daemon.process import DaemonProcess

from .actor import PATIENCE_S, POLL_S, Actor, Address
from .steps import sequence
from .steps.base import Step
from .view import codes, differing

DELAY_MS: Final = "100"  # of a group's first generation, at both
OURS: Final = (
    *("--admin", "off", "--stare", "off", "--mqtt", "off", "--amqp", "off", "--kafka", "127.0.0.1:0"),
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


class Difference(NamedTuple):
    """The first difference of a sequence, and what a client sees of each server."""

    seed: int
    number: int
    step: Step
    first: object
    second: object


class Comparison:
    """Runs sequences at two servers. Each step runs at both at the same time, because members of groups have
    time-outs."""

    def __init__(self, far: bool, count: int, console: Console, *, verbose: bool = False) -> None:
        self._far = far
        self._count = count
        self._console = console
        self._verbose = verbose

    def run(self, seeds: range) -> list[Difference]:
        peers: AbstractContextManager[tuple[Address, Address | None]]
        peers = other_host() if self._far else real_kafka()
        found = []
        with one_host() as here, peers as (there, creating), ThreadPoolExecutor(2) as pool:
            for seed in track(seeds, "sequences", console=self._console, transient=True):
                now_ms = int(time.time() * 1000)
                actors = Actor(here, None, now_ms), Actor(there, creating, now_ms)
                difference = self._compare(pool, actors, seed)
                for actor in actors:
                    actor.close()
                if difference is not None:
                    found.append(difference)
                    self._print(self._described(difference))
        return found

    def _compare(self, pool: ThreadPoolExecutor, actors: tuple[Actor, Actor], seed: int) -> Difference | None:
        for number, step in enumerate(sequence(seed, self._count, far=self._far), 1):
            deadline = time.monotonic() + PATIENCE_S
            while True:
                one, other = pool.map(Actor.do, actors, (step, step))
                if agree(one, other):
                    break
                if step.api not in READING or time.monotonic() > deadline:
                    return Difference(seed, number, step, one, other)
                time.sleep(POLL_S)
            if self._verbose:
                self._print(f"{number} {step.api} {step.version} {step.fields}\n  {one}")
        return None

    def _described(self, one: Difference) -> str:
        peer = "other host" if self._far else "Kafka"
        step = f"{one.step.api} {one.step.version} {one.step.fields}"
        ours, theirs = differing(one.first, one.second)
        return f"seed {one.seed}, step {one.number}: {step}\n  Treecast: {ours}\n  {peer}: {theirs}"

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def agree(one: object, other: object) -> bool:
    """Whether two outcomes are the same, or refuse everything for reasons that may both hold."""
    if one == other:
        return True
    named, others = codes(one), codes(other)
    return bool(named and others and 0 not in named | others and EARLY & (named | others))


# --- servers


@contextmanager
def one_host() -> Iterator[Address]:
    with tempfile.TemporaryDirectory() as folder, DaemonProcess(Path(folder) / "data", OURS) as daemon:
        yield daemon.address("kafka")
        if "Traceback" in daemon.log():
            raise RuntimeError(daemon.log())


@contextmanager
def other_host() -> Iterator[tuple[Address, Address]]:
    """Runs two daemons of a cluster. Gives the addresses (of the client, for the creation of topics)."""
    with tempfile.TemporaryDirectory() as folder:
        flags = (*OURS, "--fabric", "127.0.0.1:0")
        with DaemonProcess(Path(folder) / "a", [*flags, "--name", "a"]) as home:
            joins = ["--join", home.ready["control"], "--join-token", f"@{Path(folder) / 'a' / 'join-token'}"]
            with DaemonProcess(Path(folder) / "b", [*flags, "--name", "b", *joins]) as other:
                yield other.address("kafka"), home.address("kafka")
                logs = home.log() + other.log()
        if "Traceback" in logs:
            raise RuntimeError(logs)


@contextmanager
def real_kafka() -> Iterator[tuple[Address, None]]:
    broker = KafkaBroker(properties=THEIRS)
    broker.start()
    try:
        yield broker.address, None
    finally:
        broker.stop()
