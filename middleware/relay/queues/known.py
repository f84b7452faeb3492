"""The definitions of AMQP as the coordinator tells them, from before the queues of this host are restored.

The stored view of an earlier run is loaded first. So it is known which definitions were deleted elsewhere
while this host was away: it must not announce them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from treecast.middleware.api.entries import DefinitionEntry, Position
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.fabric.channel import Method, Methods, Natural, Nothing
from treecast.middleware.model.buffers import Buffer
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.relay.coordinator_link import CoordinatorLink, called

SEEN_SECONDS: Final = 1.0  # how long other hosts are waited for until they know a definition


class SeenRequest(Struct, frozen=True, array_like=True):
    """Asks a host to answer when it has heard of the coordinator's `revision`."""

    revision: Natural


SEEN: Final = Method(140, SeenRequest, Nothing)


class Edit(Struct, frozen=True):
    """A change of a definition, as the coordinator is asked for it; see `DefinitionWrite` of its calls."""

    key: str
    value: bytes | None
    replace: bool


class KnownDefinitions:
    """The definitions as this host has heard of them.

    `removed`: keys that were deleted since the stored view was loaded, until `listener` is set. It is called
    with all changes of an update.
    """

    def __init__(self, link: CoordinatorLink, methods: Methods) -> None:
        self.link = link
        self.methods = methods
        self.removed: set[str] = set()
        self.listener: Callable[[Mapping[str, DefinitionEntry | None]], None] | None = None
        self._changes: dict[str, DefinitionEntry | None] = {}
        link.view.definitions.subscribe(self._changed)
        link.view.on_reached(self._reached)
        methods.register(SEEN, self._seen)

    def all(self) -> list[DefinitionEntry]:
        return list(self.link.view.definitions)

    def _changed(self, before: DefinitionEntry | None, after: DefinitionEntry | None) -> None:
        found = after or before
        if found is None or (after is None and self.link.view.doubtful):
            return  # lost with the coordinator's store, maybe
        self._changes[found.key] = after
        if self.listener is None and after is None:
            self.removed.add(found.key)

    def _reached(self, position: Position) -> None:
        changes, self._changes = self._changes, {}
        if changes and self.listener is not None:
            self.listener(changes)

    async def _seen(self, host: int, request: SeenRequest, body: memoryview) -> tuple[Nothing, Buffer]:
        await self.link.seen(request.revision)
        return Nothing(), b""

    async def write(self, edits: list[Edit]) -> int:
        """Returns the revision in which all edits are decided, when this host has heard of it.

        Raises COORDINATOR_UNAVAILABLE, TIMED_OUT, or the coordinator's refusal.
        """
        writes = [pb.DefinitionWrite(key=one.key, value=one.value, replace=one.replace) for one in edits]
        revision = await called(self.link.client.put_definitions(self.link.session, writes))
        await self.link.seen(revision)
        return revision

    async def seen_by(self, host: int, revision: int) -> None:
        """Returns when another host has heard of the revision, or was waited for in vain."""
        try:
            await self.methods.ask(host, SEEN, SeenRequest(revision), SEEN_SECONDS)
        except TreecastError:
            return
