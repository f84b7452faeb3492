"""What a daemon keeps is for its user and its group, also what earlier versions left open to others."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger(__name__)

DIRECTORY_MODE = 0o750
OTHERS = stat.S_IRWXO
_NEW = 0o027  # what new files are not: written by the group, or anything by others


def keep_private() -> None:
    """What this process makes from now on is for its user, and for its group to read."""
    before = os.umask(_NEW)
    os.umask(before | _NEW)


def tighten(folder: Path, last: str = "logs") -> None:
    """Takes from others what they may do in a data directory. One line in the log where that was anything.

    `last`: what in it is done last, so that an attempt that was broken off is told by it. A directory that is
    everybody's to make files in (the sticky bit) is no daemon's own, and stays as it is.
    """
    if not any(_open_to_others(path) for path in (folder, folder / last)):
        return
    if folder.stat().st_mode & stat.S_ISVTX:
        _log.warning("%s is a directory for everybody: give the daemon one of its own", folder)
        return
    changed, refused = _tighten_all([folder, *_below(folder, last), folder / last])
    if changed:
        _log.info("others could look into %s: %d files and directories are private now", folder, changed)
    if refused:
        _log.warning("others may look into %s, and that cannot be changed: %s", folder, refused)


def _below(folder: Path, last: str) -> list[Path]:
    found = []
    for where, folders, files in os.walk(folder):
        found += [Path(where, name) for name in (*folders, *files) if Path(where, name) != folder / last]
    return found


def _tighten_all(paths: list[Path]) -> tuple[int, str]:
    """(how many were changed, why the first could not be)."""
    changed, refused = 0, ""
    for path in paths:
        try:
            changed += _tighten(path)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError as error:
            refused = refused or f"{path}: {error.strerror}"
    return changed, refused


def _tighten(path: Path) -> bool:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode) or not mode & OTHERS:
        return False
    path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    return True


def _open_to_others(path: Path) -> bool:
    try:
        return bool(path.lstat().st_mode & OTHERS)
    except OSError:
        return False
