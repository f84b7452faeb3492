"""Crash-safe replacement and removal of segment files: a crash between any two steps leaves a whole log.

Removal: the .log is renamed to .log.deleted, which takes the segment out of the log in one step; then its
other files are removed. Replacement (compaction), in Kafka's steps: new files are written as .cleaned and
forced to the disk; the indexes and finally the .log are renamed to .swap, which commits; the old segments
that it covers are removed; .swap loses its suffix. At open, .cleaned and .deleted are leftovers and are
removed; a .log.swap is completed; .swap files without a .log.swap are removed.
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
    """Takes a segment out of the log. Returns the path of the rest, to be unlinked later."""
    path = f"{directory}/{base_offset:020d}"
    deleted = path + ".log" + DELETED
    disk.rename(path + ".log", deleted)
    for suffix in _INDEXES:
        disk.unlink(path + suffix)
    return deleted


def tidy(directory: str, disk: Disk, report: RecoveryReport) -> list[str]:
    """Removes leftovers and completes replacements, at open. Returns the names of the files that exist
    afterwards.
    """
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
    """Completes a committed replacement: removes the old segments in its range and puts it in their place."""
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
    """Renames .cleaned to .swap, the .log last, which commits the replacement."""
    path = f"{directory}/{base_offset:020d}"
    for suffix in (*_INDEXES, ".log"):
        if os.path.exists(path + suffix + CLEANED):
            disk.rename(path + suffix + CLEANED, path + suffix + SWAP)


def promote(directory: str, base_offset: int, disk: Disk) -> None:
    """Renames .swap to its final name, the .log last. It replaces the old segment of the same base.

    Every replacement has all three indexes, so that none of the old segment's stays.
    """
    path = f"{directory}/{base_offset:020d}"
    for suffix in (*_INDEXES, ".log"):
        if os.path.exists(path + suffix + SWAP):
            disk.rename(path + suffix + SWAP, path + suffix)
