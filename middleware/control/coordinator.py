"""The coordinator: executes commands one at a time, answers them once durable, and then notifies watchers.

Commands that wait together are decided in order and written in one transaction beside the loop, so a slow
disk makes larger groups. If the disk refuses, the whole group is refused and the state is read from the store
again: memory is never ahead of the disk for longer than one write. If several coordinators share the store, a
group that changes nothing is answered only after the store has confirmed that this one leads.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Struct, field

from treecast.middleware.api.entries import Change, decode_change, encode_change
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from . import events
from .cluster_state import ClusterState
from .commands import Command, Expire
from .decision import Decision
from .history import History, Revision
from .state import decide, step
from .store import Commit, Loaded, Store, StoredChange
from .values import EVENTS, StateSettings, event_key

R = TypeVar("R")

_log = Log(__name__)


class CoordinatorSettings(Struct, frozen=True):
    """`history_*`: how far back watchers can resume. `queue`: maximum number of commands that wait for the
    disk.
    """

    state: StateSettings = field(default_factory=StateSettings)
    history_revisions: int = 10_000
    history_bytes: int = 16 << 20
    queue: int = 10_000


class _Waiting(Struct):
    command: Command
    done: asyncio.Future[Any]


class Snapshot(Struct, frozen=True):
    """The whole state as of `revision`, encoded."""

    revision: int
    changes: Sequence[bytes]


async def _encode(revision: int, entries: Sequence[Change]) -> Snapshot:
    return Snapshot(revision, await asyncio.to_thread(lambda: [encode_change(entry) for entry in entries]))


class Coordinator:
    """The coordinator of one event loop. `clock`: seconds, should be steady; see
    `StateSettings.longest_step`.
    """

    def __init__(
        self,
        store: Store,
        settings: CoordinatorSettings,
        clock: Callable[[], float],
        loaded: Loaded | None = None,
    ) -> None:
        """`loaded`: the content of the store, if it was read beside the loop."""
        self._store = store
        self._settings = settings
        self._clock = clock
        self._disk = ThreadPoolExecutor(1, "coordinator-store")
        self._waiting: list[_Waiting] = []
        self._draining: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        self._snapshots: list[asyncio.Future[asyncio.Task[Snapshot]]] = []
        self._last_snapshot: asyncio.Task[Snapshot] | None = None  # of `revision`, shared by all requests
        self._closed = self._released = False
        self.ended = asyncio.Event()  # it answers no more commands
        self.epoch = store.epoch
        self.refused_writes = 0  # groups of commands that the disk refused
        self._take(store.load() if loaded is None else loaded)

    def _take(self, loaded: Loaded) -> None:
        self.cluster_id = loaded.cluster_id
        self.history_id = loaded.history
        self._state = ClusterState(self._settings.state)
        self._state.pass_time(self._clock())
        self._state.apply(decode_change(entry) for entry in loaded.entries)
        self._state.last_event = loaded.last_event
        kept = [Revision(number, changes) for number, changes in loaded.log]
        self._history = History(
            loaded.revision, kept, self._settings.history_revisions, self._settings.history_bytes
        )

    @property
    def revision(self) -> int:
        """The last revision that is on disk."""
        return self._history.last

    @property
    def state(self) -> ClusterState:
        """The state, read-only. While a group is being written it may be ahead of `revision`."""
        return self._state

    # --- commands

    async def do(self, command: Command) -> Any:
        """Executes `command` and returns its answer once its changes are on disk. Raises TreecastError."""
        self._check_open()
        if len(self._waiting) >= self._settings.queue:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, "too many commands wait for the coordinator's disk: try later"
            )
        waiting = _Waiting(command, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._start_draining()
        return await waiting.done

    def _check_open(self) -> None:
        if self._closed:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "the coordinator is closing: try again later")

    async def confirm(self) -> None:
        """Returns if this coordinator still leads on its store. Raises otherwise, and ends."""
        self._check_open()
        try:
            await self._beside(self._store.confirm)
        except TreecastError as error:
            self._end(error)
            raise

    async def _beside(self, work: Callable[..., R], *arguments: Any) -> R:
        """Runs work of the store beside the loop, after all such work that was begun before."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

    def validate(self, command: Command) -> Any:
        """Returns the answer that `command` would get now, without changing anything."""
        return decide(self._state, command).answer

    async def watch_leases(self) -> None:
        """Expires leases for ever, so often that no step is longer than `StateSettings.longest_step`."""
        state = self._settings.state
        pause = min(1.0, state.lease / 4, state.longest_step / 2)
        while True:
            await asyncio.sleep(pause)
            try:
                await self.expire_leases()
            except Exception:
                _log.exception("check of leases failed")

    async def keep_forced(self, interval: float) -> None:
        """Lets the store force what it has written, every `interval` seconds, for ever."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self._beside(self._store.force)
            except Exception as error:
                _log.error("coordinator's store waits for the disk", error=error)

    async def expire_leases(self) -> None:
        """Advances the clock, and enters hosts whose leases expired as away."""
        self._state.pass_time(self._clock())
        names = self._state.overdue()
        answers = await asyncio.gather(*(self.do(Expire(name)) for name in names), return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException):
                # The host may have renewed or left meanwhile; a disk error is retried at the next call.
                _log.debug("lease cannot be expired", host=name, answer=answer)

    async def home_items(self, home: str, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Returns items that a home wrote; see `Store.items`."""
        self._check_open()
        return await self._beside(self._store.items, home, after, limit)

    async def items_of(self, homes: Sequence[str]) -> list[list[tuple[bytes, bytes]]]:
        """Returns all items of each of `homes`, read at once."""
        self._check_open()

        def read() -> list[list[tuple[bytes, bytes]]]:
            return [self._store.items(home, b"", sys.maxsize)[0] for home in homes]

        return await self._beside(read)

    async def events(self, after: int, last: int, limit: int) -> tuple[list[bytes], bool]:
        """Returns encoded events: the latest `last`, or else those after the number `after`, up to `limit`
        bytes but at least one; and whether more follow."""
        if last:
            after = max(self._state.last_event - last, 0)
        items, more = await self.home_items(EVENTS, event_key(after), limit)
        return [value for _, value in items], more

    def _start_draining(self) -> None:
        if self._draining is None:
            self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Decides and writes waiting commands, a group at a time, until none are left."""
        try:
            while self._waiting or self._snapshots:
                self._take_snapshot()
                group, self._waiting = self._waiting, []
                await self._do_group(group)
        finally:
            self._draining = None

    async def _do_group(self, group: list[_Waiting]) -> None:
        self._state.pass_time(self._clock())
        answers: list[tuple[_Waiting, Any]] = []
        commits: list[Commit] = []
        for waiting in group:
            try:
                decision = self._decide(waiting.command)
            except TreecastError as refusal:
                answers.append((waiting, refusal))
                continue
            answers.append((waiting, decision.answer))
            self._collect(commits, decision)
        try:
            await self._write(commits)
        except Exception as error:
            failure = error if isinstance(error, TreecastError) else TreecastError(Fault.STORAGE, repr(error))
            await self._recover(failure)
            for waiting, _ in answers:
                _settle(waiting, failure)
            return
        for waiting, answer in answers:
            _settle(waiting, answer)

    def _decide(self, command: Command) -> Decision[Any]:
        """Decides. An internal error refuses only this command: `step` changes nothing before it has
        decided.
        """
        if isinstance(command, Expire) and command.name not in self._state.overdue():
            raise TreecastError(Fault.INVALID_REQUEST, f"host {command.name} renewed meanwhile")
        try:
            return step(self._state, command)
        except TreecastError:
            raise
        except Exception as error:
            _log.exception("command failed", command=type(command).__name__)
            raise TreecastError(Fault.INTERNAL) from error

    def _collect(self, commits: list[Commit], decision: Decision[Any]) -> None:
        items = decision.items
        if decision.events:
            items += events.stored(decision.events, self._state.last_event, int(time.time() * 1000))
            self._state.last_event += len(decision.events)
        if not decision.changes and not items:
            return
        last = commits[-1].revision if commits else self._history.last
        changes = tuple(
            StoredChange(change.kind, change.key, encode_change(change), change.entry is None)
            for change in decision.changes
        )
        commits.append(Commit(last + 1 if changes else last, changes, items))

    async def _write(self, commits: list[Commit]) -> None:
        if not commits:
            if self._store.shared:
                await self._beside(self._store.confirm)
            return
        await self._beside(self._store.commit, commits, self._history.first)
        for commit in commits:
            if commit.changes:
                changes = tuple(change.message for change in commit.changes)
                self._history.add(Revision(commit.revision, changes))
                self._last_snapshot = None
        self.wake()

    async def _recover(self, error: TreecastError) -> None:
        self.refused_writes += 1
        if self.refused_writes & (self.refused_writes - 1) == 0:  # the 1st, 2nd, 4th, ...
            _log.error("coordinator's store refused a write", count=self.refused_writes, error=error)
        self._last_snapshot = None
        try:
            self._take(await self._beside(self._store.load))
        except TreecastError as worse:
            self._end(worse)  # memory differs from the disk: better no answers than wrong ones
        self.wake()

    def _end(self, error: TreecastError) -> None:
        """Stops answering: the store cannot be read, or this coordinator does not lead on it."""
        if not self._closed and not self._store.shared:  # who shares the store logs what follows
            _log.critical("coordinator stops answering", error=error)
        self._closed = True
        self.ended.set()
        self.wake()

    # --- watching

    def after(self, history: str, revision: int, max_bytes: int) -> list[Revision] | None:
        """Returns the revisions after `revision`; None if a snapshot is needed."""
        if history != self.history_id:
            return None
        return self._history.after(revision, max_bytes)

    async def snapshot(self) -> Snapshot:
        """Returns the whole state as of a revision that is on disk."""
        asked: asyncio.Future[asyncio.Task[Snapshot]] = asyncio.get_running_loop().create_future()
        self._snapshots.append(asked)
        self._start_draining()
        return await asyncio.shield(await asked)

    def _take_snapshot(self) -> None:
        """Takes a snapshot for all waiting requests. Between two groups, memory equals the disk."""
        asked, self._snapshots = [each for each in self._snapshots if not each.done()], []
        if not asked:
            return
        if self._last_snapshot is None:
            entries = list(self._state.entries())
            self._last_snapshot = asyncio.create_task(_encode(self.revision, entries))
        for each in asked:
            each.set_result(self._last_snapshot)

    def forget_snapshot(self) -> None:
        """Releases the last snapshot, when a further request for it is unlikely."""
        self._last_snapshot = None

    async def moved(self, revision: int) -> None:
        """Returns when `revision` is no longer the last, the coordinator closes, or `wake` is called."""
        if self._history.last == revision and not self._closed:
            await self._moved.wait()

    @property
    def closed(self) -> bool:
        return self._closed

    def wake(self) -> None:
        """Makes all callers of `moved` check again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def close(self) -> None:
        """Finishes waiting commands, then closes the store. Safe to call twice."""
        self._closed = True
        self.ended.set()
        self.wake()
        while self._draining is not None:
            await self._draining
        if not self._released:
            self._released = True
            await self._beside(self._store.close)
            self._disk.shutdown()


def _settle(waiting: _Waiting, answer: Any) -> None:
    if waiting.done.done():
        return  # the caller went away
    if isinstance(answer, TreecastError):
        waiting.done.set_exception(answer)
    else:
        waiting.done.set_result(answer)
