"""Users, permissions and password hashes, in the format of RabbitMQ's internal database.

A password hash is the base64 encoding of a 4-byte salt and a digest of salt and password. Users exported
from a RabbitMQ broker can therefore log in with their passwords. Permissions are regular expressions on
names (`model.regex`); an empty one stands for `^$`. Tags are those of the management calls: administrator,
monitoring, policymaker, management.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from treecast.middleware.model.regex import Known, Regex
from treecast.middleware.model.regex_syntax import Dialect
from treecast.shims.passwords import Secret

from .certificates import CertificateLogin, user_of
from .session_host import PASSWORD_MECHANISMS

SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
_DIGESTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    SHA256: lambda data: hashlib.sha256(data).digest(),
    SHA512: lambda data: hashlib.sha512(data).digest(),
}
_SALT: Final = 4  # bytes
_DEFAULT_EXCHANGE: Final = b"amq.default"  # its name in permissions
_PATTERNS: Final = Known()
ADMINISTRATOR: Final = "administrator"

K = TypeVar("K", tuple[str, str], tuple[str, str, str])  # user, virtual host, exchange
P = TypeVar("P", "Permission", "TopicPermission")


def fits(password: bytes, password_hash: str, hashing: str) -> bool:
    """Whether a password matches a hash. Nothing matches an empty or malformed hash, nor does an empty
    password, as in RabbitMQ."""
    digest = _DIGESTS.get(hashing)
    try:
        raw = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return False
    if digest is None or len(raw) <= _SALT or not password:
        return False
    return hmac.compare_digest(digest(raw[:_SALT] + password), raw[_SALT:])


def hashed(password: bytes, salt: bytes) -> str:
    """Returns the hash of a new password. `salt` is 4 random bytes."""
    return base64.b64encode(salt + hashlib.sha256(salt + password).digest()).decode()


def knows_hashing(name: str) -> bool:
    return name in _DIGESTS


class User(Struct, frozen=True):
    """A user. With an empty `password_hash` it cannot log in with a password."""

    name: str
    password_hash: str = ""
    hashing: str = SHA256
    tags: tuple[str, ...] = ()


_NOBODY: Final = User("", hashed(secrets.token_bytes(32), secrets.token_bytes(_SALT)))


class _HashFits:
    def __init__(self, password_hash: str, hashing: str) -> None:
        self._hash = password_hash
        self._hashing = hashing

    def __call__(self, password: bytes) -> bool:
        return fits(password, self._hash, self._hashing)


class Permission(Struct, frozen=True):
    """The permissions of one user in one virtual host."""

    configure: str
    write: str
    read: str

    def of(self, what: str) -> str:
        return {"configure": self.configure, "write": self.write, "read": self.read}[what]


class TopicPermission(Struct, frozen=True):
    """The permissions of one user in one virtual host on the routing keys of one topic exchange."""

    write: str
    read: str

    def of(self, what: str) -> str:
        return self.write if what == "write" else self.read


class Users:
    """All users. Implements `session_host.Access`.

    `permissions` are keyed by user and virtual host, `topics` by exchange as well. `keep` is called after
    each change, for persistence, and then who watches. `local_only` are the users that may log in from this
    host only.
    """

    mechanisms: tuple[str, ...] = PASSWORD_MECHANISMS

    def __init__(self, local_only: frozenset[str] = frozenset({"guest"})) -> None:
        self.users: dict[str, User] = {}
        self.permissions: dict[tuple[str, str], Permission] = {}
        self.topics: dict[tuple[str, str, str], TopicPermission] = {}
        self.local_only = local_only
        self.version = 0
        self.keep: Callable[[], None] = _nothing
        self._watchers: list[Callable[[str], None]] = []

    def certified(self, certificate: Mapping[str, object], login: CertificateLogin) -> str:
        """Implements `Access`."""
        return user_of(certificate, login)

    # --- changes

    def watch(self, told: Callable[[str], None]) -> None:
        self._watchers.append(told)

    def changed(self, deleted: str = "") -> None:
        """Called after each change; `deleted`: the user that is gone."""
        self.version += 1
        self.keep()
        for told in self._watchers:
            told(deleted)

    def put(self, user: User) -> bool:
        """Adds or replaces a user. Returns whether it is new."""
        new = user.name not in self.users
        self.users[user.name] = user
        self.changed()
        return new

    def add(self, user: User) -> bool:
        """As `put`, for a change made on this host. A new user has no permissions, also if some were left of
        an earlier one of that name."""
        if user.name not in self.users:
            self._strip(user.name)
        return self.put(user)

    def delete(self, name: str) -> bool:
        """Deletes a user and its permissions. Returns whether it existed."""
        if self.users.pop(name, None) is None:
            return False
        self._strip(name)
        self.changed(name)
        return True

    def _strip(self, name: str) -> None:
        for key in [key for key in self.permissions if key[0] == name]:
            del self.permissions[key]
        for topic in [topic for topic in self.topics if topic[0] == name]:
            del self.topics[topic]

    def permit(self, user: str, vhost: str, permission: Permission) -> bool:
        """Sets permissions. Returns whether they are new. Raises InvalidRegex."""
        _check(permission.configure, permission.write, permission.read)
        new = (user, vhost) not in self.permissions
        self.permissions[user, vhost] = permission
        self.changed()
        return new

    def forbid(self, user: str, vhost: str) -> bool:
        found = self.permissions.pop((user, vhost), None) is not None
        self.changed()
        return found

    def permit_topics(self, user: str, vhost: str, exchange: str, permission: TopicPermission) -> bool:
        """Sets topic permissions. Returns whether they are new. Raises InvalidRegex."""
        _check(permission.write, permission.read)
        new = (user, vhost, exchange) not in self.topics
        self.topics[user, vhost, exchange] = permission
        self.changed()
        return new

    def forbid_topics(self, user: str, vhost: str, exchange: str | None = None) -> bool:
        """Removes the topic permissions on one exchange or all. Returns whether there were any."""
        gone = [key for key in self.topics if key[:2] == (user, vhost) and exchange in (None, key[2])]
        for key in gone:
            del self.topics[key]
        self.changed()
        return bool(gone)

    def forget_vhost(self, vhost: str) -> None:
        """Removes all permissions in a virtual host that was deleted."""
        self.permissions = {key: value for key, value in self.permissions.items() if key[1] != vhost}
        self.topics = {key: value for key, value in self.topics.items() if key[1] != vhost}
        self.changed()

    # --- access

    def secret(self, user: str) -> Secret:
        """Returns what is stored of a user's password; of an unknown one something that costs as much."""
        found = self.users.get(user, _NOBODY)
        stored = f"{found.hashing} {found.password_hash}".encode() if found is not _NOBODY else b""
        return Secret(_HashFits(found.password_hash, found.hashing), stored, cheap=True)

    def knows(self, user: str) -> bool:
        return user in self.users

    def may_come(self, user: str, local: bool) -> bool:
        return self.knows(user) and (local or user not in self.local_only)

    def may_open(self, user: str, vhost: str) -> bool:
        return (user, vhost) in self.permissions

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool:
        found = self.permissions.get((user, vhost))
        return found is not None and _matches(found.of(permission), name or _DEFAULT_EXCHANGE)

    def may_use_topic(self, user: str, vhost: str, permission: str, exchange: bytes, key: bytes) -> bool:
        """Whether the user may use a routing key. All keys are permitted without a topic permission."""
        if not self.topics:
            return True
        found = self.topics.get((user, vhost, exchange.decode(errors="replace")))
        if found is None:
            return True
        pattern = found.of(permission).replace("{username}", re.escape(user))
        return _matches(pattern.replace("{vhost}", re.escape(vhost)), key)

    def renewed(self, user: str, secret: bytes) -> bool:
        """Accepts any secret, since users do not expire, as with RabbitMQ's internal database."""
        return True

    # --- the management calls

    def of_known(self, permissions: Mapping[K, P]) -> list[tuple[K, P]]:
        """Returns the permissions of users that there are. On joined hosts those of others may be left, of a
        user who was deleted at one host while another gave it permissions."""
        return [(key, one) for key, one in permissions.items() if key[0] in self.users]

    def everything(self, name: str) -> bool:
        """Whether the user has all permissions, whatever they are."""
        return False

    def tags(self, name: str) -> frozenset[str]:
        """Returns the tags of a user, which grant rights in the management calls."""
        user = self.users.get(name)
        return frozenset(user.tags) if user is not None else frozenset()


def _nothing() -> None:
    return


def _check(*patterns: str) -> None:
    for pattern in patterns:
        Regex(pattern, Dialect.PCRE)


def _matches(pattern: str, name: bytes) -> bool:
    return _PATTERNS.found(pattern or "^$", name.decode(errors="replace"))


def tags_of(value: object) -> tuple[str, ...]:
    """Reads tags from a list, or from a comma-separated string as exported by older brokers."""
    if isinstance(value, str):
        return tuple(tag.strip() for tag in value.split(",") if tag.strip())
    return tuple(str(tag) for tag in value) if isinstance(value, list) else ()


def guest(permitted_in: str, salt: bytes) -> tuple[User, dict[tuple[str, str], Permission]]:
    """Returns the initial user of a new broker and its permissions."""
    user = User("guest", hashed(b"guest", salt), tags=(ADMINISTRATOR,))
    return user, {("guest", permitted_in): Permission(".*", ".*", ".*")}
