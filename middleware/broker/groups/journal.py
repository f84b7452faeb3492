"""Writes to the tables, shared: what is submitted in one turn of the loop is one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.tables import Change, Tables

from .effects import Done

log = logging.getLogger(__name__)


class Journal:
    """Gathers changes and writes them in the order they came; of one key only the last."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._changes: dict[tuple[str, str], Change] = {}
        self._done: list[Done] = []
        self._written: asyncio.Future[TreecastError | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def submit(self, changes: Sequence[Change], done: Done) -> asyncio.Future[TreecastError | None]:
        """Calls `done` with None when `changes` are on disk, or with what prevented it.

        The future has the same result, after `done`; it is shared, so shield it to await it.
        """
        for change in changes:
            self._changes[change.table, change.key] = change
        self._done.append(done)
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())
        return self._written

    async def drain(self) -> None:
        """Returns when all that was submitted is written."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _write_all(self) -> None:
        while self._done:
            changes, self._changes = list(self._changes.values()), {}
            done, self._done = self._done, []
            written, self._written = self._written, None
            error = await self._write(changes)
            for call in done:
                try:
                    call(error)
                except Exception:
                    log.exception("what follows a write failed")
            if written is not None:
                written.set_result(error)
        self._task = None

    async def _write(self, changes: list[Change]) -> TreecastError | None:
        try:
            if changes:
                await self._tables.commit(changes)
        except TreecastError as error:
            log.error("groups and offsets cannot be written: %s", error)
            return error
        except Exception as error:
            log.exception("groups and offsets cannot be written")
            return TreecastError(Fault.STORAGE, str(error))
        return None
