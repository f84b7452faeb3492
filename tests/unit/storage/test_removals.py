"""Files are removed beside the loop, in order."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from treecast.middleware.storage.block_log import BlockLog
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.removals import Removals

PATIENCE_S = 60.0


class SlowDisk(Disk):
    """Removes nothing before `go`, and refuses while `refuses`."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.refuses = False
        self.removed: list[str] = []

    def unlink(self, path: str) -> None:
        assert self.go.wait(PATIENCE_S)
        if self.refuses:
            raise OSError(5, "refused")
        self.removed.append(path)
        super().unlink(path)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


def test_nobody_waits_for_a_slow_disk(tmp_path: Path, disk: SlowDisk) -> None:
    log = BlockLog.open(str(tmp_path), disk, False, lambda segment, block: None)
    for _ in range(5):
        log.append(b"x")
        log.roll()
    for segment in log.segments[:3]:
        log.drop(segment)
    assert [one.number for one in log.segments] == [4, 5, 6]
    assert len(list(tmp_path.glob("*.journal"))) == 6
    disk.go.set()
    log.close()
    assert sorted(int(one.stem) for one in tmp_path.glob("*.journal")) == [4, 5, 6]


def test_a_file_that_is_refused_comes_before_later_ones(disk: SlowDisk) -> None:
    removals = Removals(disk)
    disk.go.set()
    disk.refuses = True
    for name in ("a", "b"):
        removals.add(name)
        removals.finish()
    assert disk.removed == []
    disk.refuses = False
    removals.add("c")
    removals.finish()
    assert disk.removed == ["a", "b", "c"]
