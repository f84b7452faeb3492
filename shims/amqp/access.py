"""Who may log in: whoever a password file names, or the users of `users`, as they are kept by the recorder.

All users are one definition: there are few, and they change rarely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from treecast.middleware.broker.queues import Recorder
from treecast.shims.passwords import Passwords

from .session_host import OpenAccess, plain
from .users import Permission, TopicPermission, User, Users, guest

KIND: Final = "users"  # of the definition


class PasswordAccess(OpenAccess):
    """Users of a password file, who may do everything."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords

    def log_in(self, mechanism: str, response: bytes) -> str | None:
        parted = plain(response)
        return parted[0] if parted is not None and self._passwords.fits(*parted) else None


class _Kept(Struct, frozen=True):
    """What is kept of users."""

    users: list[User] = []
    permissions: list[tuple[str, str, Permission]] = []
    topics: list[tuple[str, str, str, TopicPermission]] = []


class KeptUsers(Users):
    """Users that outlive the process. RabbitMQ's `guest` is there where nobody ever was."""

    def __init__(self, recorder: Recorder, kept: Mapping[str, object] | None, salt: bytes) -> None:
        """`kept`: what was declared of `KIND` before."""
        super().__init__()
        self._recorder = recorder
        if kept is None:
            user, self.permissions = guest("/", salt)
            self.users = {user.name: user}
        else:
            found = msgspec.convert(kept, _Kept)
            self.users = {user.name: user for user in found.users}
            self.permissions = {(user, vhost): one for user, vhost, one in found.permissions}
            self.topics = {(user, vhost, exchange): one for user, vhost, exchange, one in found.topics}
        self.changed = self._keep

    def _keep(self) -> None:
        kept = _Kept(
            list(self.users.values()),
            [(*key, one) for key, one in self.permissions.items()],
            [(*key, one) for key, one in self.topics.items()],
        )
        self._recorder.declared(KIND, b"", msgspec.to_builtins(kept))
