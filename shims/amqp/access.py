"""Access control: the users of a password file, or users persisted by the recorder.

All users are stored as one definition, since they are few and change rarely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from treecast.middleware.broker.access import Identities
from treecast.middleware.broker.queues import Recorder
from treecast.shims.identified import secret_of
from treecast.shims.passwords import Passwords, Secret

from .certificates import CertificateLogin
from .users import ADMINISTRATOR, Permission, TopicPermission, User, Users, guest

KIND: Final = "users"  # kind of the stored definition
_ELSEWHERE: Final = "elsewhere"  # an address that is not of this machine


class _Kept(Struct, frozen=True):
    """The stored definition of all users and permissions. `joined`: see `KeptUsers`."""

    users: list[User] = []
    permissions: list[tuple[str, str, Permission]] = []
    topics: list[tuple[str, str, str, TopicPermission]] = []
    joined: bool = False


class KeptUsers(Users):
    """Persistent users. If none were ever stored, RabbitMQ's `guest` is created.

    `joined`: whether they were brought together with those of other hosts.
    """

    def __init__(self, recorder: Recorder, kept: Mapping[str, object] | None, salt: bytes) -> None:
        """`kept` is the stored definition of `KIND`, or None if there is none."""
        super().__init__()
        self._recorder = recorder
        self.joined = False
        if kept is None:
            user, self.permissions = guest("/", salt)
            self.users = {user.name: user}
        else:
            found = msgspec.convert(kept, _Kept)
            self.users = {user.name: user for user in found.users}
            self.permissions = {(user, vhost): one for user, vhost, one in found.permissions}
            self.topics = {(user, vhost, exchange): one for user, vhost, exchange, one in found.topics}
            self.joined = found.joined
        self.keep = self._keep
        self.identities = Identities()
        self._stored: frozenset[str] = frozenset()  # names of users there, as of the last look

    # --- users in the store of identities, who go first

    def use(self, identities: Identities) -> None:
        self.identities = identities
        self._stored = frozenset(identities.content.users)
        identities.watch(self._identities_changed)

    def _identities_changed(self) -> None:
        before, self._stored = self._stored, frozenset(self.identities.content.users)
        for gone in before - self._stored:
            self.changed(gone)
        self.changed()

    def certified(self, certificate: Mapping[str, object], login: CertificateLogin) -> str:
        """By the store's rules, where it has some: a certificate that they give to nobody is no user's of the
        store, whatever `login` makes of it."""
        found, identities = super().certified(certificate, login), self.identities
        if not identities.content.certificates:
            return found
        user = identities.user_of(certificate)
        if identities.knows(user):
            return user
        return "" if identities.knows(found) else found

    def secret(self, user: str) -> Secret:
        stored = self.identities.knows(user)
        return secret_of(self.identities, user) if stored else super().secret(user)

    def knows(self, user: str) -> bool:
        return self.identities.knows(user) or super().knows(user)

    def may_come(self, user: str, local: bool) -> bool:
        """`guest`, whose password everybody knows, comes no more once there are users."""
        if self.identities.knows(user):
            return self.identities.admits(user, "" if local else _ELSEWHERE)
        return super().may_come(user, local) and not (self.identities.closed and user in self.local_only)

    def may_open(self, user: str, vhost: str) -> bool:
        if self.identities.knows(user):
            return vhost == "/" or self.identities.is_admin(user)
        return super().may_open(user, vhost)

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool:
        if self.identities.knows(user):  # others than administrators have rules (`StoredRights`)
            return self.identities.is_admin(user)
        return super().may(user, vhost, permission, name)

    def may_use_topic(self, user: str, vhost: str, permission: str, exchange: bytes, key: bytes) -> bool:
        if self.identities.knows(user):
            return self.identities.is_admin(user)
        return super().may_use_topic(user, vhost, permission, exchange, key)

    def everything(self, name: str) -> bool:
        return self.identities.is_admin(name)

    def tags(self, name: str) -> frozenset[str]:
        if self.identities.knows(name):
            return frozenset({ADMINISTRATOR}) if self.identities.is_admin(name) else frozenset()
        return super().tags(name)

    def _keep(self) -> None:
        kept = _Kept(
            list(self.users.values()),
            [(*key, one) for key, one in self.permissions.items()],
            [(*key, one) for key, one in self.topics.items()],
            self.joined,
        )
        self._recorder.declared(KIND, b"", msgspec.to_builtins(kept))


class _Both:
    """Takes the time of two secrets, and goes by the first."""

    def __init__(self, first: Secret, other: Secret) -> None:
        self._first = first
        self._other = other

    def __call__(self, password: bytes) -> bool:
        found = self._first.fits(password)
        self._other.fits(password)
        return found


class PasswordAccess(KeptUsers):
    """Users of a password file, with all permissions, beside users added by management calls.

    `guest` does not log in, unless the file has it: other hosts without a file may have created it.
    """

    def __init__(
        self, passwords: Passwords, recorder: Recorder, kept: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(recorder, kept if kept is not None else {}, b"")
        self._passwords = passwords

    def changed(self, deleted: str = "") -> None:
        """A user of the file stays, also if another one of that name was deleted."""
        super().changed("" if deleted in self._passwords else deleted)

    def secret(self, user: str) -> Secret:
        """A user that management calls have added costs as much as one of the file, as an unknown one does:
        the time does not tell which names there are.
        """
        nobody = self._passwords.secret(user)
        if user in self._passwords:
            return nobody
        known = super().secret(user)
        if user in self.local_only or not known.stored:
            return nobody
        return Secret(_Both(known, nobody), known.stored, nobody.cheap)

    def knows(self, user: str) -> bool:
        return user in self._passwords or super().knows(user)

    def may_come(self, user: str, local: bool) -> bool:
        return user in self._passwords or super().may_come(user, local)

    def may_open(self, user: str, vhost: str) -> bool:
        return user in self._passwords or super().may_open(user, vhost)

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool:
        return user in self._passwords or super().may(user, vhost, permission, name)

    def may_use_topic(self, user: str, vhost: str, permission: str, exchange: bytes, key: bytes) -> bool:
        if user in self._passwords:
            return True
        return super().may_use_topic(user, vhost, permission, exchange, key)

    def everything(self, name: str) -> bool:
        return name in self._passwords or super().everything(name)

    def tags(self, name: str) -> frozenset[str]:
        return frozenset({ADMINISTRATOR}) if name in self._passwords else super().tags(name)
