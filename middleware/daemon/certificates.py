"""The certificates of the faces and of a secured host, read again when their files change, and at SIGHUP."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from treecast.middleware.api.private_file import Stamp, stamp_of
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.logs import Log
from treecast.shims.listening import Listeners

from .watching import Watching

_log = Log(__name__)


class Files(Protocol):
    """Certificate, key and authority: `shims.tls.TlsFiles` of a listener, `api.trust.Trust` of a host."""

    def look(self, *, again: bool = False) -> bool: ...


class WatchedCertificates:
    """The TLS files of all faces. New connections get what was read last; open ones keep what they have.

    Files that cannot be used, as a new certificate beside the old key, change nothing until they are mended.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, Listeners] = {}
        self._others: dict[str, Files] = {}
        self._ends_of: list[Callable[[], list[tuple[str, float]]]] = []
        self._known_ends: dict[Path, tuple[Stamp | None, float]] = {}
        self._troubles: dict[str, str] = {}
        self.watching = Watching(self.look)

    def add(self, face: str, listeners: Listeners) -> None:
        self._listeners[face] = listeners

    def add_files(self, name: str, files: Files, ends: Callable[[], list[tuple[str, float]]]) -> None:
        """Watches files that no face has. `name`: what they are, in words. `ends`: their ends, as below."""
        self._others[name] = files
        self._ends_of.append(ends)

    def ends(self) -> list[tuple[str, float]]:
        """Returns what each certificate is, in words, and when it ends, in seconds since 1970."""
        found = [one for ends in self._ends_of for one in ends()]
        for face, listeners in self._listeners.items():
            if listeners.tls_files is not None:
                until = self._end_of(listeners.tls_files.certificate)
                if until:
                    found.append((f"the certificate of --{face}-tls", until))
        return found

    def _end_of(self, path: Path) -> float:
        """Returns when a certificate ends; 0 if its file cannot be read just now."""
        stamp = stamp_of(path)
        known = self._known_ends.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        from treecast.middleware.api.certificates import end_of  # here: it loads `cryptography`

        try:
            until = end_of(path.read_bytes())
        except (OSError, TreecastError):
            until = 0.0
        self._known_ends[path] = stamp, until
        return until

    @property
    def troubles(self) -> list[str]:
        """The faults of files, one for each face, for people."""
        return list(self._troubles.values())

    def look(self, *, again: bool = False) -> None:
        """Reads the files that have changed; with `again`, all of them."""
        for face, listeners in self._listeners.items():
            if listeners.tls_files is not None:
                self._look_at(f"the TLS files of --{face}-tls", listeners.tls_files, again)
        for name, files in self._others.items():
            self._look_at(name, files, again)

    def _look_at(self, name: str, files: Files, again: bool) -> None:
        try:
            read = files.look(again=again)
        except (OSError, TreecastError) as error:
            self._keep_on(name, _reason(error))
            return
        if read:
            self._troubles.pop(name, None)
            _log.info("certificate read again", files=name)

    def _keep_on(self, name: str, reason: str) -> None:
        self._troubles[name] = f"{name}: {reason}; what was read before holds"
        advice = "certificate, key and authority must be PEM and fit together; mend them: they are read again"
        _log.error("certificate not read", files=name, error=reason, advice=advice)


def _reason(error: OSError | TreecastError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    return str(error)
