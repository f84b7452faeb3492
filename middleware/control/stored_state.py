"""The coordinator's state in memory, the store that has it, and the history that watchers read.

Memory is ahead of the disk only during `write`; if the disk refuses, `reload` reads the store again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Struct, field

from treecast.middleware.api.entries import Change, Kind, decode_change, encode_change

from . import events
from .cluster_state import ClusterState
from .decision import Decision
from .history import History, Revision
from .lineage import Lineage, producer_floor
from .store import Commit, Loaded, Store, StoredChange
from .values import StateSettings

R = TypeVar("R")


class CoordinatorSettings(Struct, frozen=True):
    """`history_*`: how far back watchers can resume. `queue`: maximum number of commands that wait for the
    disk.
    """

    state: StateSettings = field(default_factory=StateSettings)
    history_revisions: int = 10_000
    history_bytes: int = 16 << 20
    queue: int = 10_000


class Snapshot(Struct, frozen=True):
    """The whole state as of `revision`, encoded."""

    revision: int
    changes: Sequence[bytes]


async def _encode(revision: int, entries: Sequence[Change]) -> Snapshot:
    return Snapshot(revision, await asyncio.to_thread(lambda: [encode_change(entry) for entry in entries]))


class StoredState:
    """The state of one coordinator, and its store. `closed`, which the coordinator sets: it ends.

    `state` is read-only for all but deciders. While a group is being written it may be ahead of `revision`.
    """

    def __init__(
        self,
        store: Store,
        settings: CoordinatorSettings,
        clock: Callable[[], float],
        loaded: Loaded | None,
    ) -> None:
        self.closed = False
        self._store = store
        self._settings = settings
        self._clock = clock
        self._disk = ThreadPoolExecutor(1, "coordinator-store")
        self._moved = asyncio.Event()
        self._last_snapshot: asyncio.Task[Snapshot] | None = None  # of `revision`, shared by all requests
        loaded = store.load() if loaded is None else loaded
        self._producer_floor = producer_floor(time.time()) if loaded.revision else 0
        self._take(loaded)

    def _take(self, loaded: Loaded) -> None:
        self.cluster_id = loaded.cluster_id
        self.history_id = loaded.history
        self.state = ClusterState(self._settings.state)
        self.state.pass_time(self._clock())
        self.state.apply(decode_change(entry) for entry in loaded.entries)
        self.state.last_event = loaded.last_event
        self.state.producer_floor = self._producer_floor
        self.lineage: Lineage = loaded.lineage
        kept = [Revision(number, changes) for number, changes in loaded.log]
        self._history = History(
            loaded.revision, kept, self._settings.history_revisions, self._settings.history_bytes
        )

    @property
    def epoch(self) -> int:
        """The epoch of this leadership."""
        return self._store.epoch

    @property
    def revision(self) -> int:
        """The last revision that is on disk."""
        return self._history.last

    # --- writing

    async def beside(self, work: Callable[..., R], *arguments: Any) -> R:
        """Runs work of the store beside the loop, after all such work that was begun before."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    def collect(self, commits: list[Commit], decision: Decision[Any]) -> None:
        """Adds what a decision changes to the commits of its group."""
        items = decision.items
        if decision.events:
            items += events.stored(decision.events, self.state.last_event, int(time.time() * 1000))
            self.state.last_event += len(decision.events)
        if not decision.changes and not items:
            return
        last = commits[-1].revision if commits else self.revision
        changes = tuple(
            StoredChange(change.kind, change.key, encode_change(change), change.entry is None)
            for change in decision.changes
        )
        commits.append(Commit(last + 1 if changes else last, changes, items))

    async def write(self, commits: list[Commit]) -> None:
        """Writes the commits of a group. Without any, the store confirms that this coordinator leads."""
        if not commits:
            if self._store.shared:
                await self.beside(self._store.confirm)
            return
        await self.beside(self._store.commit, commits, self._history.first)
        for commit in commits:
            if commit.changes:
                changes = tuple(change.message for change in commit.changes)
                self._history.add(Revision(commit.revision, changes))
                self._last_snapshot = None
        self.wake()

    async def reload(self) -> None:
        """Reads the store again, because it refused a write."""
        self._last_snapshot = None
        self._take(await self.beside(self._store.load))

    async def turn(self, epoch: int, history: str, revision: int, lineage: Lineage) -> None:
        """Goes on in another epoch or history."""
        await self.beside(self._store.turn, epoch, history, revision, lineage)
        self.lineage = lineage
        if history != self.history_id:
            self.history_id = history
            self._history.skip(revision)
            self._last_snapshot = None
            self.wake()

    async def close(self) -> None:
        await self.beside(self._store.close)
        self._disk.shutdown()

    # --- watching

    def after(self, history: str, revision: int, max_bytes: int) -> list[Revision] | None:
        """Returns the revisions after `revision`; None if a snapshot is needed."""
        if history != self.history_id:
            return None
        return self._history.after(revision, max_bytes)

    def changed_since(self, revision: int, adoptions: Sequence[int]) -> frozenset[tuple[Kind, str]] | None:
        """Returns what this store changed itself after `revision`; None if it does not know that any more."""
        found = self._history.after(revision, self._settings.history_bytes)
        if found is None:
            return None
        own = (decode_change(one) for each in found if each.number not in adoptions for one in each.changes)
        return frozenset((change.kind, change.key) for change in own)

    def snapshot(self) -> asyncio.Task[Snapshot]:
        """Takes a snapshot. Between two groups, memory equals the disk."""
        if self._last_snapshot is None:
            self._last_snapshot = asyncio.create_task(_encode(self.revision, list(self.state.entries())))
        return self._last_snapshot

    def forget_snapshot(self) -> None:
        """Releases the last snapshot, when a further request for it is unlikely."""
        self._last_snapshot = None

    async def moved(self, revision: int) -> None:
        """Returns when `revision` is no longer the last, the state is closed, or `wake` is called."""
        if self.revision == revision and not self.closed:
            await self._moved.wait()

    def wake(self) -> None:
        """Makes all callers of `moved` check again."""
        self._moved.set()
        self._moved = asyncio.Event()
