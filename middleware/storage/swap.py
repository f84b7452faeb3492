"""Replacing and removing segment files so that a crash between any two steps leaves a whole log.

Removing: the .log is renamed to .log.deleted, which takes the segment out of the log in one step; then its
other files go. Replacing (compaction), in Kafka's steps: new files are written as .cleaned and forced to
the disk; the indexes and at last the .log are renamed to .swap, which decides; the old segments that it
covers are removed; .swap loses its suffix. At open, .cleaned and .deleted are leftovers and go; a
.log.swap is carried through; .swap without a .log.swap goes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from .disk import Disk
from .scan import BatchScanner

if TYPE_CHECKING:
    from .recovery import RecoveryReport

CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
_INDEXES: Final = (".index", ".timeindex", ".txnindex")
_LEFT: Final = (CLEANED, DELETED, ".tmp", ".checkpoint")
_DIGITS: Final = 20


def remove_segment(directory: str, base_offset: int, disk: Disk) -> str:
    """Takes a segment out of the log: the path of what is left of it, to be unlinked at leisure."""
    path = f"{directory}/{base_offset:020d}"
    deleted = path + ".log" + DELETED
    disk.rename(path + ".log", deleted)
    for suffix in _INDEXES:
        disk.unlink(path + suffix)
    return deleted


def tidy(directory: str, disk: Disk, report: RecoveryReport) -> list[str]:
    """Removes leftovers and completes replacements, at open; the names of the files that are there then."""
    names = os.listdir(directory)
    if _is_tidy(names):
        return names
    _tidy(directory, disk, report)
    return os.listdir(directory)


def _is_tidy(names: list[str]) -> bool:
    logs = {name[:_DIGITS] for name in names if name.endswith(".log")}
    return not any(
        name.endswith((*_LEFT, SWAP)) or (name.endswith(_INDEXES) and name[:_DIGITS] not in logs)
        for name in names
    )


def _tidy(directory: str, disk: Disk, report: RecoveryReport) -> None:
    for name in os.listdir(directory):
        if name.endswith(_LEFT):
            disk.unlink(f"{directory}/{name}")
            report.removed_leftovers += 1
    for name in sorted(os.listdir(directory)):
        if name.endswith(".log" + SWAP):
            _complete(directory, int(name[:_DIGITS]), disk)
    for name in os.listdir(directory):
        if name.endswith(SWAP):
            disk.unlink(f"{directory}/{name}")
            report.removed_leftovers += 1
    names = set(os.listdir(directory))
    for name in names:
        if name.endswith(_INDEXES) and name[:_DIGITS] + ".log" not in names:
            disk.unlink(f"{directory}/{name}")


def _complete(directory: str, base_offset: int, disk: Disk) -> None:
    """Carries a decided replacement through: the old segments in its range go, it takes their place."""
    end = _next_offset(f"{directory}/{base_offset:020d}.log{SWAP}", base_offset)
    for name in os.listdir(directory):
        if name.endswith(".log") and base_offset < int(name[:_DIGITS]) < end:
            disk.unlink(remove_segment(directory, int(name[:_DIGITS]), disk))
    promote(directory, base_offset, disk)


def _next_offset(path: str, base_offset: int) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        scanner = BatchScanner(descriptor, 0, os.fstat(descriptor).st_size, whole=False)
        end = base_offset
        header = scanner.next()
        while header is not None:
            end = header.next_offset
            header = scanner.next()
        return end
    finally:
        os.close(descriptor)


def decide(directory: str, base_offset: int, disk: Disk) -> None:
    """.cleaned becomes .swap, the .log last: from then on the replacement stands."""
    path = f"{directory}/{base_offset:020d}"
    for suffix in (*_INDEXES, ".log"):
        if os.path.exists(path + suffix + CLEANED):
            disk.rename(path + suffix + CLEANED, path + suffix + SWAP)


def promote(directory: str, base_offset: int, disk: Disk) -> None:
    """.swap takes its final name, the .log last; it replaces the old segment of the same base.

    Every replacement has all three indexes, so that none of the old segment's stays.
    """
    path = f"{directory}/{base_offset:020d}"
    for suffix in (*_INDEXES, ".log"):
        if os.path.exists(path + suffix + SWAP):
            disk.rename(path + suffix + SWAP, path + suffix)
