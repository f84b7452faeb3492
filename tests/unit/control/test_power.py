"""A power loss at a coordinator: what its store keeps under each fsync policy."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.loops import holds
from tests.unit.power import Power

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.join_token import new_token
from treecast.middleware.control import commands
from treecast.middleware.control.server import OpenCoordinator, ServerSettings
from treecast.middleware.control.store import Commit, SqliteStore
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.settings import FsyncPolicy

CLUSTER = "c" * 22


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[Power]:
    made = Power(monkeypatch)
    yield made
    made.close()


def revision_after_loss(power: Power, data: Path, policy: FsyncPolicy) -> int:
    left = power.lose(data, data.parent / "left")
    store = SqliteStore(left / "coordinator.db", map(str, itertools.count(1)).__next__, fsync=policy)
    revision = store.load().revision
    store.close()
    return revision


@pytest.mark.parametrize("policy", [FsyncPolicy.BATCH, FsyncPolicy.INTERVAL])
async def test_what_is_older_than_the_interval_is_there(
    tmp_path: Path, power: Power, policy: FsyncPolicy
) -> None:
    power.sqlite_forces = policy is FsyncPolicy.BATCH
    token = new_token(CLUSTER)
    settings = ServerSettings(
        Address("127.0.0.1", 0),
        tmp_path / "data" / "coordinator.db",
        token,
        fsync=policy,
        fsync_interval=0.01,
    )
    opened = OpenCoordinator(settings)
    opened.start()
    for name in ("a", "b"):
        await opened.coordinator.do(commands.Attach(name, "i", "h:1", "1"))
    store = opened.coordinator._store
    assert isinstance(store, SqliteStore)
    if policy is FsyncPolicy.INTERVAL:  # it says so before it has forced, on the thread of `beside`
        await holds(lambda: not store._unforced)
        await opened.coordinator.stored.beside(lambda: None)
    assert revision_after_loss(power, tmp_path / "data", policy) == 2
    await opened.close()


async def test_what_was_not_forced_is_gone_and_the_store_serves_under_another_history(
    tmp_path: Path, power: Power, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = map(str, itertools.count(1))
    boots = map(str, itertools.count(1))
    monkeypatch.setattr("treecast.middleware.control.store._boot", boots.__next__)
    path = tmp_path / "data" / "coordinator.db"
    store = SqliteStore(path, names.__next__, fsync=FsyncPolicy.INTERVAL)
    history = store.load().history
    store.force()
    left = power.lose(tmp_path / "data", tmp_path / "left")
    again = SqliteStore(left / "coordinator.db", names.__next__, fsync=FsyncPolicy.INTERVAL)
    assert again.load().history != history
    again.close()
    store.close()


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_failed_sync_left_is_in_the_database_before_anything_is_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, killed: bool
) -> None:
    """The kernel no longer has it as unwritten: the write-ahead log ends at it after a power loss, though the
    process that saw the failure was killed since."""
    path, names = tmp_path / "data" / "coordinator.db", map(str, itertools.count(1))
    store = SqliteStore(path, names.__next__, fsync=FsyncPolicy.INTERVAL)
    store.commit([Commit(1, ())], 0)

    def refuse(_: Disk, path: str) -> None:
        raise OSError(5, f"Input/output error: {path}")

    with monkeypatch.context() as patch:
        patch.setattr(Disk, "sync_path", refuse)
        with pytest.raises(TreecastError, match="cannot force"):
            store.force()
    if killed:
        shutil.copytree(tmp_path / "data", tmp_path / "killed")
        path = tmp_path / "killed" / "coordinator.db"
        store.close()
        store = SqliteStore(path, names.__next__, fsync=FsyncPolicy.INTERVAL)
    else:
        store.force()
    shutil.copy(path, tmp_path / "without-its-log.db")
    left = SqliteStore(tmp_path / "without-its-log.db", names.__next__, fsync=FsyncPolicy.INTERVAL)
    assert left.load().revision == 1
    left.close()
    store.close()
