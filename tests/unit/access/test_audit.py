"""The audit trail: equal to a plain list of all uses, bounded, and its files on disk."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.broker.access import (
    Content,
    Decision,
    Granted,
    Identities,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
    Row,
    Rule,
    Trail,
    User,
)
from treecast.middleware.daemon.audit import FILES, AuditFiles, AuditLog, lines_of
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.principal import Principal

READS = Rule("alice", Permission.ALLOW, Operation.READ, ResourceKind.TOPIC, Pattern.PREFIXED, "a")
WRITES = Rule("*", Permission.ALLOW, Operation.WRITE, ResourceKind.TOPIC, Pattern.LITERAL, "b")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.integers(0, 3), st.sampled_from(["alice", "bob"])),
        st.tuples(st.just("leave"), st.integers(0, 3)),
        st.tuples(
            st.just("use"),
            st.integers(0, 3),
            st.sampled_from([Operation.READ, Operation.WRITE]),
            st.sampled_from(["a", "ab", "b"]),
        ),
        st.tuples(st.just("take")),
        st.tuples(st.just("change")),
    ),
    max_size=60,
)


def counted(rows: list[Row]) -> Counter[tuple[str, str, str, bool]]:
    found: Counter[tuple[str, str, str, bool]] = Counter()
    for row in rows:
        found[row.principal, row.action, row.resource, row.allowed] += row.count
    return found


@given(STEPS)
def test_it_equals_a_list_of_all_uses(steps: list[tuple[object, ...]]) -> None:
    """Connections end, rules change and intervals pass: each use is in one row, once."""
    identities = Identities(Content({"root": User("root")}, (READS, WRITES)))
    trail = Trail()
    connections: dict[object, Granted] = {}
    expected: Counter[tuple[str, str, str, bool]] = Counter()
    found: Counter[tuple[str, str, str, bool]] = Counter()
    for what, *given_ in steps:
        if what == "connect":
            connections[given_[0]] = Granted(identities, Principal(str(given_[1])), trail, "kafka")
        elif what == "leave":
            connections.pop(given_[0], None)
        elif what == "take":
            found += counted(trail.take())
        elif what == "change":
            rules = () if identities.content.rules else (READS, WRITES)
            identities.replace(Content(identities.content.users, rules))
        elif given_[0] in connections:
            granted, operation, name = connections[given_[0]], given_[1], str(given_[2])
            assert isinstance(operation, Operation)
            allowed = granted.may(operation, ResourceKind.TOPIC, name)
            expected[granted.principal.name, operation.value, f"topic {name}", allowed] += 1
    connections.clear()
    found += counted(trail.take())
    assert found == expected
    assert trail.take() == []


def test_looks_are_noted_when_they_are_refused() -> None:
    identities = Identities(Content({"root": User("root")}, (READS,)))
    trail = Trail()
    granted = Granted(identities, Principal("alice"), trail, "kafka")
    assert granted.may(Operation.DESCRIBE, ResourceKind.TOPIC, "a")
    assert not granted.may(Operation.DESCRIBE, ResourceKind.TOPIC, "b")
    assert not granted.would(Operation.WRITE, ResourceKind.TOPIC, "b")
    assert trail.take() == []
    with pytest.raises(TreecastError, match="no right to describe"):
        granted.check(Operation.DESCRIBE, ResourceKind.TOPIC, "b")
    (row,) = trail.take()
    assert (row.action, row.resource, row.allowed, row.rule) == (
        "describe",
        "topic b",
        False,
        "no rule allows it",
    )


def test_more_rows_than_the_bound_are_one() -> None:
    trail = Trail(most=10)
    granted = Granted(Identities(Content({"root": User("root")})), Principal("alice"), trail, "mqtt")
    for number in range(100):
        granted.may(Operation.WRITE, ResourceKind.TOPIC, f"t{number}")
    rows = trail.take()
    assert len(rows) == 11
    assert (rows[-1].resource, rows[-1].count, rows[-1].allowed) == ("others", 90, False)
    assert sum(row.count for row in rows) == 100


def test_long_names_are_cut() -> None:
    trail = Trail()
    granted = Granted(Identities(Content({"root": User("root")})), Principal("a" * 1000), trail, "mqtt")
    granted.may(Operation.WRITE, ResourceKind.TOPIC, "t" * 70_000)
    (row,) = trail.take()
    assert len(row.resource) + len(row.principal) < 600


def row(number: int) -> Row:
    return Row("kafka", "alice", "10.0.0.7", "scram", "write", f"topic {number}", True, "r", 3)


def resources(path: Path) -> list[str]:
    return [json.loads(line)["resource"] for line in path.read_text().splitlines()]


async def test_what_a_full_disk_refuses_is_written_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, trail, write = tmp_path / "audit.log", Trail(), os.write
    audit = AuditLog(trail, AuditFiles(path, 1 << 20), most_unwritten=1_000)

    def full(descriptor: int, data: bytes) -> int:
        if len(data) <= 100:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:100])

    def use(name: str) -> None:
        decision = Decision(True, "r")
        trail.use("kafka", Principal("alice"), "write", "topic", name, decision).count += 1

    use("before")
    await audit._write()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for number in range(20):
            use(f"t{number}")
            await audit._write()
        assert resources(path) == ["topic before"]  # no half of a line
    use("after")
    await audit._write()
    found = resources(path)
    assert found[:2] == ["topic before", "topic t0"]
    assert 3 < len(found) < 20  # bounded: the latest of a long while are missing, and counted
    use("last")
    await audit._write()
    assert resources(path) == [*found, "topic last"]


async def test_lines_that_are_being_written_at_the_close_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, trail = tmp_path / "audit.log", Trail()
    files = AuditFiles(path, 1 << 20)
    begun, goes_on, write = threading.Event(), threading.Event(), files.write

    def slow(lines: bytes) -> None:
        begun.set()
        goes_on.wait(10)
        write(lines)

    monkeypatch.setattr(files, "write", slow)
    monkeypatch.setattr("treecast.middleware.daemon.audit.INTERVAL", 0.01)
    audit = AuditLog(trail, files)
    audit.start()
    trail.use("kafka", Principal("alice"), "write", "topic", "one", Decision(True, "r")).count += 1
    await asyncio.to_thread(begun.wait, 10)
    trail.use("kafka", Principal("alice"), "write", "topic", "two", Decision(True, "r")).count += 1
    asyncio.get_running_loop().call_later(0.05, goes_on.set)
    await audit.close()
    assert resources(path) == ["topic one", "topic two"]


def test_files_are_bounded_and_private(tmp_path: Path) -> None:
    path, most = tmp_path / "audit.log", 2_000
    files = AuditFiles(path, most)
    for number in range(200):
        files.write(lines_of([row(number)], number))
    found = sorted(tmp_path.iterdir())
    assert [one.name for one in found] == ["audit.log", *(f"audit.log.{n}" for n in range(1, FILES))]
    assert all(one.stat().st_size <= most and stat.S_IMODE(one.stat().st_mode) == 0o600 for one in found)
    lines = [json.loads(line) for one in reversed(found) for line in one.read_text().splitlines()]
    assert [line["resource"] for line in lines] == [f"topic {n}" for n in range(200 - len(lines), 200)]
    assert lines[-1] == {
        "time": "1970-01-01T00:03:19.000+00:00",
        "face": "kafka",
        "principal": "alice",
        "address": "10.0.0.7",
        "proof": "scram",
        "action": "write",
        "resource": "topic 199",
        "allowed": True,
        "rule": "r",
        "count": 3,
    }
