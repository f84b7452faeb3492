"""Where homes write, and which homes this host is: the seam at which a joined host keeps them safe.

A group id or a transactional id has one home, the host that decides about it. A host alone is home to
everything and writes to its own tables (`TableStore`). Where hosts are joined, the store also passes each
write on to the coordinator's store, and refuses those of a home that has gone to another host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.storage.tables import Change, Tables


class HomeName(Struct, frozen=True):
    """A group id or a transactional id, which are the kinds of homes that the broker writes for."""

    kind: HomeKind
    id: str

    def __str__(self) -> str:
        return f"{'group' if self.kind is HomeKind.GROUP else 'transactional id'} {self.id!r}"


class HomeWrite(Struct, frozen=True):
    """Changes of the tables by one home. `epoch`: of the home when the change was made.

    `forget`: nothing of the home is left after it, and nobody has to know any more where it was.
    """

    name: HomeName
    epoch: int
    changes: Sequence[Change]
    forget: bool = False


Refusals = Mapping[int, TreecastError]  # by the write's place


class HomeStore(Protocol):
    """What a coordinator of groups or transactions writes to."""

    def epoch(self, name: HomeName) -> int:
        """The epoch in which this host is the home; NOT_COORDINATOR where it is not the home now."""

    async def commit(self, writes: Sequence[HomeWrite]) -> Refusals:
        """Returns when the writes are as safe as can be; those of homes that are elsewhere are refused.

        Raises what refuses all of them (STORAGE).
        """


class TableStore:
    """The store of a host alone: its own tables. It is home to everything, at epoch 0."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def epoch(self, name: HomeName) -> int:
        return 0

    async def commit(self, writes: Sequence[HomeWrite]) -> Refusals:
        await self._tables.commit([change for write in writes for change in write.changes])
        return {}
