"""Logged tables: the log of changes in front of the database, whoever opens it, whenever the process ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.loops import holds
from tests.unit.power import ForgetfulDisk, Power

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.disk import Disk, make_directory
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Change, Tables

POLICIES = list(FsyncPolicy)


def opened(folder: Path, policy: FsyncPolicy = FsyncPolicy.NEVER, **how: object) -> Tables:
    return Tables(folder / "t.sqlite", policy, logged=True, **how)  # type: ignore[arg-type]


def killed(tables: Tables) -> None:
    """Ends the use of tables as a kill does: nothing is folded or forced."""
    assert tables._log is not None
    tables._log.close()
    tables._log = None
    tables._database.close()


@pytest.mark.parametrize("policy", POLICIES)
async def test_commits_are_there_after_a_kill(tmp_path: Path, policy: FsyncPolicy) -> None:
    tables = opened(tmp_path, policy)
    tables.write([Change("a", "x", b"1"), Change("b", "x", b"2")])
    await asyncio.gather(*(tables.commit([Change("a", str(n), b"%d" % n)]) for n in range(5)))
    await tables.commit([Change("a", "x", None)])
    expected = {str(n): b"%d" % n for n in range(5)}
    assert tables.load("a") == expected
    assert tables.get("a", "x") is None
    killed(tables)
    tables = opened(tmp_path, policy)
    assert tables.load("a") == expected
    assert tables.load("b") == {"x": b"2"}
    tables.close()


async def test_all_commits_of_a_batch_are_one_block(tmp_path: Path) -> None:
    tables = opened(tmp_path, FsyncPolicy.BATCH)
    assert tables._log is not None
    await asyncio.gather(*(tables.commit([Change("a", str(n), b"x")]) for n in range(50)))
    assert tables._log.number <= 2
    tables.close()


@pytest.mark.parametrize("logged", [True, False])
def test_whoever_opens_the_tables_has_what_the_log_holds(tmp_path: Path, logged: bool) -> None:
    tables = opened(tmp_path)
    tables.write([Change("a", "x", b"1")])
    killed(tables)
    again = Tables(tmp_path / "t.sqlite", FsyncPolicy.NEVER, logged=logged)
    assert again.load("a") == {"x": b"1"}
    again.write([Change("a", "x", b"2")])
    again.close()
    tables = opened(tmp_path)
    assert tables.load("a") == {"x": b"2"}
    tables.close()


def test_an_older_release_finds_everything_in_the_database_after_an_orderly_end(tmp_path: Path) -> None:
    tables = opened(tmp_path)
    tables.write([Change("a", "x", b"1")])
    tables.close()
    shutil.rmtree(tmp_path / "t.log")
    plain = Tables(tmp_path / "t.sqlite", FsyncPolicy.NEVER)
    assert plain.load("a") == {"x": b"1"}
    plain.close()


def test_tables_of_an_older_release_go_on(tmp_path: Path) -> None:
    plain = Tables(tmp_path / "t.sqlite", FsyncPolicy.NEVER)
    plain.write([Change("a", "x", b"1"), Change("a", "y", b"1")])
    plain.close()
    tables = opened(tmp_path)
    tables.write([Change("a", "x", None)])
    assert tables.load("a") == {"y": b"1"}
    tables.close()


async def test_the_log_stays_short_and_the_last_values_count(tmp_path: Path) -> None:
    tables = opened(tmp_path, fold_at=10_000)
    log = tables._log
    assert log is not None
    for number in range(3_000):
        await tables.commit([Change("a", str(number % 7), b"%d" % number)])
        if number % 100 == 0:
            await holds(lambda: tables._fold_job is None)
        assert log.size < 30_000
    expected = {str(number % 7): b"%d" % number for number in range(2_993, 3_000)}
    assert tables.load("a") == expected
    killed(tables)
    tables = opened(tmp_path)
    assert tables.load("a") == expected
    tables.close()


class Refusing(Disk):
    """Refuses writes and the fold while `full`."""

    full = False

    def write(self, descriptor: int, data: memoryview | bytes | bytearray, position: int) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(descriptor, data, position)

    def sync_path(self, path: str) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        super().sync_path(path)


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_refusal_changes_nothing(tmp_path: Path, policy: FsyncPolicy) -> None:
    disk = Refusing()
    tables = opened(tmp_path, policy, disk=disk)
    await tables.commit([Change("a", "x", b"1")])
    disk.full = True
    with pytest.raises(TreecastError) as refused:
        await tables.commit([Change("a", "x", None), Change("a", "y", b"2")])
    assert refused.value.fault is Fault.STORAGE
    assert tables.load("a") == {"x": b"1"}
    disk.full = False
    await tables.commit([Change("a", "y", b"3")])
    killed(tables)
    tables = opened(tmp_path, policy)
    assert tables.load("a") == {"x": b"1", "y": b"3"}
    tables.close()


async def test_a_fold_that_the_disk_refuses_is_made_a_minute_later(tmp_path: Path) -> None:
    disk, now, folds = Refusing(), [1000.0], []
    tables = opened(tmp_path, disk=disk, fold_at=200, clock=lambda: now[0])

    def refuse(path: str) -> None:
        folds.append(now[0])
        raise OSError(5, "Input/output error")

    disk.sync_path = refuse  # type: ignore[method-assign]
    for number in range(20):
        await tables.commit([Change("a", "x", b"%d" % number)])
        await holds(lambda: tables._fold_job is None)
    assert folds == [1000.0]
    now[0] = 1060.0
    for _ in range(3):
        await tables.commit([Change("a", "x", b"19")])
        await holds(lambda: tables._fold_job is None)
    assert folds == [1000.0, 1060.0]
    assert tables.load("a") == {"x": b"19"}
    now[0] = 1120.0
    del disk.sync_path
    await tables.commit([Change("a", "y", b"1")])
    await holds(lambda: tables._fold_job is None)
    assert tables._log is not None
    assert tables._log.size < 200
    killed(tables)
    tables = opened(tmp_path)
    assert tables.load("a") == {"x": b"19", "y": b"1"}
    tables.close()


def test_folds_that_fail_with_nothing_in_between_begin_one_segment(tmp_path: Path) -> None:
    disk = Refusing()
    tables = opened(tmp_path, disk=disk)
    tables.write([Change("a", "x", b"1")])
    assert tables._log is not None
    disk.full = True
    for _ in range(3):
        with pytest.raises(TreecastError, match="No space left"):
            tables._fold_now(tables._log)
    disk.full = False
    assert len(list((tmp_path / "t.log").glob("*.journal"))) == 2
    tables._fold_now(tables._log)
    tables.write([Change("a", "y", b"2")])
    killed(tables)
    assert len(list((tmp_path / "t.log").glob("*.journal"))) == 1
    tables = opened(tmp_path)
    assert tables.load("a") == {"x": b"1", "y": b"2"}
    tables.close()


def test_an_end_at_which_sqlite_refuses_leaves_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = opened(tmp_path)
    tables.write([Change("a", "x", b"1")])

    def refuse() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(tables, "_checkpoint_if_due", refuse)
    tables.close()
    tables = opened(tmp_path)
    assert tables.load("a") == {"x": b"1"}
    tables.close()


# --- a sync that fails


def after_failure(disk: ForgetfulDisk, folder: Path, policy: FsyncPolicy) -> dict[str, bytes]:
    again = opened(disk.lose(folder / "data", folder / "left"), policy)
    found = again.load("a")
    again.close()
    return found


def test_a_write_after_a_refused_one_is_acknowledged_only_if_power_takes_neither(tmp_path: Path) -> None:
    make_directory(str(tmp_path / "data"))
    disk = ForgetfulDisk()
    tables = opened(tmp_path / "data", FsyncPolicy.BATCH, disk=disk)
    tables.write([Change("a", "x", b"1")])
    disk.failures = 1
    with pytest.raises(TreecastError, match="Input/output error") as refused:
        tables.write([Change("a", "y", b"2")])
    assert refused.value.fault is Fault.STORAGE
    tables.write([Change("a", "z", b"3")])
    assert tables.load("a") == {"x": b"1", "y": b"2", "z": b"3"}
    assert after_failure(disk, tmp_path, FsyncPolicy.BATCH) == tables.load("a")
    tables.close()


@pytest.mark.parametrize("policy", [FsyncPolicy.BATCH, FsyncPolicy.INTERVAL])
async def test_what_the_disk_has_lost_of_the_log_is_folded_from_memory(
    tmp_path: Path, policy: FsyncPolicy
) -> None:
    make_directory(str(tmp_path / "data"))
    disk = ForgetfulDisk()
    tables = opened(tmp_path / "data", policy, disk=disk)
    tables.write([Change("a", "x", b"1")])
    disk.failures = 1
    if policy is FsyncPolicy.BATCH:
        with pytest.raises(TreecastError, match="Input/output error"):
            await tables.commit([Change("a", "y", b"2")])
    else:
        tables.force()
        await holds(lambda: tables._forcing is None)
        await tables.commit([Change("a", "y", b"2")])
    for segment in (tmp_path / "data" / "t.log").glob("*.journal"):
        segment.write_bytes(bytes(segment.stat().st_size))
    await holds(lambda: tables._fold_job is None)
    await tables.commit([Change("a", "z", b"3")])
    tables.force()
    await holds(lambda: tables._forcing is None)
    assert after_failure(disk, tmp_path, policy) == {"x": b"1", "y": b"2", "z": b"3"}
    tables.close()


# --- copies that come back


def copied(folder: Path, *names: str) -> dict[str, Path]:
    """Copies files and folders of the killed tables."""
    aside = folder / f"aside-{len(list(folder.iterdir()))}"
    aside.mkdir()
    for name in names:
        source = folder / name
        if source.is_dir():
            shutil.copytree(source, aside / name)
        elif source.exists():
            shutil.copy(source, aside / name)
    return {name: aside / name for name in names}


def restored(folder: Path, copies: dict[str, Path]) -> None:
    for name, copy in copies.items():
        target = folder / name
        if target.is_dir():
            shutil.rmtree(target)
        target.unlink(missing_ok=True)
        if copy.is_dir():
            shutil.copytree(copy, target)
        elif copy.exists():
            shutil.copy(copy, target)


DATABASE = ("t.sqlite", "t.sqlite-wal", "t.sqlite-shm")


def write(folder: Path, value: bytes) -> None:
    tables = opened(folder)
    tables.write([Change("a", "x", value)])
    killed(tables)


def test_a_log_that_comes_back_old_or_twice_takes_nothing_back(tmp_path: Path) -> None:
    write(tmp_path, b"1")
    old = copied(tmp_path, "t.log")
    opened(tmp_path).close()  # folds it
    write(tmp_path, b"2")
    opened(tmp_path).close()
    for _ in range(2):
        restored(tmp_path, old)
        tables = opened(tmp_path)
        assert tables.get("a", "x") == b"2"
        tables.write([Change("a", "y", b"1")])
        killed(tables)
        tables = opened(tmp_path)
        assert tables.load("a") == {"x": b"2", "y": b"1"}
        tables.close()


def test_a_database_that_comes_back_older_than_its_log_is_refused(tmp_path: Path) -> None:
    write(tmp_path, b"1")
    opened(tmp_path).close()
    old = copied(tmp_path, *DATABASE)
    write(tmp_path, b"2")
    opened(tmp_path).close()
    write(tmp_path, b"3")
    restored(tmp_path, old)
    with pytest.raises(TreecastError, match=r"restore both from one copy, or remove the folder") as refused:
        opened(tmp_path)
    assert refused.value.fault is Fault.STORAGE
    shutil.rmtree(tmp_path / "t.log")  # as the message says
    tables = opened(tmp_path)
    assert tables.load("a") == {"x": b"1"}
    tables.close()


def test_a_copy_of_both_is_the_state_of_its_time(tmp_path: Path) -> None:
    write(tmp_path, b"1")
    old = copied(tmp_path, *DATABASE, "t.log")
    opened(tmp_path).close()
    write(tmp_path, b"2")
    restored(tmp_path, old)
    tables = opened(tmp_path)
    assert tables.load("a") == {"x": b"1"}
    tables.close()


# --- what a power loss takes


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    made = Power(monkeypatch)
    yield made
    made.close()


def after_loss(power: Power, folder: Path, policy: FsyncPolicy) -> dict[str, bytes]:
    tables = opened(power.lose(folder / "data", folder / "left"), policy)
    left = tables.load("a")
    killed(tables)
    return left


async def test_the_interval_forces_the_log(tmp_path: Path, power: Power) -> None:
    make_directory(str(tmp_path / "data"))
    tables = opened(tmp_path / "data", FsyncPolicy.INTERVAL)
    await tables.commit([Change("a", "old", b"1")])
    tables.force()
    await holds(lambda: tables._forcing is None)
    await tables.commit([Change("a", "young", b"2")])
    assert after_loss(power, tmp_path, FsyncPolicy.INTERVAL) == {"old": b"1"}
    tables.close()


async def test_with_batch_each_answered_commit_is_on_disk(tmp_path: Path, power: Power) -> None:
    make_directory(str(tmp_path / "data"))
    tables = opened(tmp_path / "data", FsyncPolicy.BATCH)
    tables.write([Change("a", "x", b"1")])
    await tables.commit([Change("a", "y", b"2")])
    assert after_loss(power, tmp_path, FsyncPolicy.BATCH) == {"x": b"1", "y": b"2"}
    tables.close()


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_fold_is_on_disk_before_its_blocks_are_dropped(
    tmp_path: Path, power: Power, policy: FsyncPolicy
) -> None:
    make_directory(str(tmp_path / "data"))
    tables = opened(tmp_path / "data", policy, fold_at=100)
    for number in range(20):
        await tables.commit([Change("a", str(number), b"x" * 20)])
        await holds(lambda: tables._fold_job is None)
    left = after_loss(power, tmp_path, policy)
    assert len(left) >= 15
    assert left == {str(number): b"x" * 20 for number in range(len(left))}
    tables.close()


@pytest.mark.parametrize("left", [0, 1])
def test_a_power_loss_that_takes_whole_blocks_at_the_end_of_a_segment_ends_the_log(
    tmp_path: Path, left: int
) -> None:
    tables = opened(tmp_path)
    assert tables._log is not None
    sizes = [0]
    for key in "xy":
        tables.write([Change("a", key, b"1")])
        sizes.append(tables._log.size)
    tables._log.begin_fold()  # rolls; the database has nothing yet
    tables.write([Change("a", "z", b"1")])
    killed(tables)
    first, _ = sorted((tmp_path / "t.log").glob("*.journal"))
    os.truncate(first, sizes[left])
    tables = opened(tmp_path)
    expected = {"x": b"1"} if left else {}
    assert tables.load("a") == expected
    tables.write([Change("a", "later", b"2")])
    killed(tables)
    tables = opened(tmp_path)
    assert tables.load("a") == expected | {"later": b"2"}
    tables.close()


def test_a_gap_behind_a_segment_that_was_forced_is_refused(tmp_path: Path) -> None:
    tables = opened(tmp_path, FsyncPolicy.INTERVAL)
    assert tables._log is not None
    tables.write([Change("a", "x", b"1")])
    one = tables._log.size
    tables.write([Change("a", "y", b"1")])
    tables._log.begin_fold()
    tables.write([Change("a", "z", b"1")])
    tables._log.begin_sync().run()
    killed(tables)
    os.truncate(min((tmp_path / "t.log").glob("*.journal")), one)
    with pytest.raises(TreecastError, match="restore both from one copy") as refused:
        opened(tmp_path, FsyncPolicy.INTERVAL)
    assert refused.value.fault is Fault.STORAGE


# --- against a dictionary

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.lists(
                st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.none() | st.binary(max_size=4)),
                max_size=4,
            ),
        ),
        st.sampled_from([("kill", []), ("close", []), ("plain", []), ("fold", [])]),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_tables_hold_what_was_written_however_they_are_closed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[tuple[str, str, bytes | None]]]]
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    tables = opened(folder)
    model: dict[str, dict[str, bytes]] = {"a": {}, "b": {}}
    for step, rows in steps:
        if step == "write":
            tables.write([Change(*row) for row in rows])
            for table, key, value in rows:
                model[table].pop(key, None)
                if value is not None:
                    model[table][key] = value
        elif step == "fold":
            assert tables._log is not None
            tables._fold_now(tables._log)
        else:
            tables.close() if step == "close" else killed(tables)
            if step == "plain":
                Tables(folder / "t.sqlite", FsyncPolicy.NEVER).close()
            tables = opened(folder)
        assert {table: tables.load(table) for table in model} == model
        assert all(tables.get(table, key) == model[table].get(key) for table in model for key in "xyz")
    tables.close()
