"""`HomeKeeper`: acquires and releases the homes of this host.

This host acquires a home when a look-up names it. It loads the items from the coordinator's store, or, after
a restart in the same epoch, continues with its own rows if the store has no later writes. It releases a home
when the coordinator names another host or a higher epoch. Then it unloads all state, refuses the waiters, and
reports the writes that it accepted alone, which are not merged.

The coordinator raises the epoch of a home without moving it when this host's directory is another one or an
older state. The rows are then set aside: the home loads the store's items, and only writes accepted alone
that the store lacks are reported. Rows that are provably ahead of the store are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.storage.tables import Change, Tables

from . import rows
from .mirror import HomeMirror
from .ports import Alone, Coordinator, HomeAt, StateWrite, StoredHome, Version
from .rows import HomeRow
from .store import not_home

_log = Log(__name__)

LOADING_SECONDS = 5.0  # longest wait of a call for a home that is loading
_ASK_AGAIN = 0.05  # s
_COMPARED = 100  # homes that are compared with the store at a time


class HomeSide(Protocol):
    """The local homes of one kind: `LoadedGroups` or `TransactionCoordinator`."""

    def known(self) -> Sequence[str]: ...

    def own(self, id: str, epoch: int, /) -> None: ...

    def items(self, id: str, /) -> Mapping[bytes, bytes]: ...

    def rows(self, id: str, items: Mapping[bytes, bytes], /) -> Sequence[Change]: ...

    def load(self, id: str, epoch: int, rows: Sequence[Change], /) -> None: ...

    def unload(self, id: str, /) -> Sequence[Change]: ...


class _Place(Struct):
    """How far a home of this host has come. `base`: as in its `HomeRow`, until it is compared."""

    version: Version
    base: int | None = None


class HomeKeeper:
    """`owned`: the homes of this host, with their epochs. `clock` returns Unix time. `patience`: seconds for
    which a restarted home waits for a coordinator that does not answer, before it is served without.
    """

    def __init__(
        self,
        tables: Tables,
        coordinator: Coordinator,
        sides: Mapping[HomeKind, HomeSide],
        counters: HomeCounters,
        clock: Callable[[], float],
        patience: float,
    ) -> None:
        self.owned: dict[HomeName, int] = {}
        self.mirror: HomeMirror  # set once, by `Homes`
        self.on_doubt: Callable[[HomeName], None] = lambda name: None  # the home must be looked up again
        self._tables = tables
        self._coordinator = coordinator
        self._sides = sides
        self._counters = counters
        self._clock = clock
        self._patience = patience
        self._stored = rows.Stored({}, "", {})  # rows of homes that are not owned, or not any more
        self._places: dict[HomeName, _Place] = {}  # of the homes of this host
        self._new_history = False  # the coordinator's store changed since the rows here were written
        self._counts: dict[HomeName, int] = {}  # of homes that the coordinator forgot
        self._removals: dict[HomeName, Sequence[Change]] = {}  # of the rows of homes that were set aside
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
        """Begins with the homes that `home` still assigns to this host. `history`: the coordinator's history
        behind `home`; empty if unknown.

        Without the coordinator they are served at once. Otherwise each is compared with the store first.

        Returns the homes to look up: those of this host, those from the time as a host alone, and those
        missing from a new history, which the coordinator may have lost.
        """
        self._home, self._host_id = home, host_id
        self._stored = rows.load(self._tables)
        known = {HomeName(kind, id) for kind, side in self._sides.items() for id in side.known()}
        self._alone = known - self._stored.rows.keys()
        mine = [name for name, row in list(self._stored.rows.items()) if self._begin(name, row, history)]
        if self._coordinator.directory_is_old:
            self.doubt()
        self.note_history(history)
        return sorted((*self._alone, *mine), key=lambda name: (name.kind, name.id))

    def _begin(self, name: HomeName, row: HomeRow, history: str) -> bool:
        """Begins with the rows of one home. Returns whether it has to be looked up and compared."""
        at = self._home(name)
        if at == HomeAt(self._host_id, row.epoch):
            if self._coordinator.answers or row.doubted:
                return True
            self._go_on(name, row, None)
        elif at is None and self._stored.history != history:
            if history:
                self._unhome(name, row.epoch)
        elif at is not None and at.epoch > row.epoch and at.host_id == self._host_id:
            return True
        elif name in self._stored.alone:
            return at is not None  # else the stored view may be older than the home, and `moved` decides
        elif at is None or at.epoch > row.epoch:
            self._leave_out(name, {})
        return False

    def doubt(self) -> None:
        """Sets all homes aside: the coordinator knows a later state of this host's directory.

        Notes that on disk, because the next start may be without the coordinator.
        """
        for name, epoch in list(self.owned.items()):
            self._set_aside(name, epoch, self.mirror.drop(name, not_home(name)))
        fresh = {name: row for name, row in self._stored.rows.items() if not row.doubted}
        self._stored.rows |= {name: replace(row, doubted=True) for name, row in fresh.items()}
        self._note([rows.home_row(name, self._stored.rows[name]) for name in fresh])

    async def close(self) -> None:
        """Awaits the removal of rows."""
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(
            *self._coming.values(), *self._going.values(), *self._notes, return_exceptions=True
        )

    def note_history(self, history: str) -> None:
        """Notes the coordinator's history behind all further look-ups.

        The store of another history may be an older one, so this host's homes are sent to it again.
        """
        if not history or history == self._stored.history:
            return
        if self._stored.history:
            self._new_history = True
            for name, epoch in self.owned.items():
                self._send(name, epoch, {})
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
            # Rows of its last time here are still being removed, and the removal must not hit those of this
            # one.
            await asyncio.shield(going)
        if self.owned.get(name, 0) >= epoch:
            return
        found = await self._find_state(name, epoch)
        row = self._stored.rows.get(name)
        if row is not None and row.epoch == epoch and (found is None or not row.is_behind(found.version)):
            await self._resume(name, row, found)
            return
        assert found is not None
        if row is not None and self._keeps(name, row, found):
            await self._raise(name, row, epoch, found.version)
            return
        if name.kind is HomeKind.TRANSACTION and found.items:
            await self._until_seen(name, epoch)
        if name in self._alone and not found.items:
            await self._adopt(name, epoch)
        else:
            await self._load(name, epoch, found)
        at = self._home(name)
        if at is not None and at.epoch > epoch:
            self.release(name, epoch, not_home(name), {})

    def _keeps(self, name: HomeName, row: HomeRow, found: StoredHome) -> bool:
        """Returns whether loaded rows of an earlier epoch are the latest state of a home.

        A store with nothing has forgotten the home, unless it is a new one, which lacks what homes wrote.
        """
        known = found.version.count > 0 or self._new_history
        return known and name not in self._removals and row.is_ahead(found.version)

    async def _find_state(self, name: HomeName, epoch: int) -> StoredHome | None:
        """Returns the items in the store. None if the coordinator stays away, and this host has rows of this
        epoch that may be used without it.
        """
        loop = asyncio.get_running_loop()
        given_up = loop.time() + self._patience
        while True:
            try:
                return await self._coordinator.get(name, epoch)
            except TreecastError as error:
                row = self._stored.rows.get(name)
                usable = row is not None and row.epoch == epoch and not row.doubted
                if error.fault is not Fault.COORDINATOR_UNAVAILABLE or not usable:
                    raise
                if loop.time() >= given_up:
                    return None
            await asyncio.sleep(_ASK_AGAIN)

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

    async def _resume(self, name: HomeName, row: HomeRow, found: StoredHome | None) -> None:
        if found is not None and row.base is not None:  # before the store gets any of these rows
            await self._tables.commit([rows.home_row(name, replace(row, base=None))])
        if self._stored.rows.get(name) is row:
            self._go_on(name, row, found)

    async def _raise(self, name: HomeName, row: HomeRow, epoch: int, stored: Version) -> None:
        """Continues in a higher epoch with rows that are ahead of the store, though their directory is old:
        what was accepted alone since the store was written is kept so."""
        version = Version(row.count, stored.takeovers).taken_over(epoch)
        risen = HomeRow(epoch, row.count)
        alone = self._stored.alone.get(name, {})
        noted = [
            one for key, a in alone.items() for one in rows.alone_rows(name, epoch, {key: a.value}, a.count)
        ]
        await self._tables.commit([rows.home_row(name, risen), *noted])
        if self._stored.rows.get(name) is row:
            _log.info("home continues with rows that the store lacks", home=name, epoch=epoch)
            self._go_on(name, risen, StoredHome({}, version))

    def _go_on(self, name: HomeName, row: HomeRow, found: StoredHome | None) -> None:
        """Continues after a restart in the same epoch, with rows that are at least as new as the store. They
        are sent again: a kill may have come between the two writes, or writes were accepted alone.

        `found` None: they are compared with the store once the coordinator answers, before any is sent.
        """
        alone = self._stored.alone.pop(name, {})
        self._stored.rows.pop(name, None)
        base = None if found is not None else row.count if row.base is None else row.base
        takeovers = () if found is None else found.version.takeovers
        self._become(name, row.epoch, _Place(Version(row.count, takeovers), base))
        self._send(name, row.epoch, alone)

    def _send(self, name: HomeName, epoch: int, alone: Mapping[bytes, Alone]) -> None:
        """Sends all items of a home to the store, with those that were accepted alone."""
        values = {key: item.value for key, item in alone.items()}
        write = StateWrite(name, epoch, {**values, **self._side(name).items(name.id)})
        counts = {key: item.count for key, item in alone.items()}
        self.mirror.remember(write, self._places[name].version.count, counts)

    async def _adopt(self, name: HomeName, epoch: int) -> None:
        """Moves a home from the time as a host alone into the cluster, or one that the coordinator forgot."""
        row = HomeRow(epoch, self._counts.pop(name, 0))
        await self._tables.commit([*self._forget_stored(name), rows.home_row(name, row)])
        self._alone.discard(name)
        self._become(name, epoch, _Place(Version(row.count).taken_over(epoch)))
        self._send(name, epoch, {})

    async def _load(self, name: HomeName, epoch: int, found: StoredHome) -> None:
        """Loads the items that the previous home wrote, or this host in an earlier epoch or a later state."""
        side, before = self._side(name), self._stored.rows.get(name)
        made = side.rows(name.id, found.items)
        version = found.version.taken_over(epoch)
        if before is not None and before.epoch == epoch:
            version = found.version
        gone = self._report(name, 0, side.items(name.id)) if name in self._alone else []
        if before is not None:
            missing = _missing(before, self._stored.alone.get(name, {}), found)
            gone += self._report(name, before.epoch, missing)
        gone += self._forget_stored(name)
        gone += [*self._removals.pop(name, ()), *side.unload(name.id)]
        await self._tables.commit([*gone, *made, rows.home_row(name, HomeRow(epoch, version.count))])
        side.load(name.id, epoch, made)
        self._places[name] = _Place(version)
        self.owned[name] = epoch
        if before is not None:
            self._counters.reloaded += 1
            _log.info("home loaded from the coordinator's store", home=name, epoch=epoch, before=before.epoch)
        elif found.items:
            self._counters.taken_over += 1
            _log.info("home taken over", home=name, epoch=epoch, items=len(found.items))

    def _become(self, name: HomeName, epoch: int, place: _Place) -> None:
        self._places[name] = place
        self.owned[name] = epoch
        self._side(name).own(name.id, epoch)

    # --- counting writes, and comparing with the store

    def next_row(self, name: HomeName) -> HomeRow:
        """Counts a write of a home of this host, and returns the home's row with it."""
        place = self._places[name]
        place.version = replace(place.version, count=place.version.count + 1)
        return HomeRow(self.owned[name], place.version.count, place.base)

    def version(self, name: HomeName, count: int) -> Version:
        """Returns the version of a home's items after its write `count`."""
        place = self._places.get(name)
        return Version(count, () if place is None else place.version.takeovers)

    async def compare(self, names: Collection[HomeName]) -> None:
        """Compares rows with the store where that was not possible at the start. Sets homes aside whose rows
        are older. Raises COORDINATOR_UNAVAILABLE; homes that were compared before count as compared.
        """
        waiting = [name for name in names if name in self._places and self._places[name].base is not None]
        for start in range(0, len(waiting), _COMPARED):
            await asyncio.gather(*map(self._compare, waiting[start : start + _COMPARED]))

    async def _compare(self, name: HomeName) -> None:
        epoch = self.owned[name]
        try:
            found = await self._coordinator.get(name, epoch)
        except TreecastError as error:
            if error.fault is not Fault.NOT_COORDINATOR:
                raise
            return  # the store will refuse the writes as well
        place = self._places.get(name)
        if self.owned.get(name) != epoch or place is None:
            return
        if HomeRow(epoch, place.version.count, place.base).is_behind(found.version):
            self._set_aside(name, epoch, self.mirror.drop(name, not_home(name)))
            self.on_doubt(name)
            return
        place.version = replace(place.version, takeovers=found.version.takeovers)
        base, place.base = place.base, None
        try:
            await self._tables.commit([rows.home_row(name, HomeRow(epoch, place.version.count))])
        except TreecastError:
            place.base = base
            raise

    def idle(self) -> set[HomeName]:
        """Returns the empty homes of this host, which were looked up but never used."""
        known = {kind: set(side.known()) for kind, side in self._sides.items()}
        return {name for name in self.owned if name.id not in known[name.kind]}

    # --- releasing

    def moved(self, name: HomeName, at: HomeAt | None, *, doubtful: bool) -> None:
        """Takes the coordinator's word about a home. `doubtful`: the coordinator may have lost its state."""
        if name in self._seen:
            self._seen[name].set()
        row = self._stored.rows.get(name)
        epoch = self.owned.get(name) or (None if row is None else row.epoch)
        if epoch is None or (at is not None and at.epoch < epoch):
            return
        if at == HomeAt(self._host_id, epoch):
            if name not in self.owned:
                self.on_doubt(name)
        elif at is None and doubtful:
            self._unhome(name, epoch)
        elif at is None and name in self.owned:
            self.forgotten(name, epoch)
        elif name in self.owned:
            # a store that came back old has given the home away, and may lack what this host wrote
            held = self._side(name).items(name.id) if doubtful else {}
            self.release(name, epoch, not_home(name), {key: Alone(value) for key, value in held.items()})
        elif at is None:
            self._leave_out(name, _values(self._stored.alone.get(name, {})))
        elif at.host_id == self._host_id or name in self._stored.alone:
            self.on_doubt(name)
        else:
            self._leave_out(name, {})

    def release(
        self, name: HomeName, epoch: int, refusal: TreecastError, alone: Mapping[bytes, Alone]
    ) -> None:
        """Gives up the home in `epoch`. `alone`: the writes that the store refused.

        Where this host may still be the home, or has accepted writes alone, the home is looked up, and these
        writes are compared with the store, before they are reported.
        """
        if self.owned.get(name) != epoch:
            return
        left = {**alone, **self.mirror.drop(name, refusal)}
        at = self._home(name)
        if left or at is None or at.epoch <= epoch or at.host_id == self._host_id:
            self._set_aside(name, epoch, left)
            self.on_doubt(name)
            return
        del self.owned[name], self._places[name]
        self._counters.given_up += 1
        _log.info("home given up", home=name, epoch=epoch)
        self._go(name, self._side(name).unload(name.id))

    def _set_aside(self, name: HomeName, epoch: int, alone: Mapping[bytes, Alone]) -> None:
        """Stops serving a home. Its rows stay until it is looked up, and loaded here or found elsewhere.

        `alone`: what was accepted without the store.
        """
        place = self._places.pop(name)
        del self.owned[name]
        self._removals[name] = self._side(name).unload(name.id)
        self._stored.rows[name] = row = HomeRow(epoch, place.version.count, place.base, doubted=True)
        if alone:
            self._stored.alone[name] = dict(alone)
        _log.info("home set aside", home=name, epoch=epoch)
        self._go(name, (), row)

    def forgotten(self, name: HomeName, epoch: int) -> None:
        """Drops an empty home that the coordinator has forgotten."""
        if self.owned.get(name) == epoch:
            del self.owned[name], self._places[name]
            alone = self.mirror.drop(name, not_home(name), forgotten=True)
            self._go(name, [*self._side(name).unload(name.id), *self._report(name, epoch, _values(alone))])

    async def refuse(self, name: HomeName) -> None:
        """Leaves out this host's own `name`, from its time alone or set aside: its home is elsewhere.

        Reports what was accepted alone and is not in the store. Raises COORDINATOR_UNAVAILABLE if that cannot
        be found out now.
        """
        row, alone = self._stored.rows.get(name), self._stored.alone.get(name, {})
        if row is None:
            self._refuse_alone(name)
            return
        try:
            found = await self._coordinator.get(name, 0) if alone else StoredHome({})
        except TreecastError as error:
            if error.fault is Fault.COORDINATOR_UNAVAILABLE:
                raise
            found = StoredHome({})
        if self._stored.rows.get(name) is row:
            self._counters.given_up += name in self._removals
            self._leave_out(name, _missing(row, alone, found))

    def _refuse_alone(self, name: HomeName) -> None:
        if name in self._alone:
            items = self._side(name).items(name.id)
            gone = [*self._forget_stored(name), *self._side(name).unload(name.id)]
            self._go(name, [*gone, *self._report(name, 0, items)])

    def _unhome(self, name: HomeName, epoch: int) -> None:
        """Handles a home that the coordinator may have lost: it must be looked up again, and the state on
        this host counts."""
        _log.warning("coordinator has forgotten a home of this host", home=name)
        self.owned.pop(name, None)
        place, row = self._places.pop(name, None), self._stored.rows.pop(name, None)
        self._counts[name] = place.version.count if place is not None else row.count if row is not None else 0
        self.mirror.drop(name, not_home(name))
        self._alone.add(name)

    def _leave_out(self, name: HomeName, missing: rows.Items) -> None:
        """Removes rows of a home that has moved. Reports the items that are missing in the store."""
        epoch = self._stored.rows[name].epoch
        gone = [*self._forget_stored(name), *self._removals.pop(name, ()), *self._side(name).unload(name.id)]
        self._go(name, [*gone, *self._report(name, epoch, missing)])

    def _forget_stored(self, name: HomeName) -> list[Change]:
        """Returns the removal of rows about the state at the start."""
        self._alone.discard(name)
        self._stored.rows.pop(name, None)
        return rows.no_alone_rows(name, self._stored.alone.pop(name, {}))

    def _report(self, name: HomeName, epoch: int, items: rows.Items) -> list[Change]:
        """Reports writes that this host accepted alone and that the cluster does not have."""
        if not items:
            return []
        self._counters.not_merged += len(items)
        _log.error(
            "items accepted alone were not merged: the home moved, or rows were old",
            home=name,
            items=len(items),
            epoch=epoch,
            table=rows.NOT_MERGED,
        )
        report = rows.NotMerged(name.kind.value, name.id, epoch, self._clock(), dict(items))
        return [rows.report_row(report), *rows.no_alone_rows(name, items)]

    def _go(self, name: HomeName, changes: Sequence[Change], row: HomeRow | None = None) -> None:
        """Removes rows on disk; `row`: what is left. A home that returns in the meantime waits for it."""
        before = self._going.get(name)
        task = asyncio.create_task(self._remove(before, [*changes, rows.home_row(name, row)]))
        self._going[name] = task
        task.add_done_callback(lambda done: self._gone(name, done))

    async def _remove(self, before: asyncio.Task[None] | None, changes: Sequence[Change]) -> None:
        if before is not None:
            # In order: what an earlier step left must not be removed after a later one wrote it.
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


def _missing(row: HomeRow, alone: Mapping[bytes, Alone], found: StoredHome) -> dict[bytes, bytes | None]:
    """Returns what was accepted alone and is not in the store."""
    return {key: item.value for key, item in alone.items() if not row.is_stored(item, key, found)}


def _values(items: Mapping[bytes, Alone]) -> dict[bytes, bytes | None]:
    return {key: item.value for key, item in items.items()}
