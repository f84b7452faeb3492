"""Durable tables: atomic groups of changes, whatever the fsync policy."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from treecast.middleware.model.errors import Fault, TreecastError
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
