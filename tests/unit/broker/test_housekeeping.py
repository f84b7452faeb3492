"""Chores run when they are due, and a slow one delays nothing else."""

from __future__ import annotations

import asyncio

import pytest

from treecast.middleware.broker.housekeeping import Chore, Housekeeping
from treecast.middleware.model.errors import Fault, TreecastError


class Diary:
    def __init__(self) -> None:
        self.entries: list[tuple[str, float]] = []
        self.free = asyncio.Event()

    def chore(self, name: str, interval: float, *, slow: bool = False) -> Chore:
        async def work(now: float) -> None:
            if slow:
                await self.free.wait()
            self.entries.append((name, now))

        return Chore(name, interval, work, slow)


async def test_each_is_done_when_it_is_due() -> None:
    diary = Diary()
    housekeeping = Housekeeping([diary.chore("often", 1.0), diary.chore("seldom", 10.0)])
    now = 100.0
    for _ in range(12):
        now = await housekeeping.run(now)
    assert diary.entries == [
        *[("often", 100.0), ("seldom", 100.0)],
        *[("often", 100.0 + n) for n in range(1, 11)],
        *[("seldom", 110.0), ("often", 111.0)],
    ]


async def test_what_the_disk_refuses_is_said_rarely_and_tried_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried: list[float] = []
    fault = Fault.STORAGE

    async def work(now: float) -> None:
        tried.append(now)
        raise TreecastError(fault, "no space left")

    housekeeping = Housekeeping([Chore("chore", 1.0, work)])
    for second in range(601):
        await housekeeping.run(1000.0 + second)
    assert len(tried) == 601
    first, second = [record.getMessage() for record in caplog.records]
    assert first == "housekeeping waits for the disk: chore=chore, error=no space left"
    assert second.endswith(", left_out=599")
    caplog.clear()
    fault = Fault.INTERNAL
    for number in range(3):
        await housekeeping.run(5000.0 + number)
    assert len(caplog.records) == 3, "other faults than the disk's are logged each time"


async def test_a_slow_one_holds_nobody_up_and_is_not_begun_twice() -> None:
    diary = Diary()
    housekeeping = Housekeeping([diary.chore("slow", 1.0, slow=True), diary.chore("quick", 1.0)])
    for now in (1.0, 2.0, 3.0):
        assert await housekeeping.run(now) == now + 1.0
    assert [name for name, _ in diary.entries] == ["quick"] * 3
    diary.free.set()
    await housekeeping.settle()
    assert diary.entries[3:] == [("slow", 1.0)]
    await housekeeping.run(4.0)
    await housekeeping.settle()
    assert diary.entries[4:] == [("quick", 4.0), ("slow", 4.0)]


async def test_a_clock_that_was_set_back_stops_no_chore() -> None:
    diary = Diary()
    housekeeping = Housekeeping([diary.chore("often", 1.0)])
    await housekeeping.run(1000.0)
    assert await housekeeping.run(10.0) == 11.0
    assert diary.entries == [("often", 1000.0), ("often", 10.0)]
