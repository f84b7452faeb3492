"""`HomeKeeper`: acquires and releases the homes of this host.

This host acquires a home when a look-up names it. It loads the items from the coordinator's store, or, after
a restart in the same epoch, continues with its own rows. It releases a home when the coordinator names
another host or a higher epoch. Then it unloads all state, refuses the waiters, and reports the writes that it
accepted alone, which are not merged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.tables import Change, Tables

from . import rows
from .mirror import HomeMirror
from .ports import Coordinator, HomeAt, StateWrite
from .store import not_home

_log = Log(__name__)

LOADING_SECONDS = 5.0  # longest wait of a call for a home that is loading


class HomeSide(Protocol):
    """The local coordinator of one kind: `GroupCoordinator` or `TransactionCoordinator`."""

    def known(self) -> Sequence[str]: ...

    def own(self, id: str, epoch: int, /) -> None: ...

    def items(self, id: str, /) -> Mapping[bytes, bytes]: ...

    def rows(self, id: str, items: Mapping[bytes, bytes], /) -> Sequence[Change]: ...

    def load(self, id: str, epoch: int, rows: Sequence[Change], /) -> None: ...

    def unload(self, id: str, /) -> Sequence[Change]: ...


class HomeKeeper:
    """`owned`: the homes of this host, with their epochs. `clock` returns Unix time."""

    def __init__(
        self,
        tables: Tables,
        coordinator: Coordinator,
        sides: Mapping[HomeKind, HomeSide],
        counters: HomeCounters,
        clock: Callable[[], float],
    ) -> None:
        self.owned: dict[HomeName, int] = {}
        self.mirror: HomeMirror  # set once, by `Homes`
        self._tables = tables
        self._coordinator = coordinator
        self._sides = sides
        self._counters = counters
        self._clock = clock
        self._stored = rows.Stored({}, "", {})  # rows of homes that are not owned yet, after a restart
        self._alone: set[HomeName] = set()  # homes from the time as a host alone
        self._coming: dict[HomeName, asyncio.Task[None]] = {}
        self._going: dict[HomeName, asyncio.Task[None]] = {}
        self._seen: dict[HomeName, asyncio.Event] = {}  # set when the watch names a home
        self._notes: set[asyncio.Task[None]] = set()
        self._home: Callable[[HomeName], HomeAt | None]
        self._host_id = 0

    # --- life

    def start(
        self, home: Callable[[HomeName], HomeAt | None], host_id: int, history: str
    ) -> Sequence[HomeName]:
        """Continues with the homes that `home` still assigns to this host. `history`: the coordinator's
        history behind `home`; empty if unknown.

        Returns the homes to look up: those from the time as a host alone, and those missing from a new
        history, which the coordinator may have lost.
        """
        self._home, self._host_id = home, host_id
        self._stored = rows.load(self._tables)
        known = {HomeName(kind, id) for kind, side in self._sides.items() for id in side.known()}
        self._alone = known - self._stored.epochs.keys()
        for name, epoch in list(self._stored.epochs.items()):
            at = home(name)
            if at == HomeAt(host_id, epoch):
                self._go_on(name, epoch)
            elif at is None and self._stored.history != history:
                if history:
                    self._unhome(name, epoch)
            elif at is None or at.epoch > epoch:
                self._leave_out(name)
        self.note_history(history)
        return sorted(self._alone, key=lambda name: (name.kind, name.id))

    async def close(self) -> None:
        """Awaits the removal of rows."""
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(
            *self._coming.values(), *self._going.values(), *self._notes, return_exceptions=True
        )

    def note_history(self, history: str) -> None:
        """Notes the coordinator's history behind all further look-ups."""
        if history and history != self._stored.history:
            self._stored.history = history
            self._note([rows.history_row(history)])

    # --- acquiring

    async def acquire(self, name: HomeName, epoch: int) -> None:
        """Returns once this host serves `name` in `epoch`. A look-up must have named this host.

        Raises NOT_COORDINATOR if the home has moved, COORDINATOR_LOADING if loading takes too long.
        """
        if self.owned.get(name) == epoch:
            return
        task = self._coming.get(name)
        if task is None:
            task = asyncio.create_task(self._come(name, epoch), name=f"home of {name}")
            self._coming[name] = task
            task.add_done_callback(lambda _: self._coming.pop(name, None))
        await asyncio.wait([task], timeout=LOADING_SECONDS)
        if not task.done():
            raise TreecastError(Fault.COORDINATOR_LOADING, f"{name} is still loading")
        if not task.cancelled():
            task.result()
        if self.owned.get(name) != epoch:
            raise not_home(name)

    async def _come(self, name: HomeName, epoch: int) -> None:
        going = self._going.get(name)
        if going is not None:
            await asyncio.shield(going)
        if self.owned.get(name, 0) >= epoch:
            return
        if self._stored.epochs.get(name) == epoch:
            self._go_on(name, epoch)
            return
        items = await self._coordinator.get(name, epoch)
        if name.kind is HomeKind.TRANSACTION and items:
            await self._until_seen(name, epoch)
        if name in self._alone and not items:
            await self._adopt(name, epoch)
        else:
            await self._load(name, epoch, items)
        at = self._home(name)
        if at is not None and at.epoch > epoch:
            self.release(name, epoch, not_home(name), {})

    async def _until_seen(self, name: HomeName, epoch: int) -> None:
        """Waits until the watch has caught up with the time at which this host became the home. Otherwise, a
        partition named by a transaction could seem deleted."""
        seen = self._seen.setdefault(name, asyncio.Event())
        try:
            while (at := self._home(name)) is None or at.epoch < epoch:
                seen.clear()
                await asyncio.wait_for(seen.wait(), LOADING_SECONDS)
        except TimeoutError:
            raise TreecastError(
                Fault.COORDINATOR_LOADING, f"this host has not heard of {name} from the coordinator yet"
            ) from None
        finally:
            self._seen.pop(name, None)

    def _go_on(self, name: HomeName, epoch: int) -> None:
        """Continues after a restart in the same epoch. The rows are at least as new as the store, and are
        sent again: a kill may have come between the two writes, or writes were accepted alone.
        """
        alone = self._stored.alone.pop(name, {})
        self._stored.epochs.pop(name, None)
        self._become(name, epoch)
        self.mirror.remember(StateWrite(name, epoch, {**alone, **self._side(name).items(name.id)}), alone)

    async def _adopt(self, name: HomeName, epoch: int) -> None:
        """Moves a home from the time as a host alone into the cluster."""
        await self._tables.commit([rows.epoch_row(name, epoch)])
        self._alone.discard(name)
        self._become(name, epoch)
        self.mirror.remember(StateWrite(name, epoch, self._side(name).items(name.id)))

    async def _load(self, name: HomeName, epoch: int, items: Mapping[bytes, bytes]) -> None:
        """Loads `items`, which the previous home wrote, or this host in an earlier epoch."""
        side = self._side(name)
        made = side.rows(name.id, items)
        gone = self._report(name, 0, side.items(name.id)) if name in self._alone else []
        gone += [*self._forget_stored(name), *side.unload(name.id)]
        await self._tables.commit([*gone, *made, rows.epoch_row(name, epoch)])
        side.load(name.id, epoch, made)
        self.owned[name] = epoch
        if items:
            self._counters.taken_over += 1
            _log.info("home taken over", home=name, epoch=epoch, items=len(items))

    def _become(self, name: HomeName, epoch: int) -> None:
        self.owned[name] = epoch
        self._side(name).own(name.id, epoch)

    def idle(self) -> set[HomeName]:
        """Returns the empty homes of this host, which were looked up but never used."""
        known = {kind: set(side.known()) for kind, side in self._sides.items()}
        return {name for name in self.owned if name.id not in known[name.kind]}

    # --- releasing

    def moved(self, name: HomeName, at: HomeAt | None, *, doubtful: bool) -> None:
        """Takes the coordinator's word about a home. `doubtful`: the coordinator may have lost its state."""
        if name in self._seen:
            self._seen[name].set()
        epoch = self.owned.get(name) or self._stored.epochs.get(name)
        if epoch is None or at == HomeAt(self._host_id, epoch) or (at is not None and at.epoch < epoch):
            return
        if at is None and doubtful:
            self._unhome(name, epoch)
        elif at is None and name in self.owned:
            self.forgotten(name, epoch)
        elif name in self.owned:
            self.release(name, epoch, not_home(name), {})
        else:
            self._leave_out(name)

    def release(
        self, name: HomeName, epoch: int, refusal: TreecastError, alone: Mapping[bytes, bytes | None]
    ) -> None:
        """Gives up the home in `epoch`. `alone`: the writes that the store refused."""
        if self.owned.get(name) != epoch:
            return
        del self.owned[name]
        self._counters.given_up += 1
        left_out = {**alone, **self.mirror.drop(name, refusal)}
        removed = self._side(name).unload(name.id)
        _log.info("home given up", home=name, epoch=epoch)
        self._go(name, [*removed, *self._report(name, epoch, left_out)])

    def forgotten(self, name: HomeName, epoch: int) -> None:
        """Drops an empty home that the coordinator has forgotten."""
        if self.owned.get(name) == epoch:
            del self.owned[name]
            alone = self.mirror.drop(name, not_home(name), forgotten=True)
            self._go(name, [*self._side(name).unload(name.id), *self._report(name, epoch, alone)])

    def refuse(self, name: HomeName) -> None:
        """Leaves out this host's own `name` from its time alone: the cluster has another one elsewhere."""
        if name in self._alone:
            items = self._side(name).items(name.id)
            gone = [*self._forget_stored(name), *self._side(name).unload(name.id)]
            self._go(name, [*gone, *self._report(name, 0, items)])

    def _unhome(self, name: HomeName, epoch: int) -> None:
        """Handles a home that the coordinator may have lost: it must be looked up again, and the state on
        this host counts."""
        _log.warning("coordinator has forgotten a home of this host", home=name)
        self.owned.pop(name, None)
        self._stored.epochs.pop(name, None)
        self.mirror.drop(name, not_home(name))
        self._alone.add(name)

    def _leave_out(self, name: HomeName) -> None:
        """Removes rows that an earlier run of this host left of a home that has moved."""
        epoch, alone = self._stored.epochs[name], self._stored.alone.get(name, {})
        gone = [*self._forget_stored(name), *self._side(name).unload(name.id)]
        self._go(name, [*gone, *self._report(name, epoch, alone)])

    def _forget_stored(self, name: HomeName) -> list[Change]:
        """Returns the removal of rows about the state at the start."""
        self._alone.discard(name)
        self._stored.epochs.pop(name, None)
        return rows.no_alone_rows(name, self._stored.alone.pop(name, {}))

    def _report(self, name: HomeName, epoch: int, items: rows.Items) -> list[Change]:
        """Reports writes that this host accepted alone and that the cluster does not have."""
        if not items:
            return []
        self._counters.not_merged += len(items)
        _log.error(
            "items accepted alone were not merged, because another host had become the home",
            home=name,
            items=len(items),
            epoch=epoch,
            table=rows.NOT_MERGED,
        )
        report = rows.NotMerged(name.kind.value, name.id, epoch, self._clock(), dict(items))
        return [rows.report_row(report), *rows.no_alone_rows(name, items)]

    def _go(self, name: HomeName, changes: Sequence[Change]) -> None:
        """Removes rows on disk. A home that returns in the meantime waits for it."""
        before = self._going.get(name)
        task = asyncio.create_task(self._remove(before, [*changes, rows.epoch_row(name, None)]))
        self._going[name] = task
        task.add_done_callback(lambda done: self._gone(name, done))

    async def _remove(self, before: asyncio.Task[None] | None, changes: Sequence[Change]) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await self._tables.commit(changes)
        except TreecastError as error:
            _log.error("state of homes cannot be written", error=error)

    def _gone(self, name: HomeName, done: asyncio.Task[None]) -> None:
        if self._going.get(name) is done:
            del self._going[name]

    def sent(self, name: HomeName, keys: Iterable[bytes]) -> None:
        """Notes that writes accepted alone are in the coordinator's store."""
        self._note(rows.no_alone_rows(name, keys))

    def _note(self, changes: Sequence[Change]) -> None:
        task = asyncio.create_task(self._remove(None, changes))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    def _side(self, name: HomeName) -> HomeSide:
        return self._sides[name.kind]
