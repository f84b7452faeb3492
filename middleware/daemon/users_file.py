"""`users.toml` on disk: read, changed under a lock, and watched.

Commands and the daemon change the file with `change_users`: each reads it, changes what it read, and replaces
the file, under a lock that others of them wait for. An editor that writes meanwhile wins or loses as a whole.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.private_file import Stamp, stamp_of, write_private
from treecast.middleware.broker.access import (
    BearerError,
    Content,
    Identities,
    JwksTokens,
    OAuth,
    UsersFileError,
    read_users,
    write_users,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.shims.face import OpenListener

from .listeners import StartError
from .settings import Settings
from .watching import Watching

FILE: Final = "users.toml"  # in the data directory
_ASKING: Final = ("kafka", "mqtt")  # faces that ask these users for their rights
_SECURED: Final = ("kafka", "amqp", "mqtt")  # faces with TLS, which a secured host has for users alone
_LOOPBACK: Final = ("127.", "::1", "localhost")
_log = Log(__name__)


def load_users(path: Path) -> Content | None:
    """Returns what the file holds; None if there is none. Raises UsersFileError, or OSError."""
    try:
        return read_users(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsersFileError("it is no UTF-8 text") from error


def change_users(path: Path, change: Callable[[Content], Content]) -> Content:
    """Changes the file, or makes it, readable by its owner only. Returns what it holds then.

    Raises UsersFileError, or OSError.
    """
    return _changed(path, change)[0]


def _changed(path: Path, change: Callable[[Content], Content]) -> tuple[Content, Stamp | None]:
    """Implements `change_users`. Returns the stamp of what was written too, which is taken before another
    command may change it.
    """
    with _locked(path):
        content = change(load_users(path) or Content())
        write_private(path, write_users(content).encode())
        return content, stamp_of(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock beside the file: the file itself is replaced."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def users_path(settings: Settings) -> Path:
    return Path(settings.access_file) if settings.access_file else Path(settings.data) / FILE


def warn_of_open_doors(identities: Identities, listeners: Iterable[OpenListener]) -> None:
    """Says at the start that nobody is asked who it is, and where others than this host's clients come in."""
    if identities.closed:
        return
    advice = "treecast users add NAME --admin"
    _log.info("no user exists: every client may do everything", advice=advice)
    for one in listeners:
        host = Address.parse(one.address).host
        if one.name.partition("-")[0] in _ASKING and not host.startswith(_LOOPBACK):
            _log.warning(
                "no user exists: everybody who reaches this address may read and write everything",
                face=one.name,
                address=one.address,
                advice=advice,
            )


def refuse_without_users(identities: Identities, path: Path, faces: Iterable[str]) -> None:
    """Raises StartError if a secured host is to serve clients, and no user exists: TLS alone asks nobody.

    `faces`: the names of those that are on.
    """
    asking = [name for name in faces if name in _SECURED]
    if asking and not identities.closed:
        raise StartError(
            f"a secured host serves {', '.join(asking)} to users only, and {path} has none: bring the file"
            f" back, make a user by `treecast users add NAME --admin --file {path}`, or turn these faces off"
        )


class WatchedUsers:
    """The identities of a daemon, from its file, which is read again when it changes.

    A file that has become wrong, or is gone, changes nothing: what was read before holds until it is mended.
    """

    def __init__(self, path: Path, *, named: bool) -> None:
        """`named`: the operator has named the file, so that it has to be there. Raises StartError."""
        self.path = path
        self._trouble = ""
        self._seen = self._stamp()
        self.watching = Watching(self.look)
        try:
            content = load_users(path)
        except (OSError, UsersFileError) as error:
            raise StartError(f"the file of users {path}: {_reason(error)}") from error
        if content is None and named:
            raise StartError(f"--access-file {path}: make it by `treecast users add NAME --file {path}`")
        self.identities = Identities(content, secrets.token_bytes(32))
        self.identities.store = self._store
        self._token_trouble = ""
        self._keys_seen: tuple[OAuth | None, Stamp | None] = (None, None)
        try:
            self._look_at_keys(again=True)
        except (OSError, UnicodeDecodeError, BearerError) as error:
            raise StartError(f"oauth in {path}: its file of keys: {_reason(error)}") from error

    def _store(self, change: Callable[[Content], Content]) -> Content:
        """Implements `Identities.store`."""
        try:
            content, self._seen = _changed(self.path, change)
        except (OSError, UsersFileError) as error:
            raise TreecastError(Fault.STORAGE, f"the file of users: {_reason(error)}") from error
        return content

    def _stamp(self) -> Stamp | None:
        return stamp_of(self.path)

    @property
    def trouble(self) -> str:
        """Why the file, or that of the tokens' keys, cannot be used as it is; empty if it can."""
        return self._trouble or self._token_trouble

    def look(self, *, again: bool = False) -> None:
        """Reads the file, and that of the tokens' keys, again if it has changed, or `again`."""
        self._look_at_users(again)
        try:
            self._look_at_keys(again=again)
        except (OSError, UnicodeDecodeError, BearerError) as error:
            self._token_trouble = f"the keys of tokens: {_reason(error)}; what was read before holds"
            _log.error(
                "keys of tokens not read", error=_reason(error), advice="mend the file: it is read again"
            )

    def _look_at_keys(self, *, again: bool) -> None:
        """Raises BearerError, or OSError, if the keys cannot be used."""
        oauth = self.identities.content.oauth
        seen = (oauth, stamp_of(Path(oauth.keys)) if oauth is not None else None)
        if seen == self._keys_seen and not again:
            return
        self._keys_seen = seen
        self.identities.tokens = (
            JwksTokens(oauth, Path(oauth.keys).read_text(encoding="utf-8")) if oauth is not None else None
        )
        self._token_trouble = ""

    def _look_at_users(self, again: bool) -> None:
        stamp = self._stamp()
        if stamp == self._seen and (stamp is None or not again):
            return
        self._seen = stamp
        try:
            content = load_users(self.path)
        except (OSError, UsersFileError) as error:
            self._keep_on(_reason(error))
            return
        if content is None:
            self._keep_on("it is gone")
            return
        self._trouble = ""
        self.identities.replace(content)
        _log.info("users read again", users=len(content.users), rules=len(content.rules))

    def _keep_on(self, reason: str) -> None:
        self._trouble = f"the file of users {self.path}: {reason}; what was read before holds"
        _log.error("users not read", path=str(self.path), error=reason, advice="mend it: it is read again")


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
