"""A partition is read as it grows, over changes of leader, failures and lost records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from treecast.middleware.broker.reading import PartitionReading
from treecast.middleware.broker.values import (
    EARLIEST_TIMESTAMP,
    Isolation,
    OffsetAtTime,
    PartitionRead,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch


class Leader:
    """A partition whose records are the numbers from `first` on, one a batch."""

    def __init__(self, first: int = 0, end: int = 0) -> None:
        self.first, self.end = first, end
        self.watchers: list[PartitionReading] = []
        self.fails: list[TreecastError] = []
        self.reads = 0

    def watch(self, waiter: PartitionReading, isolation: Isolation) -> None:
        assert isolation is Isolation.READ_COMMITTED
        self.watchers.append(waiter)

    def unwatch(self, waiter: PartitionReading) -> None:
        self.watchers.remove(waiter)

    def read(self, offset: int, size: int, isolation: Isolation, *, at_least_one: bool) -> PartitionRead:
        self.reads += 1
        if self.fails:
            raise self.fails.pop()
        if not self.first <= offset <= self.end:
            raise TreecastError(Fault.OFFSET_OUT_OF_RANGE)
        record = Record(None, b"%d" % offset, timestamp=0)
        found = [build_batch([record], base_offset=offset)] if offset < self.end else []
        return PartitionRead(found, sum(map(len, found)), self.end, self.end, self.first)

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime:
        return OffsetAtTime(self.first if timestamp == EARLIEST_TIMESTAMP else self.end, 0, 0)

    def grow(self, count: int) -> None:
        self.end += count
        for watcher in self.watchers:
            watcher.grown(0)


class Taken:
    """Takes records; has room unless it is told otherwise."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.offset = -1
        self.wanted = asyncio.Event()
        self.wanted.set()
        self.failures: list[Fault] = []
        self.is_over = False

    async def begin(self, leader: Any) -> int:
        return leader.end

    async def room(self) -> None:
        await self.wanted.wait()

    def take(self, records: list[Record], offset: int) -> None:
        self.values += [int(record.value or b"") for record in records]
        self.offset = offset

    async def beyond(self, leader: Any, offset: int) -> int:
        return leader.first

    def failed(self, error: TreecastError) -> None:
        self.failures.append(error.fault)

    def ended(self) -> None:
        self.is_over = True


class World:
    """One reading, and the leader that it finds. `look_again`: seconds without news."""

    def __init__(self, look_again: float = 60.0) -> None:
        self.leader: Leader | TreecastError = Leader(0, 3)
        self.taken = Taken()
        self.reading = PartitionReading("test", self._find, self.taken, 1 << 20, 0.0, look_again)

    def _find(self) -> Any:
        if isinstance(self.leader, TreecastError):
            raise self.leader
        return self.leader


@pytest.fixture
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    world = World(*getattr(request, "param", ()))
    yield world
    task = world.reading.stop()
    await asyncio.gather(task, return_exceptions=True)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_what_comes_after_the_beginning_is_taken(world: World) -> None:
    leader = world.leader
    await until(lambda: leader.watchers != [])
    leader.grow(2)
    await until(lambda: world.taken.values == [3, 4])
    assert world.taken.offset == world.reading.offset == 5


async def test_nothing_is_read_without_room(world: World) -> None:
    leader = world.leader
    await until(lambda: leader.reads == 1)
    world.taken.wanted.clear()
    leader.grow(1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert leader.reads == 1
    world.taken.wanted.set()
    await until(lambda: world.taken.values == [3])


async def test_another_leader_goes_on_where_the_first_was(world: World) -> None:
    first = world.leader
    await until(lambda: first.watchers != [])
    first.grow(1)
    await until(lambda: world.taken.values == [3])
    world.leader = second = Leader(0, 6)
    first.watchers.clear()
    world.reading.gone()
    await until(lambda: world.taken.values == [3, 4, 5])
    assert second.watchers == [world.reading]


@pytest.mark.parametrize("world", [(0.01,)], indirect=True)
async def test_after_a_failure_it_is_read_again(world: World) -> None:
    leader = world.leader
    leader.fails.append(TreecastError(Fault.TIMED_OUT))
    await until(lambda: world.taken.failures == [Fault.TIMED_OUT])
    leader.grow(1)
    await until(lambda: world.taken.values == [3])
    assert leader.watchers == [world.reading], "it is watched once"


async def test_records_that_are_gone_are_passed_over(world: World) -> None:
    leader = world.leader
    await until(lambda: leader.watchers != [])
    leader.first = 8
    leader.grow(7)
    await until(lambda: world.taken.values == [8, 9])


async def test_it_ends_with_the_topic(world: World) -> None:
    leader = world.leader
    await until(lambda: leader.watchers != [])
    world.leader = TreecastError(Fault.UNKNOWN_TOPIC)
    leader.watchers.clear()
    world.reading.gone()
    await until(lambda: world.taken.is_over)
    assert world.taken.failures == []


async def test_who_stops_is_not_told_any_longer(world: World) -> None:
    leader = world.leader
    await until(lambda: leader.watchers != [])
    await asyncio.gather(world.reading.stop(), return_exceptions=True)
    assert leader.watchers == []
