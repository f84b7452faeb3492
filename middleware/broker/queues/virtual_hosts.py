"""The virtual hosts of a host, with what is said of them and the cluster's name.

They are one stored definition (`KIND`); their exchanges and queues are definitions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from treecast.middleware.model.wishes import NoSchemas, Schemas

from .arguments import QueueArguments, QueueType
from .exchange import HeaderReader
from .joined import JoinedQueues
from .recorder import Recorder
from .refusals import Refusal
from .settings import DEFAULTS, QueueSettings
from .store import RunStore
from .streams import Streams
from .virtual_host import VirtualHost

KIND: Final = "vhosts"  # of the stored definition
DEFAULT_TYPE: Final = "default_queue_type"  # the only thing said of a virtual host that has an effect
TYPES: Final = tuple(one.value for one in QueueType)
CLUSTER_NAME: Final = "treecast"  # until an operator gives another


class StreamHost(Streams, Protocol):
    """The logs of streams, as faces declare them."""

    def prepare(
        self, vhost: str, name: bytes, arguments: QueueArguments, then: Callable[[Refusal | None], None]
    ) -> None:
        """Makes the log of a stream exist, then calls `then` with None or the refusal."""

    def now(self) -> float: ...


class _Kept(Struct, frozen=True):
    vhosts: dict[str, dict[str, object]]
    cluster_name: str


class LocalVirtualHosts:
    """The virtual hosts of one host; `/` is there from the start. Implements `shared.VirtualHosts`.

    `metadata` is what is said of each virtual host, set by `describe`. `reader`: reads headers for all of
    them. `streams`: None, streams are refused. `joined`: None, the host is alone. `leaving` is called with
    the name of a virtual host before it is removed.
    """

    def __init__(
        self,
        store: RunStore,
        recorder: Recorder,
        settings: QueueSettings = DEFAULTS,
        kept: Mapping[str, object] | None = None,
    ) -> None:
        """`kept`: the stored definition. These virtual hosts are there again."""
        self.vhosts: dict[str, VirtualHost] = {}
        self.metadata: dict[str, dict[str, object]] = {}
        self.reader: HeaderReader | None = None
        self.schemas: Schemas = NoSchemas()
        self.streams: StreamHost | None = None
        self.joined: JoinedQueues | None = None
        self.leaving: list[Callable[[str], None]] = []
        self._store = store
        self._recorder = recorder
        self._settings = settings
        found = msgspec.convert(kept, _Kept) if kept is not None else _Kept({"/": {}}, CLUSTER_NAME)
        self.cluster_name = found.cluster_name
        for name in dict.fromkeys(("/", *found.vhosts)):
            self.add_vhost(name)
            self.describe(name, found.vhosts.get(name, {}))
        self._known = self._now()

    def use(self, reader: HeaderReader, streams: StreamHost | None) -> None:
        """Reads headers by `reader` from now on, and accepts queues of type stream."""
        self.reader, self.streams = reader, streams
        for vhost in self.vhosts.values():
            vhost.router.reader, vhost.queue_definitions.streams = reader, streams

    def use_schemas(self, schemas: Schemas) -> None:
        """Reads messages of topics by their `schemas` from now on."""
        self.schemas = schemas
        for vhost in self.vhosts.values():
            vhost.router.schemas = schemas

    # --- as `shared.VirtualHosts`

    def add_vhost(self, name: str) -> VirtualHost:
        vhost = VirtualHost(name, self._store, self._recorder.of(name), self._settings)
        vhost.router.reader, vhost.queue_definitions.streams = self.reader, self.streams
        vhost.queue_definitions.default_type = _default_type(self.metadata.get(name, {}))
        vhost.router.schemas = self.schemas
        self.vhosts[name] = vhost
        vhost.ledger.recorder.declared("vhost", b"", {})
        if self.joined is not None:
            self._share(vhost, self.joined)
        return vhost

    def remove_vhost(self, name: str) -> None:
        """Removes a virtual host and its contents."""
        for told in self.leaving:
            told(name)
        vhost = self.vhosts.pop(name)
        self.metadata.pop(name, None)
        vhost.ledger.sharing.deleted("vhost", b"")  # first: homes of its queues must not declare them again
        vhost.clear()

    # --- what is said of them

    def describe(self, name: str, said: dict[str, object]) -> None:
        """Sets the descriptive data of a virtual host, which is there or will be. Of them, only
        `default_queue_type` has an effect."""
        self.metadata[name] = said
        if name in self.vhosts:
            self.vhosts[name].queue_definitions.default_type = _default_type(said)

    def keep(self) -> None:
        """Declares what is said of them, and the cluster's name, where anything has changed; the turn stores
        it."""
        found = self._now()
        if found != self._known:
            self._known = found
            self._recorder.declared(KIND, b"", msgspec.json.decode(found))

    def _now(self) -> bytes:
        vhosts = {name: self.metadata.get(name, {}) for name in self.vhosts}
        return msgspec.json.encode(_Kept(vhosts, self.cluster_name))

    # --- other hosts

    def join(self, joined: JoinedQueues) -> None:
        """The host is joined to others: its definitions are theirs, and queues of theirs can be used here."""
        self.joined = joined
        for vhost in self.vhosts.values():
            self._share(vhost, joined)

    def _share(self, vhost: VirtualHost, joined: JoinedQueues) -> None:
        vhost.departures = joined
        joined.definitions.use(vhost)
        vhost.ledger.sharing.declared("vhost", b"", {})


def _default_type(said: Mapping[str, object]) -> QueueType:
    value = said.get(DEFAULT_TYPE)
    return QueueType(value) if value in TYPES else QueueType.CLASSIC
