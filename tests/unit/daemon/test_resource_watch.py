"""A trouble is reported at once, then rarely, and when it ends; clients that cannot be served are refused."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import pytest

from treecast.middleware.daemon import resource_watch
from treecast.middleware.daemon.resource_problems import (
    COORDINATOR,
    DAEMON,
    RARELY,
    TRANSITIONS,
    Look,
    Seen,
    Space,
    State,
    Trouble,
    Troubles,
)
from treecast.middleware.daemon.resource_watch import (
    AHEAD,
    PROBE_BYTES,
    Descriptors,
    RoomWatch,
    free_descriptors,
    kept_of,
    refusal_of,
    space_of,
)
from treecast.middleware.model.counters import Counters


def test_every_state_knows_what_to_make_of_everything() -> None:
    assert set(TRANSITIONS) == {(state, seen) for state in State for seen in Seen}


def test_it_is_said_at_once_then_rarely_and_when_it_is_over() -> None:
    trouble = Trouble("over")
    assert trouble.look("", 0.0) == ""
    said = [trouble.look("bad", 1.0 + second) for second in range(1300)]
    assert [second for second, line in enumerate(said) if line] == [0, 600, 1200]
    assert set(said) == {"", "bad"}
    assert (trouble.text, trouble.state) == ("bad", State.TROUBLED)
    assert [trouble.look("", 2000.0 + second) for second in range(3)] == ["over", "", ""]
    assert trouble.state is State.FINE


def test_what_comes_and_goes_is_not_said_each_time() -> None:
    trouble = Trouble("over")
    said = [trouble.look("bad" if second % 2 else "", float(second)) for second in range(int(RARELY))]
    assert [line for line in said if line] == ["bad", "over"]
    trouble.look("bad", RARELY)
    assert trouble.text == "bad", "it is shown nevertheless"


def test_what_is_wrong_is_told_with_what_to_do() -> None:
    troubles = Troubles("/data", 64, 16)
    assert troubles.look(Look(Space(5, 10)), 0.0) == []
    assert (troubles.texts(), troubles.space) == ([], Space(5, 10))
    lines = troubles.look(Look(Space(0, 10_000), "No space left on device"), 1.0)
    assert lines == troubles.texts()
    assert lines[0].startswith(
        "the disk of /data refuses writes: No space left on device; 0 of 10,000 bytes are free. Nothing that"
    )
    lines = troubles.look(Look(Space(5, 10), no_files=True), 2.0)
    assert lines[0] == "the disk of /data accepts writes again"
    assert "64 may be open, of which 16 are reserved for the daemon" in lines[1]
    assert len(troubles.texts()) == 1


def test_a_disk_that_cannot_be_tried_for_want_of_a_descriptor_is_not_blamed() -> None:
    troubles = Troubles("/data", 64, 16)
    troubles.look(Look(None, "Too many open files", no_files=True), 0.0)
    assert [text.split(",")[0].split(":")[0] for text in troubles.texts()] == [
        "no file descriptors are left for clients"
    ]


# --- descriptors


class Table:
    """A table of descriptors of which some are free."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.asked = 0

    def __call__(self, most: int) -> int:
        self.asked += 1
        return min(self.free, most)


def test_clients_are_turned_away_before_the_last_descriptors_are_taken() -> None:
    table = Table(20)
    descriptors = Descriptors(16, table)
    admitted = 0
    while descriptors.admits():
        table.free -= 1
        admitted += 1
    assert (admitted, table.free, descriptors.turned_away) == (4, 16, 1)
    assert not descriptors.admits()
    table.free += 2
    assert [descriptors.admits() for _ in range(2)] == [True, True]


def test_they_are_not_counted_for_each_connection_while_there_are_many() -> None:
    table = Table(10_000)
    descriptors = Descriptors(64, table)
    assert all(descriptors.admits() for _ in range(10 * AHEAD))
    assert table.asked == 10


def test_how_many_are_kept() -> None:
    assert [kept_of(limit) for limit in (64, 256, 1024, 1 << 20)] == [16, 64, 64, 64]
    assert free_descriptors(5) == 5


