"""The coordinator: executes commands one at a time, answers them once durable, and then notifies watchers.

Commands that wait together are decided in order and written in one transaction beside the loop, so a slow
disk makes larger groups. If the disk refuses, the whole group is refused and the state is read from the store
again: memory is never ahead of the disk for longer than one write. If several coordinators share the store, a
group that changes nothing is answered only after the store has confirmed that this one leads.

A host tells with each call how far its view is. If the store lacks an update of that view, it is an older
state of itself (`lineage.py`): its history gets another name, the host hands in its view, and the store
adopts what it lacks (`adopting.py`). Meanwhile, and until all hosts were heard that were attached, nothing is
given out (`hearing.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from msgspec import Struct, field

from treecast.middleware.api.entries import (
    Change,
    Kind,
    Position,
    Presence,
    decode_change,
    encode_change,
)
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from . import events
from .cluster_state import ClusterState
from .commands import AdoptView, Command, Expire, Returned, SkipNumbers
from .decision import Decision
from .hearing import Hearing, waits
from .history import History, Revision
from .lineage import Lineage, producer_floor
from .state import decide, step
from .store import Commit, Loaded, Store, StoredChange
from .values import EVENTS, StateSettings, event_key

R = TypeVar("R")
_HIGHEST = 2**62  # above all epochs
_MISSING = 200  # sentences about what could not come back that are kept
_MOST_BOUNDS = 4  # of `hearing`, for which the store's own host waits while hosts hand in views one by one

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
        self._between: list[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]] = []
        self._all_heard = asyncio.Event()
        self.refused_writes = 0  # groups of commands that the disk refused
        self.older_states = 0  # views that were adopted
        self.missing: tuple[str, ...] = ()  # what could not come back with them, as sentences
        self._beside_host = ""  # in whose data directory the store is
        self._waits_for = ""  # a view that the store lacks
        loaded = store.load() if loaded is None else loaded
        self._producer_floor = producer_floor(time.time()) if loaded.revision else 0
        self._take(loaded)
        attached = [host.host_id for host in self._state.hosts() if host.presence is Presence.ATTACHED]
        self._hearing = Hearing(attached, clock(), settings.state.hearing)

    def _take(self, loaded: Loaded) -> None:
        self.cluster_id = loaded.cluster_id
        self.history_id = loaded.history
        self._state = ClusterState(self._settings.state)
        self._state.pass_time(self._clock())
        self._state.apply(decode_change(entry) for entry in loaded.entries)
        self._state.last_event = loaded.last_event
        self._state.producer_floor = self._producer_floor
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

    @property
    def state(self) -> ClusterState:
        """The state, read-only. While a group is being written it may be ahead of `revision`."""
        return self._state

    # --- commands

    async def do(self, command: Command) -> Any:
        """Executes `command` and returns its answer once its changes are on disk. Raises TreecastError."""
        self._check_open()
        if waits(self._state, command):
            await self._hear()
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
            while self._waiting or self._snapshots or self._between:
                await self._work_between()
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

    # --- an older state of the store

    async def meet(self, name: str, host_id: int, told: Position, highest: int = 0) -> bool:
        """Takes a host's word about how far its view is, and the highest epoch that it has heard of.

        Returns whether its view is wanted, because the store is an older state. Raises
        COORDINATOR_UNAVAILABLE while another host hands in its view, and if another coordinator seems to
        lead.
        """
        if highest > self.epoch:
            await self._do_between(lambda: self._rise(name, highest))
        if not self._lacks(told):
            if self._hearing.heard(host_id):
                self._note_heard()
            return False
        if told.history == self.history_id:
            await self._do_between(lambda: self._turn_history(name, told))
        if not self._hearing.wanted(name, self._clock()):
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, "the coordinator takes in another host's view: try again"
            )
        self._waits_for = (
            f"the coordinator's store is an older state: host {name} has revision {told.revision} of history"
            f" {told.history}; its view is awaited"
        )
        return True

    def _lacks(self, told: Position) -> bool:
        return self.lineage.lacks(self.history_id, self._history.last, told)

    async def adopt(self, name: str, told: Position, changes: tuple[Change, ...]) -> None:
        """Adopts the whole view of a host, unless the store has it by now."""
        await self._do_between(lambda: self._adopt(name, told, changes))
        self._hearing.handed_in()
        self._waits_for = ""
        self._note_heard()

    async def _adopt(self, name: str, told: Position, changes: tuple[Change, ...]) -> None:
        known = self.lineage.known(self.history_id, self._history.last, told)
        if known is None or not known.lacks(told):
            return
        own = self._changed_since(known.shared(told.epoch), [one.at for one in known.adopted])
        waiting = _Waiting(
            AdoptView(name, told.revision, changes, own, self._beside_host),
            asyncio.get_running_loop().create_future(),
        )
        await self._do_group([waiting])
        answer: Returned = await waiting.done
        last = self._history.last
        lineage = self.lineage.adopted(told, last if answer.entries else 0)
        await self._write_turn(self.epoch, self.history_id, last, lineage)
        self._note_adopted(name, told, answer)

    def _note_adopted(self, name: str, told: Position, answer: Returned) -> None:
        self.older_states += 1
        self.missing = tuple(dict.fromkeys((*self.missing, *answer.missing)))[:_MISSING]
        _log.error(
            "coordinator's store was an older state; it has adopted a host's view",
            host=name,
            revision=told.revision,
            entries=answer.entries,
            missing=len(answer.missing),
        )
        for text in answer.missing:
            _log.error("entry could not come back to the coordinator's store", host=name, detail=text)

    def _changed_since(self, revision: int, adoptions: Sequence[int]) -> frozenset[tuple[Kind, str]] | None:
        """Returns what this store changed itself after `revision`; None if it does not know that any more."""
        found = self._history.after(revision, self._settings.history_bytes)
        if found is None:
            return None
        own = (decode_change(one) for each in found if each.number not in adoptions for one in each.changes)
        return frozenset((change.kind, change.key) for change in own)

    async def _turn_history(self, name: str, told: Position) -> None:
        """Gives the history another name: its next revisions are not those that the host knows."""
        if told.history != self.history_id or not self._lacks(told):
            return
        before, last = self.history_id, self._history.last
        following = max(last, told.revision)
        lineage = self.lineage.turned(before, last, self.epoch, following)
        await self._write_turn(self.epoch, uuid.uuid4().hex, following, lineage)
        _log.error(
            "coordinator's store is an older state of itself",
            revision=last,
            host=name,
            knows=told.revision,
        )

    async def _rise(self, name: str, highest: int) -> None:
        """Goes on in a higher epoch than the one that a host has heard of."""
        before, last = self.epoch, self._history.last
        if highest <= before:
            return
        if highest >= _HIGHEST or not self._store.may_follow(highest):
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE,
                f"host {name} has heard of epoch {highest}, and this coordinator decides in epoch {before}:"
                " another server was promoted. If this database alone is to go on, execute UPDATE"
                f" treecast.standing SET epoch = {highest}",  # nosec B608  # a text for the operator
            )
        await self._write_turn(highest + 1, self.history_id, last, self.lineage.led(highest + 1, last))
        _log.error(
            "coordinator goes on in a higher epoch, because hosts have heard of later ones",
            host=name,
            before=before,
            epoch=self.epoch,
        )

    async def _write_turn(self, epoch: int, history: str, revision: int, lineage: Lineage) -> None:
        await self._beside(self._store.turn, epoch, history, revision, lineage)
        self.lineage = lineage
        if history != self.history_id:
            self.history_id = history
            self._history.skip(revision)
            self._last_snapshot = None
            self.wake()

    async def _do_between(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does work between two groups of commands."""
        self._check_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._between.append((work, done))
        self._start_draining()
        await done

    async def _work_between(self) -> None:
        between, self._between = self._between, []
        for work, done in between:
            try:
                await work()
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(None)

    async def _hear(self) -> None:
        """Waits until the attached hosts were heard, or that takes too long, and no view is awaited.

        Raises COORDINATOR_UNAVAILABLE if a host goes on to know more than the store.
        """
        now = self._clock()
        until = now + self._hearing.bound
        while (left := self._hearing.left(now)) > 0 and not self._closed:
            if now >= until:
                raise TreecastError(
                    Fault.COORDINATOR_UNAVAILABLE, f"nothing is given out now: {self._waits_for}"
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, until - now)):
                    await self._all_heard.wait()
            now = self._clock()
        self._check_open()
        if self._hearing.unheard:
            await self._go_on_without()

    async def hear_others(self, name: str) -> None:
        """Waits until the hosts other than `name` were heard, or that takes too long.

        For the host whose data directory holds the store: an old copy of it is an old state of both, which
        only the other hosts can tell. Until then the host must not lead on its logs.
        """
        self._beside_host = name
        others = {host.host_id: host for host in self._state.hosts() if host.name != name}
        self._hearing.unheard &= others.keys()
        now = self._clock()
        if not self._hearing.unheard:
            self._hearing.hear_any(others, now)
        self._note_heard()  # others may have waited for the store's own host
        until = now + _MOST_BOUNDS * self._hearing.bound
        while (left := min(self._hearing.left(now), until - now)) > 0 and not self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._all_heard.wait()
            now = self._clock()

    async def _go_on_without(self) -> None:
        """Goes on without hosts that may know of numbers which this store would give again."""
        unheard, self._hearing.unheard = self._hearing.unheard, set()
        names = [host.name for one in sorted(unheard) if (host := self._state.host_by_id(one)) is not None]
        _log.info("coordinator goes on without having heard from hosts", hosts=", ".join(names[:20]))
        await self.do(SkipNumbers())

    def _note_heard(self) -> None:
        """Lets those go on that wait for hosts."""
        if not self._hearing.left(self._clock()):
            self._all_heard.set()
            self._all_heard = asyncio.Event()

    def problems(self) -> list[str]:
        """Returns what the store lacks, as sentences."""
        return [text for text in (self._waits_for, *self.missing) if text]

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
        self._all_heard.set()
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
