"""Two daemons; the first, with the coordinator, comes back on an older copy of its directory."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.unit.daemon.test_cluster import PATIENCE, now_or_later, read, until, up

from treecast.middleware.broker import (
    GROUPS,
    LATEST_TIMESTAMP,
    NOBODY,
    Cluster,
    CommittedOffset,
    Isolation,
    NewTopic,
    Topic,
)
from treecast.middleware.daemon.daemon import Daemon
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.records import Record
from treecast.middleware.relay import attaching
from treecast.middleware.wire.record_batch import build_batch

ANY = "127.0.0.1:0"
T = TypeVar("T")


class Pair:
    """Daemons a, with the coordinator, and b."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control = ANY
        self.a: Daemon
        self.b: Daemon

    async def start_a(self) -> None:
        self.a = await up(self.folder, "a", ANY, control=self.control)
        self.control = self.a.listeners["control"].address

    async def start(self) -> None:
        await self.start_a()
        token = f"@{self.folder / 'a' / 'join-token'}"
        self.b = await up(self.folder, "b", ANY, join=self.control, join_token=token)

    def copy(self) -> None:
        """Copies the directory of a daemon that is stopped."""
        shutil.copytree(self.folder / "a", self.folder / "copy")

    def restore(self) -> None:
        shutil.rmtree(self.folder / "a")
        shutil.copytree(self.folder / "copy", self.folder / "a")


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    await made.start()
    yield made
    await made.b.close(0)
    await made.a.close(0)


_RETRIABLE = {Fault.COORDINATOR_UNAVAILABLE, Fault.NOT_LEADER, Fault.LEADER_UNAVAILABLE}


async def retried(work: Callable[[], Awaitable[T]]) -> T:
    """Repeats what hosts refuse while they find each other again."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await work()
            except TreecastError as error:
                if error.fault not in _RETRIABLE:
                    raise
            await asyncio.sleep(0.05)


async def made(daemon: Daemon, name: str, leader: str = "b") -> Topic:
    new = NewTopic(name, 1, leaders=(leader,))
    return await retried(lambda: cluster(daemon).definitions.create_topic(new))


def cluster(daemon: Daemon) -> Cluster:
    assert daemon._broker is not None
    return daemon._broker.cluster


async def produce(daemon: Daemon, topic: str, count: int) -> None:
    now_ms = int(time.time() * 1000)  # or else retention removes them
    batch = build_batch([Record(None, b"%d" % number, (), now_ms) for number in range(count)])
    await now_or_later(cluster(daemon).partition(topic, 0).append(memoryview(bytearray(batch)), -1, None))


async def committed(daemon: Daemon, name: TopicPartition) -> int:
    found = (await cluster(daemon).home(GROUPS, "g").fetch_offsets("g", [name], require_stable=False))[name]
    assert isinstance(found, CommittedOffset)
    return found.offset


def connected(daemon: Daemon) -> bool:
    assert daemon._joining is not None
    return [peer.connected for peer in daemon._joining.relay.neighbours.channels.peers()] == [True]


def copied(daemon: Daemon, topic: str) -> int:
    """Returns where the daemon's own log of partition 0 ends."""
    assert daemon._broker is not None
    return max(
        (log.log.end_offset for log in daemon._broker._open.partitions if log.name.topic == topic), default=0
    )


def leads(daemon: Daemon, topic: str) -> bool:
    assert daemon._broker is not None
    return daemon._broker._open.partitions.find(topic, 0) is not None


async def missing(daemon: Daemon) -> list[str]:
    """Returns what `treecast streams --check` counts as missing."""
    assert daemon.subject is not None
    assert daemon.subject.joined is not None
    return list((await daemon.subject.joined.ask_coordinator()).missing)


async def test_topics_records_and_offsets_come_back(pair: Pair) -> None:
    await made(pair.a, "old")
    await pair.a.close(0)
    pair.copy()
    await pair.start_a()
    new = await made(pair.b, "new")
    await produce(pair.b, "new", 20)
    name = TopicPartition("new", 0)
    home = cluster(pair.b).home(GROUPS, "g")
    assert await home.commit_offsets("g", NOBODY, {name: CommittedOffset(15)}) == {}
    await pair.a.close(0)
    pair.restore()
    await pair.start_a()
    await until(lambda: "new" in cluster(pair.a).definitions.topics())
    async with asyncio.timeout(PATIENCE):
        while await missing(pair.a) or await missing(pair.b):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    for daemon in (pair.a, pair.b):
        assert cluster(daemon).definitions.topics()["new"] == new
        assert await committed(daemon, name) == 15
        end = (
            cluster(daemon).partition("new", 0).offset_for_time(LATEST_TIMESTAMP, Isolation.READ_UNCOMMITTED)
        )
        assert (await now_or_later(end)).offset == 20


async def test_a_directory_two_runs_old_is_accepted_by_the_host_that_knows_its_later_runs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store in it is as old as the directory, and cannot know the later runs when the host attaches."""
    minutes = itertools.count(1_000_000, 60)  # here a start takes no second
    monkeypatch.setattr(attaching, "run_by_clock", lambda _: next(minutes))
    await made(pair.a, "of-a", "a")
    await pair.a.close(0)
    pair.copy()
    for run in range(2):
        await pair.start_a()
        await until(lambda: connected(pair.b))
        await produce(pair.a, "of-a", 5)
        await retried(lambda: read(cluster(pair.b).partition("of-a", 0)))  # from now on b keeps a copy
        await until(lambda run=run: copied(pair.b, "of-a") == 5 * run + 5)
        await pair.a.close(0)
        await until(lambda: not connected(pair.b))
    pair.restore()
    await pair.start_a()
    await until(lambda: connected(pair.a) and connected(pair.b))
    await until(lambda: leads(pair.a, "of-a"))
    assert copied(pair.a, "of-a") == 10  # it does not lead on its old log
    await produce(pair.a, "of-a", 3)
    await until(lambda: copied(pair.a, "of-a") == copied(pair.b, "of-a") == 13)
    async with asyncio.timeout(PATIENCE):
        while await missing(pair.a) or await missing(pair.b):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert connected(pair.a)
    assert connected(pair.b)
    assert pair.b.counters.channel.opened == 4  # one for each run of a
