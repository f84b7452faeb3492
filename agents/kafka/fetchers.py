"""`Fetchers`: one `BrokerFetcher` for each broker of a Kafka cluster, and the news of its partitions.

What an answer means for a partition is its session's to decide; what then has to be done is the owner's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from treecast.middleware.broker.values import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Isolation,
    OffsetAtTime,
)
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.logs import Log
from treecast.shims.kafka.codec_client import Fetched

from .cluster import KafkaCluster, PartitionFound
from .fetcher import BrokerFetcher, FetchedPartition
from .session import Action, Bounds
from .session_table import State
from .settings import ClusterSettings

_log = Log(__name__)

P = TypeVar("P", bound=FetchedPartition)


class Fetching(Protocol[P]):
    """The owner of the partitions."""

    def led_by(self, node: int) -> Iterable[P]:
        """Yields the partitions to fetch from a broker."""
        ...

    def do(self, partition: P, actions: list[Action]) -> None:
        """Carries out what a partition's session has decided."""
        ...

    def take(self, partition: P, answer: Fetched) -> None:
        """Takes a broker's answer."""
        ...


class Bounded(Protocol):
    """Tells the bounds of a partition's log at its leader."""

    async def offset_for_time(
        self, name: TopicPartition, timestamp: int, isolation: Isolation
    ) -> OffsetAtTime: ...


class Fetchers(Generic[P]):
    """In use from the first `keep` to `close`. All on one event loop."""

    def __init__(
        self,
        cluster: KafkaCluster,
        settings: ClusterSettings,
        owner: Fetching[P],
        bounded: Bounded,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> None:
        self.running: dict[int, BrokerFetcher[P]] = {}
        self._gone_received = 0
        self._cluster = cluster
        self._settings = settings
        self._owner = owner
        self._bounded = bounded
        self._isolation = isolation
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._seeking: set[asyncio.Task[None]] = set()

    @property
    def received(self) -> int:
        """Bytes of all answers."""
        return self._gone_received + sum(one.received for one in self.running.values())

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *self._seeking]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what is known of brokers

    def keep(self) -> None:
        """Runs one fetcher for each broker, and none for brokers that are gone."""
        brokers = self._cluster.found.brokers
        for node in [node for node in self.running if node not in brokers]:
            self._gone_received += self.running.pop(node).received
            self._tasks.pop(node).cancel()
        for node in brokers:
            task = self._tasks.get(node)
            if task is None or task.done():
                self._start(node, task)

    def led(self, partition: P, leader: PartitionFound) -> None:
        """The cluster names a partition's leader."""
        before = partition.session.state
        self._owner.do(partition, partition.session.led(leader.leader, leader.leader_epoch))
        if partition.session.state is not before:
            self.wake(partition.session.leader)

    def wake(self, node: int) -> None:
        """There may be more partitions to fetch from a broker."""
        fetcher = self.running.get(node)
        if fetcher is not None:
            fetcher.wake()

    def wake_all(self) -> None:
        for fetcher in self.running.values():
            fetcher.wake()

    def _start(self, node: int, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.cancelled() and (error := before.exception()) is not None:
            _log.error("fetches from a broker failed and begin again", broker=node, error=error, trace=error)
        old = self.running.get(node)
        self._gone_received += old.received if old is not None else 0
        fetcher = self.running[node] = BrokerFetcher(
            node,
            lambda: self._cluster.pool(node),
            self._owner.led_by,
            self._take,
            self.failed,
            self._settings.fetch_bytes,
            self._settings.partition_bytes,
            self._isolation,
        )
        self._tasks[node] = asyncio.create_task(fetcher.run(), name=f"fetches from broker {node}")

    # --- answers

    def _take(self, partition: P, answer: Fetched) -> None:
        try:
            self._owner.take(partition, answer)
        except TreecastError as error:  # a batch that cannot be read, or a disk that refuses
            self._owner.do(partition, partition.session.failed(error.detail))

    def failed(self, partition: P, reason: str) -> None:
        self._owner.do(partition, partition.session.failed(reason))

    def seek(self, partition: P) -> None:
        """Asks for the bounds of the leader's log, and places the partition between them."""
        task = asyncio.create_task(self._seek(partition), name=f"bounds of {partition.name}")
        self._seeking.add(task)
        task.add_done_callback(self._seeking.discard)

    async def _seek(self, partition: P) -> None:
        name, plain = partition.name, Isolation.READ_UNCOMMITTED
        try:
            start = await self._bounded.offset_for_time(name, EARLIEST_TIMESTAMP, plain)
            end = await self._bounded.offset_for_time(name, LATEST_TIMESTAMP, plain)
            bounds = Bounds(start.offset, end.offset)
            self._owner.do(partition, partition.session.bounds(bounds, partition.end))
        except TreecastError as error:
            self.failed(partition, error.detail)
        if partition.session.state is State.FETCHING:
            self.wake(partition.session.leader)
