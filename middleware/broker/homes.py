"""The stores that homes write to, which also know for which ids this host is the home.

A group id or a transactional id has one home, the host that decides about it. A standalone host is the home
of everything and writes to its own tables (`TableStore`). On joined hosts the store also passes each write
on to the coordinator's store, and refuses writes of a home that has moved to another host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.storage.tables import Change, Tables


class HomeName(Struct, frozen=True):
    """A group id or a transactional id: the kinds of homes that the broker writes for."""

    kind: HomeKind
    id: str

    def __str__(self) -> str:
        return f"{'group' if self.kind is HomeKind.GROUP else 'transactional id'} {self.id!r}"


class HomeWrite(Struct, frozen=True):
    """Changes of the tables by one home. `epoch` is the home's epoch at the time of the change.

    `forget`: the write leaves nothing of the home, and its location need not be remembered.
    """

    name: HomeName
    epoch: int
    changes: Sequence[Change]
    forget: bool = False


Refusals = Mapping[int, TreecastError]  # by the write's index


class HomeStore(Protocol):
    """The store that a coordinator of groups or transactions writes to."""

    def epoch(self, name: HomeName) -> int:
        """Returns the epoch in which this host is the home. Raises NOT_COORDINATOR if it is not the home."""

    async def commit(self, writes: Sequence[HomeWrite]) -> Refusals:
        """Returns when the writes are as durable as the store can make them; refuses those of moved homes.

        Raises an error that applies to all of them (STORAGE).
        """


class TableStore:
    """The store of a standalone host: its own tables. The host is the home of everything, at epoch 0."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def epoch(self, name: HomeName) -> int:
        return 0

    async def commit(self, writes: Sequence[HomeWrite]) -> Refusals:
        await self._tables.commit([change for write in writes for change in write.changes])
        return {}
