"""The coordinator: executes commands one at a time, answers them once durable, and then notifies watchers.

Commands that wait together are decided in order and written in one transaction beside the loop, so a slow
disk makes larger groups. If the disk refuses, the whole group is refused and the state is read from the store
again, before anything else is decided: no answer comes from memory that is ahead of the disk. If several
coordinators share the store, a group that changes nothing is answered only after the store has confirmed that
this one leads.

Nothing is given out while the store may be an older state of itself (`older_states.py`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .commands import Command, Expire
from .decision import Decision
from .hearing import waits
from .older_states import OlderStates
from .state import decide, step
from .store import Commit, Loaded, Store
from .stored_state import CoordinatorSettings, Snapshot, StoredState
from .values import EVENTS, event_key

_log = Log(__name__)
_READ_AGAIN: Final = 1.0  # seconds, after a store that refused a write could not be read


class _Waiting(Struct):
    command: Command
    done: asyncio.Future[Any]


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
        self.stored = StoredState(store, settings, clock, loaded)
        self.older = OlderStates(self.stored, self, store.may_follow, settings.state.hearing, clock)
        self.ended = asyncio.Event()  # it answers no more commands
        self.refused_writes = 0  # groups of commands that the disk refused
        self._store = store
        self._settings = settings
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._draining: asyncio.Task[None] | None = None
        self._snapshots: list[asyncio.Future[asyncio.Task[Snapshot]]] = []
        self._between: list[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]] = []
        self._released = False
        self._ahead = False  # memory has what the store refused, and the store cannot be read

    # --- commands

    async def do(self, command: Command) -> Any:
        """Executes `command` and returns its answer once its changes are on disk. Raises TreecastError."""
        self.check_open()
        if waits(self.stored.state, command):
            await self.older.hear()
        if len(self._waiting) >= self._settings.queue:
            raise TreecastError(
                Fault.COORDINATOR_UNAVAILABLE, "too many commands wait for the coordinator's disk: try later"
            )
        waiting = _Waiting(command, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._start_draining()
        return await waiting.done

    def check_open(self) -> None:
        """Raises COORDINATOR_UNAVAILABLE if no more commands are executed."""
        if self.stored.closed:
            raise _closing()

    async def confirm(self) -> None:
        """Returns if this coordinator still leads on its store. Raises otherwise, and ends."""
        self.check_open()
        try:
            await self.stored.beside(self._store.confirm)
        except TreecastError:
            self._end()
            raise

    def validate(self, command: Command) -> Any:
        """Returns the answer that `command` would get now, without changing anything."""
        return decide(self.stored.state, command).answer

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
                await self.stored.beside(self._store.force)
            except Exception as error:
                _log.error("coordinator's store waits for the disk", error=error)

    async def expire_leases(self) -> None:
        """Advances the clock, and enters hosts whose leases expired as away."""
        self.stored.state.pass_time(self._clock())
        names = self.stored.state.overdue()
        answers = await asyncio.gather(*(self.do(Expire(name)) for name in names), return_exceptions=True)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, BaseException):
                # The host may have renewed or left meanwhile; a disk error is retried at the next call.
                _log.debug("lease cannot be expired", host=name, answer=answer)

    async def home_items(self, home: str, after: bytes, limit: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        """Returns items that a home wrote; see `Store.items`."""
        self.check_open()
        return await self.stored.beside(self._store.items, home, after, limit)

    async def items_of(self, homes: Sequence[str]) -> list[list[tuple[bytes, bytes]]]:
        """Returns all items of each of `homes`, read at once."""
        self.check_open()

        def read() -> list[list[tuple[bytes, bytes]]]:
            return [self._store.items(home, b"", sys.maxsize)[0] for home in homes]

        return await self.stored.beside(read)

    async def events(self, after: int, last: int, limit: int) -> tuple[list[bytes], bool]:
        """Returns encoded events: the latest `last`, or else those after the number `after`, up to `limit`
        bytes but at least one; and whether more follow."""
        if last:
            after = max(self.stored.state.last_event - last, 0)
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
        if self._ahead:  # it ends: what is decided now would be written on what the store lacks
            for waiting in group:
                _settle(waiting, _closing())
            return
        self.stored.state.pass_time(self._clock())
        answers: list[tuple[_Waiting, Any]] = []
        commits: list[Commit] = []
        for waiting in group:
            try:
                decision = self._decide(waiting.command)
            except TreecastError as refusal:
                answers.append((waiting, refusal))
                continue
            answers.append((waiting, decision.answer))
            self.stored.collect(commits, decision)
        try:
            await self.stored.write(commits)
        except Exception as error:
            failure = error if isinstance(error, TreecastError) else TreecastError(Fault.STORAGE, repr(error))
            self._count(failure)
            whole = await self._reloaded()
            for waiting, _ in answers:
                _settle(waiting, failure)
            while not whole:
                await asyncio.sleep(_READ_AGAIN)
                whole = await self._reloaded()
            self.stored.wake()
            return
        for waiting, answer in answers:
            _settle(waiting, answer)

    def _decide(self, command: Command) -> Decision[Any]:
        """Decides. An internal error refuses only this command: `step` changes nothing before it has
        decided.
        """
        if isinstance(command, Expire) and command.name not in self.stored.state.overdue():
            raise TreecastError(Fault.INVALID_REQUEST, f"host {command.name} renewed meanwhile")
        try:
            return step(self.stored.state, command)
        except TreecastError:
            raise
        except Exception as error:
            _log.exception("command failed", command=type(command).__name__)
            raise TreecastError(Fault.INTERNAL) from error

    def _count(self, error: TreecastError) -> None:
        self.refused_writes += 1
        if self.refused_writes & (self.refused_writes - 1) == 0:  # the 1st, 2nd, 4th, ...
            _log.error("coordinator's store refused a write", count=self.refused_writes, error=error)

    async def _reloaded(self) -> bool:
        """Reads the store again. Returns whether that is not to be repeated: while memory differs from the
        disk, no answer is better than a wrong one.
        """
        try:
            await self.stored.reload()
        except Exception as worse:
            self._ahead = True
            if self._store.shared:
                self._end()
                return True
            _log.critical("coordinator answers nothing before its store can be read", error=worse)
            return self.stored.closed
        self._ahead = False
        return True

    def _end(self) -> None:
        """Stops answering: this coordinator does not lead on its store. Who shares the store logs why."""
        self.stored.closed = True
        self.ended.set()
        self.stored.wake()

    async def do_now(self, command: Command) -> Any:
        """Executes a command alone. Only work `between` groups may call it."""
        waiting = _Waiting(command, asyncio.get_running_loop().create_future())
        await self._do_group([waiting])
        return await waiting.done

    async def between(self, work: Callable[[], Awaitable[None]]) -> None:
        """Does work between two groups of commands."""
        self.check_open()
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

    # --- watching

    async def snapshot(self) -> Snapshot:
        """Returns the whole state as of a revision that is on disk."""
        asked: asyncio.Future[asyncio.Task[Snapshot]] = asyncio.get_running_loop().create_future()
        self._snapshots.append(asked)
        self._start_draining()
        return await asyncio.shield(await asked)

    def _take_snapshot(self) -> None:
        """Takes a snapshot for all waiting requests."""
        asked, self._snapshots = [each for each in self._snapshots if not each.done()], []
        if not asked:
            return
        for each in asked:
            if self._ahead:
                each.set_exception(_closing())
            else:
                each.set_result(self.stored.snapshot())

    async def close(self) -> None:
        """Finishes waiting commands, then closes the store. Safe to call twice."""
        self.stored.closed = True
        self.ended.set()
        self.older.end()
        self.stored.wake()
        while self._draining is not None:
            await self._draining
        if not self._released:
            self._released = True
            await self.stored.close()


def _closing() -> TreecastError:
    return TreecastError(Fault.COORDINATOR_UNAVAILABLE, "the coordinator is closing: try again later")


def _settle(waiting: _Waiting, answer: Any) -> None:
    if waiting.done.done():
        return  # the caller went away
    if isinstance(answer, TreecastError):
        waiting.done.set_exception(answer)
    else:
        waiting.done.set_result(answer)
