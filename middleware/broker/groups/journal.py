"""Shared writes of groups: all changes submitted in one turn of the loop become one commit of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName, HomeStore, HomeWrite, Refusals
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.rarely import Rarely
from treecast.middleware.storage.tables import Change

from .effects import Done

log = Log(__name__)

Written = asyncio.Future[TreecastError | None]


class _Gathered:
    """One group's changes since the last commit began. The last change of a key counts.

    `written`: made once somebody waits for it, as most commits are answered by their callback alone.
    """

    def __init__(self) -> None:
        self.written: Written | None = None
        self.changes: dict[tuple[str, str], Change] = {}
        self.done: list[Done] = []
        self.forget = False

    def add(self, changes: Sequence[Change], done: Done) -> None:
        for change in changes:
            key = change.table, change.key
            self.changes.pop(key, None)  # keeps the order of the last changes
            self.changes[key] = change
        self.done.append(done)
        self.forget = False  # a later change revives the group


class Journal:
    """Gathers changes and commits them in order, one commit at a time."""

    def __init__(self, store: HomeStore) -> None:
        self.store = store
        self._gathered: dict[tuple[str, int], _Gathered] = {}
        self._task: asyncio.Task[None] | None = None
        self._complaint = Rarely()  # a full disk refuses each commit of each group

    def submit(
        self, group_id: str, epoch: int, changes: Sequence[Change], done: Done, *, forget: bool = False
    ) -> Written:
        """Calls `done` with None once `changes` are stored, else with the error.

        `epoch` is the epoch of this host as the group's home. The future gets the same result after `done`.
        Callers share the future and must shield it. `forget` as in `HomeWrite`.
        """
        gathered = self._gather(group_id, epoch, changes, done)
        gathered.forget = forget
        if gathered.written is None:
            gathered.written = asyncio.get_running_loop().create_future()
        return gathered.written

    def add(self, group_id: str, epoch: int, changes: Sequence[Change], done: Done) -> None:
        """As `submit`, for callers that `done` is enough for."""
        self._gather(group_id, epoch, changes, done)

    def _gather(self, group_id: str, epoch: int, changes: Sequence[Change], done: Done) -> _Gathered:
        gathered = self._gathered.get((group_id, epoch))
        if gathered is None:
            gathered = self._gathered[group_id, epoch] = _Gathered()
        gathered.add(changes, done)
        if self._task is None:
            self._task = asyncio.create_task(self._write_all())
        return gathered

    async def drain(self) -> None:
        """Returns once all submitted changes are written."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _write_all(self) -> None:
        while self._gathered:
            gathered, self._gathered = self._gathered, {}
            refused, error = await self._commit(gathered)
            for place, group in enumerate(gathered.values()):
                _tell(group, error or refused.get(place))
        self._task = None

    async def _commit(
        self, gathered: dict[tuple[str, int], _Gathered]
    ) -> tuple[Refusals, TreecastError | None]:
        """Returns the refusals per group, or the error that refused all of them."""
        writes = [
            HomeWrite(HomeName(HomeKind.GROUP, group_id), epoch, list(group.changes.values()), group.forget)
            for (group_id, epoch), group in gathered.items()
        ]
        try:
            return await self.store.commit(writes), None
        except TreecastError as error:
            if self._complaint.due(asyncio.get_running_loop().time()):
                log.error(
                    "groups and offsets cannot be written", error=error, left_out=self._complaint.left_out()
                )
            return {}, error
        except Exception as error:
            log.exception("groups and offsets cannot be written")
            return {}, TreecastError(Fault.STORAGE, str(error))


def _tell(group: _Gathered, error: TreecastError | None) -> None:
    for call in group.done:
        try:
            call(error)
        except Exception:
            log.exception("callback of a write failed")
    if group.written is not None:
        group.written.set_result(error)
