"""One timer serves many deadlines, and one write stores many changes."""

from __future__ import annotations

import asyncio

import hypothesis.strategies as st
import pytest
from hypothesis import given

from treecast.middleware.broker.groups.deadlines import Deadlines
from treecast.middleware.broker.groups.journal import Journal
from treecast.middleware.broker.homes import TableStore
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Change, Tables


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 20) | st.none()), max_size=40))
def test_the_earliest_of_each_key_counts(steps: list[tuple[str, int | None]]) -> None:
    """Compared with a dict: a number adds a deadline, None discards the key."""

    async def run() -> None:
        deadlines, reference = Deadlines(lambda: -1e9, lambda: None), {}
        for key, deadline in steps:
            if deadline is None:
                deadlines.discard(key)
                reference.pop(key, None)
            else:
                deadlines.add(key, deadline)
                reference[key] = min(deadline, reference.get(key, deadline))
            assert deadlines.next() == min(reference.values(), default=float("inf"))
        due = list(deadlines.take_due(10))
        assert sorted(due) == sorted(key for key, deadline in reference.items() if deadline <= 10)
        assert [reference[key] for key in due] == sorted(reference[key] for key in due)
        assert deadlines.next() == min((d for d in reference.values() if d > 10), default=float("inf"))
        deadlines.close()

    asyncio.run(run())


async def test_the_timer_fires_for_each_deadline_in_turn() -> None:
    fired: list[str] = []
    over = asyncio.Event()
    clock = asyncio.get_running_loop().time

    def due() -> None:
        fired.extend(str(key) for key in deadlines.take_due(clock()))
        if len(fired) == 3:
            over.set()

    deadlines = Deadlines(clock, due)
    for key, delay in (("late", 0.03), ("soon", 0.01), ("gone", 0.0), ("now", -1.0)):
        deadlines.add(key, clock() + delay)
    deadlines.discard("gone")
    await asyncio.wait_for(over.wait(), 10)
    assert fired == ["now", "soon", "late"]
    assert deadlines.next() == float("inf")


async def test_an_earlier_deadline_moves_the_timer() -> None:
    over = asyncio.Event()
    clock = asyncio.get_running_loop().time
    deadlines = Deadlines(clock, over.set)
    deadlines.add("far", clock() + 3600)
    deadlines.add("near", clock() + 0.01)
    await asyncio.wait_for(over.wait(), 10)
    deadlines.close()


class Disk:
    """Stands in for the tables: each write waits for `go`."""

    def __init__(self) -> None:
        self.writes: list[list[Change]] = []
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def commit(self, changes: list[Change]) -> None:
        self.writes.append(changes)
        await self.go.wait()
        if self.error is not None:
            raise self.error


def change(key: str, value: bytes | None = b"") -> Change:
    return Change("table", key, value)


async def test_what_comes_while_a_write_is_under_way_is_the_next_write() -> None:
    disk, done = Disk(), []
    journal = Journal(TableStore(disk))
    journal.submit("g", 0, [change("a")], lambda error: done.append("a"))
    journal.submit("g", 0, [change("b")], lambda error: done.append("b"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    last = journal.submit("g", 0, [change("a", None), change("c")], lambda error: done.append("c"))
    assert done == []
    disk.go.set()
    await asyncio.shield(last)
    assert done == ["a", "b", "c"]
    assert disk.writes == [[change("a"), change("b")], [change("a", None), change("c")]]


async def test_of_one_key_the_last_change_counts(tmp_path) -> None:
    tables = Tables(tmp_path / "tables", FsyncPolicy.NEVER)
    journal = Journal(TableStore(tables))
    journal.submit("g", 0, [change("set", b"1"), change("deleted", b"1")], lambda error: None)
    journal.submit("g", 0, [change("deleted", None), change("set", None)], lambda error: None)
    journal.submit("g", 0, [change("set", b"2")], lambda error: None)
    await journal.drain()
    assert tables.load("table") == {"set": b"2"}
    tables.close()


@pytest.mark.parametrize("error", [TreecastError(Fault.STORAGE, "full"), RuntimeError("broken")])
async def test_everybody_is_told_of_a_failure(error: Exception) -> None:
    disk, told = Disk(), []
    disk.error = error
    disk.go.set()
    journal = Journal(TableStore(disk))
    futures = [journal.submit("g", 0, [change(key)], told.append) for key in "ab"]
    result = await asyncio.shield(futures[0])
    assert futures[0] is futures[1]
    assert result.fault is Fault.STORAGE
    assert [found.fault for found in told] == [Fault.STORAGE] * 2
    disk.error = None
    assert await asyncio.shield(journal.submit("g", 0, [change("c")], told.append)) is None, (
        "the next write succeeds"
    )


async def test_an_error_in_what_follows_a_write_stops_nobody_else() -> None:
    disk, told = Disk(), []
    disk.go.set()
    journal = Journal(TableStore(disk))

    def broken(error: TreecastError | None) -> None:
        raise ZeroDivisionError

    journal.submit("g", 0, [change("a")], broken)
    await asyncio.shield(journal.submit("g", 0, [change("b")], told.append))
    assert told == [None]
