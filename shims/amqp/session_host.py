"""The state shared by all connections of a host: virtual hosts, access control and generated names."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from treecast.middleware.broker.access import Authorizer, RabbitRights
from treecast.middleware.broker.queues import (
    JoinedQueues,
    QueueArguments,
    QueueType,
    Recorder,
    Refusal,
    Run,
    RunStore,
    Streams,
    VirtualHost,
    messages,
)
from treecast.middleware.model.applications import Applications
from treecast.middleware.model.budget import unbounded
from treecast.middleware.model.rights import Rights
from treecast.shims.log_ins import Checks, Immediate
from treecast.shims.passwords import Secret

from .codec import AmqpError
from .codec_methods import read_table
from .codec_properties import HEADERS_BIT, fields, values
from .counting import AmqpCounting
from .settings import AmqpSettings

DEFAULT_TYPE: Final = "default_queue_type"
TYPES: Final = tuple(one.value for one in QueueType)
UNSET_TYPES: Final = (None, "", "undefined")  # as RabbitMQ's tools spell that there is none
CLUSTER_NAME: Final = "treecast"  # until an operator gives another

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


class StreamHost(Streams, Protocol):
    """The logs of streams, as sessions use them."""

    def prepare(
        self, vhost: str, name: bytes, arguments: QueueArguments, then: Callable[[Refusal | None], None]
    ) -> None:
        """Makes the log of a stream exist, then calls `then` with None or the refusal."""

    def now(self) -> float: ...


class AmqpHeaders:
    """Reads the headers of runs published over AMQP."""

    def headers(self, run: Run) -> Mapping[str, object]:
        (properties, _), *_ = messages(run.data)
        table = values(properties).get(HEADERS_BIT)
        return read_table(table) if table is not None else {}


class AmqpHost:
    """The AMQP state of one host, without its connections.

    `alarm` is the reason why publishers must wait, or "". `vhost_metadata` holds the descriptive data of each
    virtual host, set by `describe`.
    """

    def __init__(
        self, settings: AmqpSettings, access: Access, store: RunStore, recorder: Recorder, random: RandomBytes
    ) -> None:
        self.settings = settings
        self.access = access
        self.authorizer: Authorizer = RabbitRights(access)
        self.alarm = ""
        self.counting = AmqpCounting()
        self.cluster_name = CLUSTER_NAME
        self.joined: JoinedQueues | None = None  # None: a host alone
        self.streams: StreamHost | None = None  # None: streams are refused
        self.connections_opened = 0
        self.applications = Applications()
        self.log_ins: Checks = Immediate()
        self.work = unbounded()  # the budget of costly requests; the owner of the loop replaces it
        self.leave_vhost: Callable[[str], None] = _nothing  # closes the connections of a virtual host
        self.vhosts: dict[str, VirtualHost] = {}
        self.vhost_metadata: dict[str, dict[str, object]] = {}
        self._store = store
        self._recorder = recorder
        self._random = random
        self.add_vhost("/")

    def number_connection(self) -> int:
        """Returns a new unique connection number."""
        self.connections_opened += 1
        return self.connections_opened

    def remove_vhost(self, name: str) -> None:
        """Removes a virtual host and its contents, and closes its connections."""
        self.leave_vhost(name)
        vhost = self.vhosts.pop(name)
        self.vhost_metadata.pop(name, None)
        vhost.sharing.deleted("vhost", b"")  # first: homes of its queues must not declare them again
        vhost.clear()

    def add_vhost(self, name: str) -> VirtualHost:
        vhost = VirtualHost(name, self._store, self._recorder.of(name), self.settings.queues)
        vhost.reader = AmqpHeaders()
        vhost.streams = self.streams
        vhost.default_type = _default_type(self.vhost_metadata.get(name, {}))
        self.vhosts[name] = vhost
        vhost.recorder.declared("vhost", b"", {})
        if self.joined is not None:
            self.share(vhost, self.joined)
        return vhost

    def describe(self, name: str, said: dict[str, object]) -> None:
        """Sets the descriptive data of a virtual host, which is there or will be. Of them, only
        `default_queue_type` has an effect."""
        self.vhost_metadata[name] = said
        if name in self.vhosts:
            self.vhosts[name].default_type = _default_type(said)

    def use_streams(self, streams: StreamHost) -> None:
        """Accepts queues of type stream."""
        self.streams = streams
        for vhost in self.vhosts.values():
            vhost.streams = streams

    def join(self, joined: JoinedQueues) -> None:
        """The host is joined to others: its definitions are theirs, and queues of theirs can be used here."""
        self.joined = joined
        for vhost in self.vhosts.values():
            self.share(vhost, joined)

    def share(self, vhost: VirtualHost, joined: JoinedQueues) -> None:
        vhost.departures = joined
        joined.definitions.use(vhost)
        vhost.sharing.declared("vhost", b"", {})

    def made_up(self, prefix: bytes) -> bytes:
        """Generates a unique name."""
        return prefix + b"-" + base64.urlsafe_b64encode(self.random_bytes(16)).rstrip(b"=")

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


def _default_type(said: Mapping[str, object]) -> QueueType:
    value = said.get(DEFAULT_TYPE)
    return QueueType(value) if value in TYPES else QueueType.CLASSIC


def _nothing(vhost: str) -> None:
    return
