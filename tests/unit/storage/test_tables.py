"""Durable tables: atomic groups of changes, whatever the fsync policy."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.loops import holds
from tests.unit.power import Power

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.disk import make_directory
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Change, Tables

POLICIES = list(FsyncPolicy)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_written_is_there_after_opening_again(tmp_path: Path, policy: FsyncPolicy) -> None:
    tables = Tables(tmp_path / "t.db", policy)
    tables.write([Change("a", "x", b"1"), Change("a", "y", b"2"), Change("b", "x", b"3")])
    tables.write([Change("a", "x", None), Change("a", "y", b"4"), Change("a", "nothing", None)])
    tables.close()
    tables = Tables(tmp_path / "t.db", policy)
    assert tables.load("a") == {"y": b"4"}
    assert tables.load("b") == {"x": b"3"}
    assert tables.load("c") == {}
    tables.close()


@pytest.mark.parametrize("policy", POLICIES)
async def test_commits_of_many_at_once(tmp_path: Path, policy: FsyncPolicy) -> None:
    tables = Tables(tmp_path / "t.db", policy)
    await asyncio.gather(*(tables.commit([Change("a", str(n), b"%d" % n)]) for n in range(50)))
    assert tables.load("a") == {str(n): b"%d" % n for n in range(50)}
    await asyncio.gather(*(tables.commit([Change("a", "same", b"%d" % n)]) for n in range(50)))
    assert tables.load("a")["same"] == b"49"
    tables.close()


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_refusal_changes_nothing(tmp_path: Path, policy: FsyncPolicy) -> None:
    tables = Tables(tmp_path / "t.db", policy)
    tables.write([Change("a", "x", b"1")])
    blocker = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
    tables._database.execute("PRAGMA busy_timeout = 0")
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(TreecastError) as refused:
        await tables.commit([Change("a", "x", None), Change("a", "y", b"2")])
    assert refused.value.fault is Fault.STORAGE
    blocker.execute("ROLLBACK")
    assert tables.load("a") == {"x": b"1"}
    await tables.commit([Change("a", "y", b"2")])
    assert tables.load("a") == {"x": b"1", "y": b"2"}
    blocker.close()
    tables.close()


async def test_an_abandoned_commit_still_happens(tmp_path: Path) -> None:
    tables = Tables(tmp_path / "t.db", FsyncPolicy.BATCH)
    given_up = asyncio.ensure_future(tables.commit([Change("a", "x", b"1")]))
    await asyncio.sleep(0)
    given_up.cancel()
    await tables.commit([Change("a", "y", b"2")])
    assert tables.load("a") == {"x": b"1", "y": b"2"}
    tables.close()


# --- what a power loss takes


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    made = Power(monkeypatch)
    yield made
    made.close()


def made(folder: Path, policy: FsyncPolicy) -> Tables:
    make_directory(str(folder / "data"))
    return Tables(folder / "data" / "t.sqlite", policy)


async def forced(tables: Tables) -> None:
    tables.force()
    await holds(lambda: tables._forcing is None)


def after_loss(power: Power, folder: Path, policy: FsyncPolicy) -> dict[str, bytes]:
    tables = Tables(power.lose(folder / "data", folder / "left") / "t.sqlite", policy)
    left = tables.load("a")
    tables.close()
    return left


async def test_the_interval_forces_the_write_ahead_log(tmp_path: Path, power: Power) -> None:
    tables = made(tmp_path, FsyncPolicy.INTERVAL)
    tables.write([Change("a", "old", b"1")])
    await forced(tables)
    tables.write([Change("a", "young", b"2")])
    assert after_loss(power, tmp_path, FsyncPolicy.INTERVAL) == {"old": b"1"}
    tables.close()


async def test_nothing_is_forced_where_nothing_was_written(tmp_path: Path, power: Power) -> None:
    tables = made(tmp_path, FsyncPolicy.INTERVAL)
    await forced(tables)
    syncs: list[str] = []
    tables._disk.sync_path = syncs.append  # type: ignore[method-assign]
    await forced(tables)
    assert syncs == []
    await tables.commit([Change("a", "x", b"1")])
    await forced(tables)
    assert syncs == [f"{tmp_path}/data/t.sqlite-wal"]
    tables.close()


async def test_a_disk_that_refuses_is_asked_again(tmp_path: Path, power: Power) -> None:
    tables = made(tmp_path, FsyncPolicy.INTERVAL)
    tables.write([Change("a", "x", b"1")])

    def refuse(path: str) -> None:
        raise OSError(5, "Input/output error")

    tables._disk.sync_path = refuse  # type: ignore[method-assign]
    await forced(tables)
    del tables._disk.sync_path
    await forced(tables)
    assert after_loss(power, tmp_path, FsyncPolicy.INTERVAL) == {"x": b"1"}
    tables.close()


@pytest.mark.parametrize("logged", [True, False])
async def test_what_a_failed_sync_of_the_write_ahead_log_left_is_in_the_database_before_one_succeeds(
    tmp_path: Path, logged: bool
) -> None:
    """The kernel no longer has it as unwritten: what follows in that log is lost with it."""
    (tmp_path / "data").mkdir()
    tables = Tables(tmp_path / "data" / "t.sqlite", FsyncPolicy.INTERVAL, logged=logged)

    def refuse(path: str) -> None:
        raise OSError(5, "Input/output error")

    async def made_last() -> None:
        if not logged:
            await forced(tables)
            return
        assert tables._log is not None
        with suppress(TreecastError):
            tables._fold_now(tables._log)

    tables.write([Change("a", "x", b"1")])
    tables._disk.sync_path = refuse  # type: ignore[method-assign]
    await made_last()
    del tables._disk.sync_path
    tables.write([Change("a", "y", b"2")])
    await made_last()
    (tmp_path / "left").mkdir()
    shutil.copy(tmp_path / "data" / "t.sqlite", tmp_path / "left")
    left = Tables(tmp_path / "left" / "t.sqlite", FsyncPolicy.INTERVAL)
    assert left.load("a")["x"] == b"1"
    left.close()
    tables.close()


@pytest.mark.parametrize("policy", [FsyncPolicy.BATCH, FsyncPolicy.INTERVAL])
def test_what_a_killed_process_left_in_the_write_ahead_log_is_in_the_database_at_once(
    tmp_path: Path, policy: FsyncPolicy
) -> None:
    """A sync of it may have failed: the kernel tells the next process nothing of that."""
    tables = Tables(tmp_path / "t.sqlite", policy)
    tables.write([Change("a", "x", b"1")])
    (tmp_path / "killed").mkdir()
    for name in ("t.sqlite", "t.sqlite-wal"):
        shutil.copy(tmp_path / name, tmp_path / "killed")
    tables.close()
    tables = Tables(tmp_path / "killed" / "t.sqlite", policy)
    (tmp_path / "left").mkdir()
    shutil.copy(tmp_path / "killed" / "t.sqlite", tmp_path / "left")
    left = Tables(tmp_path / "left" / "t.sqlite", policy)
    assert left.load("a") == {"x": b"1"}
    left.close()
    tables.close()


def test_with_batch_sqlite_forces_each_commit_and_never_less_than_a_whole_database(tmp_path: Path) -> None:
    """`synchronous`: 2 is FULL, 1 NORMAL; with 0 a power loss may leave no database at all."""
    for policy, level in ((FsyncPolicy.BATCH, 2), (FsyncPolicy.INTERVAL, 1), (FsyncPolicy.NEVER, 1)):
        tables = Tables(tmp_path / policy.value, policy)
        assert tables._database.execute("PRAGMA synchronous").fetchone() == (level,)
        tables.close()


@pytest.mark.parametrize("policy", [FsyncPolicy.INTERVAL, FsyncPolicy.NEVER])
async def test_the_write_ahead_log_stays_short_though_nobody_waits_for_a_checkpoint(
    tmp_path: Path, policy: FsyncPolicy
) -> None:
    tables = Tables(tmp_path / "t.db", policy)
    for round_ in range(20):
        for number in range(300):
            tables.write([Change("a", str(number), b"%d" % round_ * 100)])
        await forced(tables)
    assert (tmp_path / "t.db-wal").stat().st_size < 4 * 2000 * 4096
    assert tables.load("a") == {str(number): b"%d" % 19 * 100 for number in range(300)}
    tables.close()