# --- the disk


def test_a_disk_that_takes_what_is_written_and_one_that_is_not_there(tmp_path: Path) -> None:
    assert refusal_of(str(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []
    refused = refusal_of(str(tmp_path / "absent"))
    assert refused is not None
    assert refused.errno == errno.ENOENT
    space = space_of(str(tmp_path))
    assert space is not None
    assert 0 < space.free <= space.size
    assert space_of(str(tmp_path / "absent")) is None


def test_a_file_system_that_does_not_say_how_large_it_is_is_not_taken_for_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(os.statvfs(tmp_path))
    found[2:5] = [0, 0, 0]  # blocks in all, free and available, as FUSE answers where there is no such call
    monkeypatch.setattr(resource_watch.os, "statvfs", lambda _: os.statvfs_result(found))
    assert space_of(str(tmp_path)) is None


class Disk:
    """The disk's response to an attempt to write, and the number of attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: OSError | None = None
        self.free = 100 * PROBE_BYTES
        self.tried = 0
        monkeypatch.setattr(resource_watch, "refusal_of", self._refusal)
        monkeypatch.setattr(resource_watch, "space_of", lambda _: Space(self.free, 1000 * PROBE_BYTES))

    def _refusal(self, _: str) -> OSError | None:
        self.tried += 1
        return self.error


async def test_a_full_disk_is_found_by_what_it_refuses_and_by_its_space(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk, counters = Disk(monkeypatch), Counters()
    watch = RoomWatch("/data", lambda: counters.storage.write_errors + counters.pubsub.journal_errors)
    await watch.look()
    assert (disk.tried, watch.troubles.texts()) == (0, []), "a healthy disk is not probed"
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    counters.storage.write_errors += 1
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            await watch.look()
        assert len(watch.troubles.texts()) == 1
        disk.error = None
        await watch.look()
    assert watch.troubles.texts() == []
    first, last = [record.getMessage() for record in caplog.records]
    assert "refuses writes: No space left on device" in first
    assert last.endswith("detail=the disk of /data accepts writes again")
    disk.free = 0
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    await watch.look()
    assert watch.troubles.disk.text, "before anybody has tried to write"
    disk.free, disk.error = 100 * PROBE_BYTES, None
    await watch.look()
    counters.pubsub.journal_errors += 1
    await watch.look()
    assert "some are refused, and others accepted" in watch.troubles.disk.text


async def test_descriptors_that_are_used_up_are_told_until_there_are_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Disk(monkeypatch)
    watch = RoomWatch("/data", int)
    watch.descriptors = Descriptors(16, table := Table(16))
    assert not watch.descriptors.admits()
    for _ in range(2):
        await watch.look()
        assert "no file descriptors are left" in watch.troubles.descriptors.text
    table.free = 23
    assert watch.descriptors.admits()
    await watch.look()
    assert watch.troubles.texts(), "there is room for a few only"
    table.free = 24
    await watch.look()
    assert watch.troubles.texts() == []


async def test_a_coordinator_that_admits_nobody_itself_says_when_few_are_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Disk(monkeypatch)
    watch = RoomWatch("/data", int, COORDINATOR, admits=False)
    watch.descriptors = Descriptors(16, table := Table(17))
    await watch.look()
    assert watch.troubles.texts() == []
    table.free = 16
    for _ in range(3):
        await watch.look()
    (text,) = watch.troubles.texts()
    assert "restart the coordinator" in text
    assert [record.getMessage().partition("=")[2] for record in caplog.records] == [text]
    table.free = 40
    await watch.look()
    assert watch.troubles.texts() == []


def test_what_a_full_disk_means_differs() -> None:
    texts = set()
    for means in (DAEMON, COORDINATOR):
        troubles = Troubles("/data", 64, 16, means)
        troubles.look(Look(None, "No space left on device", no_files=False), 0.0)
        texts |= set(troubles.texts())
    assert len(texts) == 2
