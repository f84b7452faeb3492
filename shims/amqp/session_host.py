"""The state shared by all connections of a host: virtual hosts, access control and generated names."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from treecast.middleware.broker.access import Authorizer, Identities, RabbitRights
from treecast.middleware.broker.queues import LocalVirtualHosts
from treecast.middleware.model.applications import Applications
from treecast.middleware.model.budget import unbounded
from treecast.middleware.model.rights import Rights
from treecast.shims.log_ins import Checks, Immediate
from treecast.shims.passwords import Secret

from .certificates import CertificateLogin, user_of
from .codec import AmqpError
from .codec_properties import fields
from .counting import AmqpCounting
from .settings import AmqpSettings

UNSET_TYPES: Final = (None, "", "undefined")  # as RabbitMQ's tools spell that there is no default type

AMQPLAIN: Final = "AMQPLAIN"
PASSWORD_MECHANISMS: Final = ("PLAIN", AMQPLAIN)


class Access(Rights, Protocol):
    """Authentication and authorisation. A `name` is that of an exchange or a queue.

    `mechanisms` are those that take a password.
    """

    mechanisms: tuple[str, ...]

    def secret(self, user: str) -> Secret | None:
        """Returns what is stored of a user's password; None if any password fits."""

    def knows(self, user: str) -> bool:
        """Whether there is such a user, who then may log in with a certificate."""

    def certified(self, certificate: Mapping[str, object], login: CertificateLogin) -> str:
        """Returns the user whom a verified certificate names, "" if it names none."""

    def may_come(self, user: str, local: bool) -> bool:
        """Whether there is such a user, who may connect from its address. `local` is whether that is this
        host."""

    def renewed(self, user: str, secret: bytes) -> bool:
        """Whether a user may continue with a new secret."""

    def watch(self, told: Callable[[str], None]) -> None:
        """Has `told` called after each change, with the name of the user if one was deleted, else with ""."""


class OpenAccess:
    """No access control: any client may do everything under any user name."""

    mechanisms: tuple[str, ...] = PASSWORD_MECHANISMS
    version = 0

    def secret(self, user: str) -> Secret | None:
        return None

    def knows(self, user: str) -> bool:
        return True

    def certified(self, certificate: Mapping[str, object], login: CertificateLogin) -> str:
        return user_of(certificate, login)

    def may_come(self, user: str, local: bool) -> bool:
        return True

    def may_open(self, user: str, vhost: str) -> bool:
        return True

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool:
        return True

    def may_use_topic(self, user: str, vhost: str, permission: str, exchange: bytes, key: bytes) -> bool:
        return True

    def renewed(self, user: str, secret: bytes) -> bool:
        return True

    def watch(self, told: Callable[[str], None]) -> None:
        return

    def tags(self, name: str) -> frozenset[str]:
        return frozenset()


def credentials(mechanism: str, response: bytes) -> tuple[str, bytes] | None:
    """Returns (user, password) of a SASL response, or None if it is malformed."""
    return _amqplain(response) if mechanism == AMQPLAIN else _plain(response)


def _amqplain(response: bytes) -> tuple[str, bytes] | None:
    """Reads the response of AMQPLAIN: a table without its length, with LOGIN and PASSWORD."""
    try:
        found = dict(fields(len(response).to_bytes(4, "big") + response))
        user, password = found[b"LOGIN"], found[b"PASSWORD"]
        return (user[5:].decode(), password[5:]) if user[:1] == password[:1] == b"S" else None
    except (AmqpError, KeyError, IndexError, UnicodeDecodeError):
        return None


def _plain(response: bytes) -> tuple[str, bytes] | None:
    """Reads the response of PLAIN (RFC 4616)."""
    parts = response.split(b"\x00")
    if len(parts) != 3:
        return None
    try:
        return parts[1].decode(), parts[2]
    except UnicodeDecodeError:
        return None


class RandomBytes(Protocol):
    """A source of random bytes such as `random.Random`, seeded or not."""

    def randbytes(self, n: int, /) -> bytes: ...


class AmqpHost:
    """The AMQP state of one host, without its connections.

    `queues` are the virtual hosts, which other faces may use too; `vhosts` are they by name. `alarm` is the
    reason why publishers must wait, or "".
    """

    def __init__(
        self, settings: AmqpSettings, access: Access, queues: LocalVirtualHosts, random: RandomBytes
    ) -> None:
        self.settings = settings
        self.access = access
        self.authorizer: Authorizer = RabbitRights(access)
        self.identities = Identities()  # who notes log-ins
        self.alarm = ""
        self.counting = AmqpCounting()
        self.connections_opened = 0
        self.applications = Applications()
        self.log_ins: Checks = Immediate()
        self.work = unbounded()  # the budget of costly requests; the owner of the loop replaces it
        self.queues = queues
        self.vhosts = queues.vhosts
        self._random = random

    def number_connection(self) -> int:
        """Returns a new unique connection number."""
        self.connections_opened += 1
        return self.connections_opened

    def made_up(self, prefix: bytes) -> bytes:
        """Generates a unique name."""
        return prefix + b"-" + base64.urlsafe_b64encode(self.random_bytes(16)).rstrip(b"=")

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
