"""Restricts a daemon's files to its user and group, including files that earlier versions left open to
others.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from treecast.middleware.model.logs import Log

_log = Log(__name__)

DIRECTORY_MODE = 0o750
OTHERS = stat.S_IRWXO
_NEW = 0o027  # permissions that new files lack: write for the group, everything for others


def keep_private() -> None:
    """Makes files that this process creates from now on accessible to its user, and readable by its group."""
    before = os.umask(_NEW)
    os.umask(before | _NEW)


def tighten(folder: Path, last: str = "logs") -> None:
    """Removes the permissions of others in a data directory. Logs one line if there were any.

    `last`: the entry that is changed last, so that it shows whether an attempt was interrupted. A directory
    in which everybody may create files (the sticky bit) is not a daemon's own and stays unchanged.
    """
    if not any(_open_to_others(path) for path in (folder, folder / last)):
        return
    if folder.stat().st_mode & stat.S_ISVTX:
        _log.warning(
            "data directory is open to everybody; give the daemon a directory of its own", path=folder
        )
        return
    changed, refused = _tighten_all([folder, *_below(folder, last), folder / last])
    if changed:
        _log.info("access of other users was removed", path=folder, count=changed)
    if refused:
        _log.warning("access of other users cannot be removed", path=folder, error=refused)


def _below(folder: Path, last: str) -> list[Path]:
    found = []
    for where, folders, files in os.walk(folder):
        found += [Path(where, name) for name in (*folders, *files) if Path(where, name) != folder / last]
    return found


def _tighten_all(paths: list[Path]) -> tuple[int, str]:
    """Returns (number of changed files, reason of the first failure)."""
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
