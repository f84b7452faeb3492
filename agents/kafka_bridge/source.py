"""`Source`: what one way reads of its source, partition by partition, from the offsets that it has committed.

Fetches see no records of open or aborted transactions. What they bring waits here, within a bound, until the
way has carried it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct

from treecast.agents.kafka.asking import KafkaOwner
from treecast.agents.kafka.cluster import KafkaCluster, TopicFound
from treecast.agents.kafka.fetchers import Fetchers
from treecast.agents.kafka.session import Action, Append, Ask, CopySession, Cut, Restart, end_in
from treecast.agents.kafka.settings import ClusterSettings
from treecast.middleware.broker.values import Isolation
from treecast.middleware.model.identity import NO_LEADER_EPOCH, TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.wire.record_batch import BatchHeader
from treecast.shims.kafka.codec_client import Fetched

_EPOCHS: Final = 64  # that are remembered of a partition

_log = Log(__name__)


class SourcePartition:
    """Implements `fetcher.FetchedPartition`. `target`: the partition that it is carried to."""

    def __init__(self, topic: TopicFound, index: int, target: TopicPartition, end: int, epoch: int) -> None:
        """`end`: the offset to fetch first. `epoch`: the leader epoch of the record before it, -1:
        unknown."""
        self.name = TopicPartition(topic.name, index)
        self.topic = topic
        self.target = target
        self.end = end
        self.here = True
        self.session = CopySession(self._own_end_of)
        self._epochs = [(epoch, 0)] if epoch >= 0 else []

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1][0] if self._epochs else NO_LEADER_EPOCH

    @property
    def lag(self) -> int:
        return max(self.session.high_watermark - self.end, 0)

    def _own_end_of(self, epoch: int) -> int:
        """The epochs of records that earlier runs have read are not known any more."""
        if not self._epochs or epoch < self._epochs[0][0]:
            return self.end
        return end_in(self._epochs, epoch, self.end)

    def read(self, headers: Sequence[BatchHeader]) -> None:
        for header in headers:
            if header.leader_epoch > self.last_epoch:
                self._epochs.append((header.leader_epoch, header.base_offset))
        del self._epochs[:-_EPOCHS]
        self.end = headers[-1].next_offset

    def place(self, offset: int) -> None:
        """Goes on at `offset`: the source has lost what was behind it, or what was before it."""
        self.end = offset
        self._epochs = [one for one in self._epochs if one[1] < offset]


class Arrived(Struct, frozen=True):
    """An answer that waits. `position`: the offset that was asked for. `end`, `epoch`: where the partition
    was read up to with it."""

    partition: SourcePartition
    data: bytes
    headers: list[BatchHeader]
    aborted: list[tuple[int, int]]
    position: int
    end: int
    epoch: int


class Source:
    """Implements `fetchers.Fetching`. In use until `close`; `forget` ends all of its partitions."""

    def __init__(self, cluster: KafkaCluster, settings: ClusterSettings, look: Callable[[], None]) -> None:
        """`look`: asks for the cluster's leaders again soon."""
        self.owner = KafkaOwner(cluster, look)
        self.partitions: dict[TopicPartition, SourcePartition] = {}
        self.fetchers: Fetchers[SourcePartition] = Fetchers(
            cluster, settings, self, self.owner, Isolation.READ_COMMITTED
        )
        self.cuts = 0  # times that the source has lost records that were read
        self.missed = 0  # offsets that it had removed before they were read
        self._look = look
        self._most = settings.fetch_bytes
        self._waiting: list[Arrived] = []
        self._size = 0
        self._there = asyncio.Event()

    def forget(self) -> None:
        """Forgets all partitions, and what they have brought."""
        for one in self.partitions.values():
            one.here = False
        self.partitions.clear()
        self._waiting, self._size = [], 0
        self._there.clear()

    def drop(self, name: TopicPartition) -> None:
        """A partition is read no more. What it has brought is carried."""
        self.partitions.pop(name).here = False

    async def close(self) -> None:
        self.forget()
        await self.fetchers.close()

    async def arrived(self, seconds: float) -> list[Arrived]:
        """Returns what has come, in its order; nothing if nothing comes for so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._there.wait()
        except TimeoutError:
            return []
        found, self._waiting, self._size = self._waiting, [], 0
        self._there.clear()
        self.fetchers.wake_all()
        return found

    # --- fetching

    def led_by(self, node: int) -> Iterable[SourcePartition]:
        if self._size >= self._most:
            return []
        return [one for one in self.partitions.values() if one.session.leader == node]

    def take(self, partition: SourcePartition, answer: Fetched) -> None:
        for action in partition.session.fetched(answer, partition.end, partition.end):
            if isinstance(action, Append):
                self._arrive(partition, action, answer.aborted)
            else:
                self.do(partition, [action])

    def _arrive(self, partition: SourcePartition, found: Append, aborted: list[tuple[int, int]]) -> None:
        position = partition.end
        partition.read(found.headers)
        self._waiting.append(
            Arrived(
                partition,
                found.batches,
                found.headers,
                aborted,
                position,
                partition.end,
                partition.last_epoch,
            )
        )
        self._size += len(found.batches)
        self._there.set()

    def do(self, partition: SourcePartition, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Cut(offset):
                    self.cuts += 1
                    _log.warning("the source has lost records", partition=partition.name, first=offset)
                    partition.place(offset)
                case Restart(offset, missed):
                    self.missed += missed
                    _log.warning("the source's log begins later", partition=partition.name, offset=offset)
                    partition.place(offset)
                case Ask(bounds):
                    if bounds:
                        self.fetchers.seek(partition)
                    else:
                        self._look()
                case _:
                    pass
