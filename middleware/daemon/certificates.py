"""The certificates of the faces, read again when their files change, and at SIGHUP."""

from __future__ import annotations

import ssl

from treecast.middleware.model.logs import Log
from treecast.shims.listening import Listeners

from .watching import Watching

_log = Log(__name__)


class WatchedCertificates:
    """The TLS files of all faces. New connections get what was read last; open ones keep what they have.

    Files that cannot be used, as a new certificate beside the old key, change nothing until they are mended.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, Listeners] = {}
        self._troubles: dict[str, str] = {}
        self.watching = Watching(self.look)

    def add(self, face: str, listeners: Listeners) -> None:
        self._listeners[face] = listeners

    @property
    def troubles(self) -> list[str]:
        """The faults of files, one for each face, for people."""
        return list(self._troubles.values())

    def look(self, *, again: bool = False) -> None:
        """Reads the files that have changed; with `again`, all of them."""
        for face, listeners in self._listeners.items():
            if listeners.tls_files is None:
                continue
            try:
                read = listeners.tls_files.look(again=again)
            except OSError as error:
                self._keep_on(face, _reason(error))
                continue
            if read:
                self._troubles.pop(face, None)
                _log.info("certificate read again", face=face)

    def _keep_on(self, face: str, reason: str) -> None:
        self._troubles[face] = f"the TLS files of --{face}-tls: {reason}; what was read before holds"
        advice = "certificate, key and authority must be PEM and fit together; mend them: they are read again"
        _log.error("certificate not read", face=face, error=reason, advice=advice)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
