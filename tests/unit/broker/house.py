"""A host's broker on a real data directory, which can be stopped, killed and opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treecast.middleware.broker import (
    GROUPS,
    TRANSACTIONS,
    Broker,
    BrokerSettings,
    CommittedOffset,
    InitProducer,
    Isolation,
    MemberIdentity,
    NewTopic,
)
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host, ProducerIdentity, TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records

UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED
P0 = TopicPartition("t", 0)


class House:
    """A data directory and its broker."""

    def __init__(self, path: Path, clock: Any) -> None:
        self.path, self.clock, self.counters = path, clock, Counters()
        self.options: dict[str, Any] = {"fsync": FsyncPolicy.NEVER}

    async def open(self, **options: Any) -> House:
        self.options |= options
        self.broker = Broker(
            BrokerSettings(self.path, **self.options), Host(1, "h"), self.counters, clock=self.clock
        )
        await self.broker.start()
        return self

    async def restart(self, **options: Any) -> None:
        await self.broker.close()
        await self.open(**options)

    async def kill(self) -> None:
        """Drops the broker without a flush or a close; the next one starts from the files."""
        parts: Any = self.broker._parts
        parts.abandon()
        self.broker._parts = None
        await self.open()

    async def create(self, name: str = "t", partitions: int = 1, **config: str) -> None:
        overrides = {key.replace("_", "."): value for key, value in config.items()}
        await self.broker.cluster.definitions.create_topic(NewTopic(name, partitions, overrides))

    def leader(self, name: str = "t", index: int = 0) -> Any:
        return self.broker.cluster.partition(name, index)

    def append(self, value: bytes, name: str = "t", tid: str | None = None, **batch: Any) -> Any:
        record = Record(b"k", value, (), int(self.clock.now * 1000))
        return self.leader(name).append(memoryview(bytearray(build_batch([record], **batch))), -1, tid)

    def values(
        self, name: str = "t", offset: int = 0, isolation: Isolation = UNCOMMITTED
    ) -> list[bytes | None]:
        read = self.leader(name).read(offset, 1 << 20, isolation, at_least_one=True)
        data = b"".join(map(bytes, read.chunks))
        found: list[bytes | None] = []
        position = 0
        while position < len(data):
            header = read_header(data, position)
            found += [] if header.control else [r.value for r in read_records(data, position, header)]
            position += header.size
        return found

    async def commit(self, group: str, offset: int, partition: TopicPartition = P0) -> None:
        home = self.broker.cluster.home(GROUPS, group)
        assert await home.commit_offsets(group, MemberIdentity(), {partition: CommittedOffset(offset)}) == {}

    async def committed(self, group: str) -> dict[TopicPartition, int]:
        found = await self.broker.cluster.home(GROUPS, group).fetch_offsets(group, None, require_stable=False)
        return {p: commit.offset for p, commit in found.items() if isinstance(commit, CommittedOffset)}

    async def transaction(self, tid: str = "tx") -> ProducerIdentity:
        home = self.broker.cluster.home(TRANSACTIONS, tid)
        producer = await home.init_producer(InitProducer(tid, 60_000))
        assert await home.add_partitions(tid, producer, [P0]) == {}
        return producer

    async def keep_house(self) -> None:
        await self.broker.housekeeping(self.clock.now)
        parts: Any = self.broker._parts
        await parts.housekeeping.settle()
        await parts.flusher.settle()

    @property
    def directories(self) -> set[str]:
        return {path.name for path in (self.path / "logs").iterdir()}
