"""The runtime directory: one Unix socket per face, and beside it a file with the face's TCP address.

<face>.sock       the socket, mode 0660 <face>.address    HOST:PORT, for clients without Unix sockets, mode
0640

The directory has mode 0750: it is for the daemon's user and group. Other users of the host reach faces by
TCP. A directory that the operator has named and created keeps its mode.

Files of a dead daemon are replaced. A socket that another living daemon listens on is left alone: this daemon
then has no socket for that face, and clients find it by address only.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from treecast.middleware.api.discovery import Address, is_live, runtime_dirs
from treecast.middleware.model.logs import Log

from .file_permissions import DIRECTORY_MODE, OTHERS

_log = Log(__name__)
_SOCKET_MODE, _FILE_MODE = 0o660, 0o640
_LONGEST_PATH = 107  # bytes of sun_path without the final NUL; unix(7)


class RuntimeDir:
    """A usable runtime directory, and the files that this daemon created in it."""

    def __init__(self, path: Path, *, made: bool) -> None:
        self.path = path
        self._made = made
        self._ours: list[Path] = []

    @classmethod
    def open(cls, chosen: str, environment: Mapping[str, str]) -> RuntimeDir | None:
        """Returns the chosen directory, else the first usable one of discovery's; None if there is none."""
        reasons = []
        for path, named in candidates(chosen, environment):
            if reason := refusal(path, named=named):
                reasons.append(f"{path}: {reason}")
                continue
            try:
                made = _make(path, named=named)
            except OSError as error:
                reasons.append(f"{path}: {error.strerror}")
                continue
            return cls(path, made=made)
        _log.info("no Unix sockets: no usable runtime directory", reason="; ".join(reasons))
        return None

    def claim(self, face: str) -> Path | None:
        """Returns the path for the face's socket; None if another daemon has it."""
        path = self.path / f"{face}.sock"
        if len(os.fsencode(path)) > _LONGEST_PATH:
            _log.warning("no Unix socket: the path is too long", face=face, path=path)
            return None
        if path.exists() and is_live(path):
            _log.warning("no Unix socket: another daemon listens", face=face, path=path)
            return None
        path.unlink(missing_ok=True)
        self._ours.append(path)
        return path

    def publish(self, face: str, address: Address) -> None:
        """Writes the face's TCP address, and opens its socket to the group."""
        path = self.path / f"{face}.sock"
        if path not in self._ours:
            return
        if path.exists():
            path.chmod(_SOCKET_MODE)
        beside = self.path / f"{face}.address"
        new = beside.with_suffix(".new")
        new.write_text(f"{address.reachable}\n")
        new.chmod(_FILE_MODE)  # whatever the umask
        new.replace(beside)
        self._ours.append(beside)

    def remove(self) -> None:
        """Removes the files that this daemon created."""
        for path in self._ours:
            path.unlink(missing_ok=True)
        self._ours.clear()
        if self._made:
            try:
                self.path.rmdir()
            except OSError:
                pass  # it contains another daemon's sockets


def candidates(chosen: str, environment: Mapping[str, str]) -> list[tuple[Path, bool]]:
    """Returns the directories to try in order, each with whether the operator named it."""
    if chosen:
        return [(Path(chosen), True)]
    named = "TREECAST_RUNTIME_DIR" in environment
    return [(path, named) for path in runtime_dirs(environment)]


def refusal(path: Path, *, named: bool) -> str:
    """Returns why a daemon of this user does not use the directory; empty if it does.

    A directory of another user is for that user's daemon, even if this user may write to it as root may:
    sockets of two daemons in one directory would look like one daemon's. An operator may override this.
    """
    try:
        owner = path.stat().st_uid
    except FileNotFoundError:
        return "" if _writable(path.parent) else "it cannot be made"
    except OSError as error:
        return error.strerror or str(error)
    if not named and owner != os.geteuid():
        return "it belongs to another user"
    return "" if _writable(path) else "it is not writable"


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _make(path: Path, *, named: bool) -> bool:
    """Returns whether the directory had to be created. Raises OSError if it cannot be created."""
    try:
        path.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & OTHERS and not named:  # an own one of an earlier version: see `refusal`
            path.chmod(mode & ~OTHERS)
            _log.info("access of other users was removed", path=path)
        return False
    path.chmod(DIRECTORY_MODE)  # whatever the umask
    return True
