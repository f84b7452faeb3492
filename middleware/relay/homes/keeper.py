"""`HomeKeeper`: which homes this host is, and how a home comes and goes.

A home comes by a look-up whose answer is this host: its items are loaded from the coordinator's store, or,
after a restart in the same epoch, it goes on with its own rows. It goes when the coordinator says that
another host has it, or that it has a higher epoch: then all of it is unloaded, who waits is told, and what
was accepted alone meanwhile is reported and left out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.storage.tables import Change, Tables

from . import rows
from .mirror import HomeMirror
from .ports import Coordinator, HomeAt, StateWrite
from .store import not_home

_log = logging.getLogger(__name__)

LOADING_SECONDS = 5.0  # how long a call waits for a home that is being loaded


class HomeSide(Protocol):
    """The local coordinator of one kind: `GroupCoordinator` or `TransactionCoordinator`."""

    def known(self) -> Sequence[str]: ...

    def own(self, id: str, epoch: int, /) -> None: ...

    def items(self, id: str, /) -> Mapping[bytes, bytes]: ...

    def rows(self, id: str, items: Mapping[bytes, bytes], /) -> Sequence[Change]: ...

    def load(self, id: str, epoch: int, rows: Sequence[Change], /) -> None: ...

    def unload(self, id: str, /) -> Sequence[Change]: ...


class HomeKeeper:
    """`owned`: the homes that this host is, with their epochs. `clock` gives Unix time."""

    def __init__(
        self,
        tables: Tables,
        coordinator: Coordinator,
        sides: Mapping[HomeKind, HomeSide],
        counters: HomeCounters,
        clock: Callable[[], float],
    ) -> None:
        self.owned: dict[HomeName, int] = {}
        self.mirror: HomeMirror  # set once, by who puts the two together
        self._tables = tables
        self._coordinator = coordinator
        self._sides = sides
        self._counters = counters
        self._clock = clock
        self._stored = rows.Stored({}, "", {})  # of homes that are not owned yet, after a restart
        self._alone: set[HomeName] = set()  # homes that were here when the host was alone
        self._coming: dict[HomeName, asyncio.Task[None]] = {}
        self._going: dict[HomeName, asyncio.Task[None]] = {}
        self._seen: dict[HomeName, asyncio.Event] = {}  # set when the coordinator tells of a home
        self._notes: set[asyncio.Task[None]] = set()
        self._home: Callable[[HomeName], HomeAt | None]
        self._host_id = 0

    # --- life

    def start(
        self, home: Callable[[HomeName], HomeAt | None], host_id: int, history: str
    ) -> Sequence[HomeName]:
        """Goes on with the homes that are still this host's, as far as `home` knows. `history`: the
        coordinator's, that `home` is of; empty where nothing is known.

        Answers those that have to be found: what was this host's own when it was alone, and what is
        missing in another history than before, where the coordinator may have lost it.
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
        """Waits for rows that are being removed."""
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(
            *self._coming.values(), *self._going.values(), *self._notes, return_exceptions=True
        )

    def note_history(self, history: str) -> None:
        """What is known of homes is of this history of the coordinator's from now on."""
        if history and history != self._stored.history:
            self._stored.history = history
            self._note([rows.history_row(history)])

    # --- a home comes

    async def acquire(self, name: HomeName, epoch: int) -> None:
        """Returns when this host serves `name` in `epoch`, as it was found to be its home.

        NOT_COORDINATOR where it has moved on, COORDINATOR_LOADING where it takes too long.
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
            raise TreecastError(Fault.COORDINATOR_LOADING, f"{name} is still being loaded")
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
        """Until this host has heard from the coordinator what was before it became the home: a partition
        that a transaction names could else be taken for one that was deleted."""
        seen = self._seen.setdefault(name, asyncio.Event())
        try:
            while (at := self._home(name)) is None or at.epoch < epoch:
                seen.clear()
                await asyncio.wait_for(seen.wait(), LOADING_SECONDS)
        except TimeoutError:
            raise TreecastError(
                Fault.COORDINATOR_LOADING, f"the coordinator has not told this host of {name} yet"
            ) from None
        finally:
            self._seen.pop(name, None)

    def _go_on(self, name: HomeName, epoch: int) -> None:
        """After a restart in the same epoch: the rows are at least what the store has; it gets them anew.

        A kill may have come between the two, and what was accepted alone is not there yet.
        """
        alone = self._stored.alone.pop(name, {})
        self._stored.epochs.pop(name, None)
        self._become(name, epoch)
        self.mirror.remember(StateWrite(name, epoch, {**alone, **self._side(name).items(name.id)}), alone)

    async def _adopt(self, name: HomeName, epoch: int) -> None:
        """What the host had when it was alone becomes the cluster's."""
        await self._tables.commit([rows.epoch_row(name, epoch)])
        self._alone.discard(name)
        self._become(name, epoch)
        self.mirror.remember(StateWrite(name, epoch, self._side(name).items(name.id)))

    async def _load(self, name: HomeName, epoch: int, items: Mapping[bytes, bytes]) -> None:
        """The home before this one, or this host in an earlier epoch, wrote `items`."""
        side = self._side(name)
        made = side.rows(name.id, items)
        gone = self._report(name, 0, side.items(name.id)) if name in self._alone else []
        gone += [*self._forget_stored(name), *side.unload(name.id)]
        await self._tables.commit([*gone, *made, rows.epoch_row(name, epoch)])
        side.load(name.id, epoch, made)
        self.owned[name] = epoch
        if items:
            self._counters.taken_over += 1
            _log.info("%s is at home here from epoch %d on, %d items were loaded", name, epoch, len(items))

    def _become(self, name: HomeName, epoch: int) -> None:
        self.owned[name] = epoch
        self._side(name).own(name.id, epoch)

    def idle(self) -> set[HomeName]:
        """The homes of this host of which there is nothing: somebody asked for them, and left it at that."""
        known = {kind: set(side.known()) for kind, side in self._sides.items()}
        return {name for name in self.owned if name.id not in known[name.kind]}

    # --- a home goes

    def moved(self, name: HomeName, at: HomeAt | None, *, doubtful: bool) -> None:
        """The coordinator tells of a home. `doubtful`: it may have lost what it knew."""
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
        """This host is not the home in `epoch` any more. `alone`: what the store refused of it."""
        if self.owned.get(name) != epoch:
            return
        del self.owned[name]
        self._counters.given_up += 1
        left_out = {**alone, **self.mirror.drop(name, refusal)}
        removed = self._side(name).unload(name.id)
        _log.info("%s is at home elsewhere now, it was here in epoch %d", name, epoch)
        self._go(name, [*removed, *self._report(name, epoch, left_out)])

    def forgotten(self, name: HomeName, epoch: int) -> None:
        """Nothing of the home is left, and the coordinator does not know it any more."""
        if self.owned.get(name) == epoch:
            del self.owned[name]
            alone = self.mirror.drop(name, not_home(name), forgotten=True)
            self._go(name, [*self._side(name).unload(name.id), *self._report(name, epoch, alone)])

    def refuse(self, name: HomeName) -> None:
        """What the host had of `name` when it was alone: the cluster has another of that name elsewhere."""
        if name in self._alone:
            items = self._side(name).items(name.id)
            gone = [*self._forget_stored(name), *self._side(name).unload(name.id)]
            self._go(name, [*gone, *self._report(name, 0, items)])

    def _unhome(self, name: HomeName, epoch: int) -> None:
        """The coordinator does not know the home any more, and may have lost it: it has to be found again,
        and what is here is what there is."""
        _log.warning("the coordinator has forgotten %s, which was at home here", name)
        self.owned.pop(name, None)
        self._stored.epochs.pop(name, None)
        self.mirror.drop(name, not_home(name))
        self._alone.add(name)

    def _leave_out(self, name: HomeName) -> None:
        """What another run of this host left of a home that is elsewhere by now."""
        epoch, alone = self._stored.epochs[name], self._stored.alone.get(name, {})
        gone = [*self._forget_stored(name), *self._side(name).unload(name.id)]
        self._go(name, [*gone, *self._report(name, epoch, alone)])

    def _forget_stored(self, name: HomeName) -> list[Change]:
        """Rows that say what was known at the start."""
        self._alone.discard(name)
        self._stored.epochs.pop(name, None)
        return rows.no_alone_rows(name, self._stored.alone.pop(name, {}))

    def _report(self, name: HomeName, epoch: int, items: rows.Items) -> list[Change]:
        """What this host accepted without the cluster, and what the cluster goes on without."""
        if not items:
            return []
        self._counters.not_merged += len(items)
        _log.error(
            "%s: %d items that this host accepted alone in epoch %d are not the cluster's: another host had"
            " become the home; they are kept in the table %s",
            name,
            len(items),
            epoch,
            rows.NOT_MERGED,
        )
        report = rows.NotMerged(name.kind.value, name.id, epoch, self._clock(), dict(items))
        return [rows.report_row(report), *rows.no_alone_rows(name, items)]

    def _go(self, name: HomeName, changes: Sequence[Change]) -> None:
        """Removes rows on disk; a home that comes back meanwhile waits for that."""
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
            _log.error("what is known of homes cannot be written: %s", error)

    def _gone(self, name: HomeName, done: asyncio.Task[None]) -> None:
        if self._going.get(name) is done:
            del self._going[name]

    def sent(self, name: HomeName, keys: Iterable[bytes]) -> None:
        """What was accepted alone is in the coordinator's store now."""
        self._note(rows.no_alone_rows(name, keys))

    def _note(self, changes: Sequence[Change]) -> None:
        task = asyncio.create_task(self._remove(None, changes))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    def _side(self, name: HomeName) -> HomeSide:
        return self._sides[name.kind]
