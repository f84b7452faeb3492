"""`Homes`: composes the homes of groups and transactional ids on a joined host."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress
from typing import TypeVar, cast

from treecast.middleware.api.entries import HomeEntry, HomeKind, Presence, home_key
from treecast.middleware.api.lasting import BackOff, lasting
from treecast.middleware.broker.cluster import GroupsAtOnce, Kind
from treecast.middleware.broker.homes import HomeName, HomeWrite
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.broker.transactions.parts import home_name
from treecast.middleware.broker.values import GroupListing, TransactionListing
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.logs import Log
from treecast.middleware.relay.view import ClusterView

from .calls import (
    GROUPS,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    TRANSACTIONS,
    HomeService,
    ListGroups,
    ListTransactions,
)
from .finder import HomeFinder
from .guards import Guards
from .keeper import HomeKeeper, HomeSide
from .mirror import HomeMirror
from .outside import OwnersElsewhere
from .ports import DEFAULTS, Coordinator, HomeAt, HomeSettings
from .router import HomeRouter
from .store import JoinedStore

_log = Log(__name__)

LIST_SECONDS = 2.0
CLOSE_SECONDS = 2.0
_ADOPT_AGAIN = 1.0  # s
_AT_A_TIME = 50  # homes that are looked up and loaded together
_UNKNOWN = "Unknown"  # Kafka's name for the state of an unreachable group


T = TypeVar("T")


class Homes:
    """Implements `relay.cluster.AllHomes` and `Life`.

    Create it before the local coordinators start. `is_up` tells whether a host is connected. `methods` gets
    the handlers for calls of other hosts.
    """

    def __init__(
        self,
        parts: LocalParts,
        view: ClusterView,
        coordinator: Coordinator,
        methods: Methods,
        is_up: Callable[[int], bool],
        settings: HomeSettings = DEFAULTS,
    ) -> None:
        counters, host_id = parts.counters.homes, parts.host.host_id
        sides: dict[HomeKind, HomeSide] = {
            HomeKind.GROUP: parts.groups.loaded,
            HomeKind.TRANSACTION: parts.transactions,
        }
        self._host_id = host_id
        self._view = view
        self._parts = parts
        self._methods = methods
        self._counters = counters
        patience = settings.mirror.patience
        self.keeper = HomeKeeper(parts.tables, coordinator, sides, counters, parts.clock, patience)
        self.mirror = HomeMirror(
            coordinator,
            counters,
            self.keeper,
            lost=self.keeper.release,
            sent=self.keeper.sent,
            settings=settings.mirror,
        )
        self.keeper.mirror = self.mirror
        self.keeper.on_doubt = lambda name: self._adopt([name])
        coordinator.when_old(self._doubt)
        self.outside = OwnersElsewhere(view)
        self.finder = HomeFinder(
            coordinator,
            self._home,
            self._present,
            counters,
            _steady,
            settings.ask_again,
            self.outside.home,
        )
        self.router = HomeRouter(
            host_id, self.finder, self.keeper, methods, is_up, counters, settings.connect
        )
        self.groups = GROUPS.routed(self.router, self.finder, parts.groups)
        self.transactions = TRANSACTIONS.routed(self.router, self.finder, parts.transactions)
        self._routed: dict[HomeKind, object] = {
            HomeKind.GROUP: self.groups,
            HomeKind.TRANSACTION: self.transactions,
        }
        self.guards = guards = Guards(self.transactions, self.keeper, parts.transactions)
        self._store = store = JoinedStore(
            parts.tables, self.mirror, self.keeper.owned, self.keeper.next_row, self._forgotten
        )
        parts.groups.use(store, guards)
        parts.transactions.use(store)
        parts.producer_ids.use(coordinator)
        parts.partitions.guard = guards
        service = HomeService(host_id, self.keeper, self.finder, methods, counters)
        service.serve(GROUPS, parts.groups)
        service.serve(TRANSACTIONS, parts.transactions)
        methods.register(LIST_GROUPS, self._list_own)
        methods.register(LIST_TRANSACTIONS, self._list_own_transactions)
        self._adopting: asyncio.Task[None] | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._tidy_every = settings.tidy
        self._idle: set[HomeName] = set()
        self._deleted: dict[str, None] = {}  # topics, until this host's homes are loaded

    # --- life

    async def start(self) -> None:
        """Starts homes. Call after the view and the local coordinators have loaded, before serving."""
        self._view.homes.subscribe(self._heard)
        self._view.on_reached(lambda position: self.keeper.note_history(position.history))
        own = self.keeper.start(self._home, self._host_id, self._view.position.history)
        self._adopt([*own, *self._bare()])
        work = lasting("removal of empty homes", self._tidy_up, BackOff(random.Random()))
        self._tidying = asyncio.create_task(work, name="homes of nothing")

    def _bare(self) -> list[HomeName]:
        """Returns homes that the view assigns to this host but that have no rows here: the disk was lost.
        Their state is in the coordinator's store."""
        names = [_name_of(entry) for entry in self._view.homes if entry.host_id == self._host_id]
        return [name for name in names if name is not None and name not in self.keeper.owned]

    async def close(self) -> None:
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
        if self._adopting is not None:
            self._adopting.cancel()
            await asyncio.gather(self._adopting, return_exceptions=True)
        await self.mirror.close(CLOSE_SECONDS)
        await self.keeper.close()

    # --- look-ups

    def home(self, kind: Kind[T], id: str) -> T:
        return cast(T, self._routed[kind.kind])

    def groups_at_once(self, group_id: str) -> GroupsAtOnce | None:
        here = HomeName(HomeKind.GROUP, group_id) in self.keeper.owned
        return self._parts.groups.at_once if here else None

    async def new_producer(self) -> ProducerIdentity:
        return ProducerIdentity(await self._parts.producer_ids.take(), 0)

    async def list_groups(self) -> Sequence[GroupListing]:
        """Lists the groups of all hosts. Groups of an unreachable host have the state Unknown."""
        elsewhere: dict[int, list[str]] = {}
        for home in self._view.homes:
            if home.kind is HomeKind.GROUP and home.host_id != self._host_id:
                elsewhere.setdefault(home.host_id, []).append(home.id)
        for owner in self.outside.owners():
            elsewhere.setdefault(owner.host, [])
        listed = [self._list(host_id, ids) for host_id, ids in elsewhere.items()]
        found = [*self._parts.groups.list_groups()]
        for groups in await asyncio.gather(*listed):
            found += groups
        # By id: a home that moved meanwhile may have been listed by two hosts.
        return list({group.group_id: group for group in found}.values())

    async def _list(self, host_id: int, ids: Iterable[str]) -> Sequence[GroupListing]:
        try:
            return await self.router.call(HomeAt(host_id, 0), LIST_GROUPS, ListGroups(), LIST_SECONDS)
        except TreecastError as error:
            _log.info("groups of a host cannot be listed", host=host_id, error=error)
            return [GroupListing(id, "", _UNKNOWN) for id in ids]

    def _list_own(self, host: int, request: ListGroups, body: memoryview) -> tuple[list[GroupListing], bytes]:
        self._counters.served += 1
        return list(self._parts.groups.list_groups()), b""

    async def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Sequence[TransactionListing]:
        """Lists transactional ids of all hosts. Those of an unreachable host have the state Unknown."""
        wanted: dict[str, list[str]] = {}  # the id of a home -> the ids that it decides about
        for transactional_id in transactional_ids or ():
            wanted.setdefault(home_name(transactional_id).id, []).append(transactional_id)
        elsewhere: dict[int, list[str]] = {}
        for home in self._view.homes:
            if home.kind is HomeKind.TRANSACTION and home.host_id != self._host_id:
                ids = [home.id] if transactional_ids is None else wanted.get(home.id, [])
                if ids:
                    elsewhere.setdefault(home.host_id, []).extend(ids)
        for owner in self.outside.owners():
            elsewhere.setdefault(owner.host, []).extend(transactional_ids or ())
        asked = [
            self._list_at(host_id, ids, every=transactional_ids is None) for host_id, ids in elsewhere.items()
        ]
        found = [*self._parts.transactions.list_transactions(transactional_ids)]
        for listings in await asyncio.gather(*asked):
            found += listings
        return list({one.transactional_id: one for one in found}.values())

    async def _list_at(
        self, host_id: int, ids: Sequence[str], *, every: bool
    ) -> Sequence[TransactionListing]:
        request = ListTransactions(None if every else tuple(ids))
        try:
            return await self.router.call(HomeAt(host_id, 0), LIST_TRANSACTIONS, request, LIST_SECONDS)
        except TreecastError as error:
            _log.info("transactions of a host cannot be listed", host=host_id, error=error)
            return [TransactionListing(id, _UNKNOWN) for id in ids]

    def _list_own_transactions(
        self, host: int, request: ListTransactions, body: memoryview
    ) -> tuple[list[TransactionListing], bytes]:
        self._counters.served += 1
        return self._parts.transactions.list_transactions(request.ids), b""

    # --- the view

    def _home(self, name: HomeName) -> HomeAt | None:
        entry = self._view.homes.get(home_key(name.kind, name.id))
        return None if entry is None else HomeAt(entry.host_id, entry.epoch)

    def _present(self, host_id: int) -> bool:
        host = self._view.host(host_id)
        return host is not None and host.presence is Presence.ATTACHED

    def _heard(self, before: HomeEntry | None, after: HomeEntry | None) -> None:
        entry = after or before
        assert entry is not None
        name = _name_of(entry)
        if name is None:
            return
        at = None if after is None else HomeAt(after.host_id, after.epoch)
        if at is None:
            self.finder.forget(name)
        self.keeper.moved(name, at, doubtful=self._view.doubtful)
        if at is None and self._view.doubtful:
            self._adopt([name])

    async def forget_topic(self, topic: str) -> None:
        """Deletes the committed offsets of a deleted topic, also in homes that are not loaded yet."""
        if self._tidying is None or (self._adopting is not None and not self._adopting.done()):
            self._deleted[topic] = None
        await self._parts.groups.forget_topic(topic)

    def _forgotten(self, name: HomeName, epoch: int) -> None:
        self.finder.forget(name)
        self.keeper.forgotten(name, epoch)

    # --- empty homes

    async def _tidy_up(self) -> None:
        while True:
            await asyncio.sleep(self._tidy_every)
            try:
                await self.tidy()
            except TreecastError as error:
                _log.warning("empty homes cannot be removed", error=error)

    async def tidy(self) -> None:
        """Makes the coordinator forget homes that were empty in two successive calls."""
        idle = self.keeper.idle()
        # Twice in a row: a home that was just looked up is about to be used.
        gone, self._idle = idle & self._idle, idle
        owned = self.keeper.owned
        await self._store.commit([HomeWrite(name, owned[name], (), forget=True) for name in gone])

    # --- homes to look up: of this host at its start, set aside, or from its time alone

    def _doubt(self) -> None:
        """Loads all homes of this host again: its directory is an old one, as an attach has found."""
        own = list(self.keeper.owned)
        self.keeper.doubt()
        self._adopt(own)

    def _adopt(self, names: Iterable[HomeName]) -> None:
        """Looks up homes and acquires those of this host, in the background, and retries until done."""
        wanted = dict.fromkeys(names)
        if wanted or self._deleted:
            before = self._adopting
            self._adopting = asyncio.create_task(self._adopt_all(before, wanted), name="homes of before")

    async def _adopt_all(self, before: asyncio.Task[None] | None, wanted: dict[HomeName, None]) -> None:
        if before is not None:
            # One after the other: both may want the same homes.
            await asyncio.wait([before])
        while wanted:
            names = list(wanted)
            for start in range(0, len(names), _AT_A_TIME):
                some = names[start : start + _AT_A_TIME]
                for name in compress(some, await asyncio.gather(*map(self._adopt_one, some))):
                    del wanted[name]
            if wanted:
                await asyncio.sleep(_ADOPT_AGAIN)
        deleted, self._deleted = self._deleted, {}
        for topic in deleted:
            if self._view.topic(topic) is None:
                try:
                    await self._parts.groups.forget_topic(topic)
                except TreecastError as error:
                    _log.warning("offsets of a deleted topic cannot be removed", topic=topic, error=error)

    async def _adopt_one(self, name: HomeName) -> bool:
        """Returns whether the home is settled: acquired, or elsewhere."""
        at, denied = HomeAt(0, 0), -1
        while name not in self.keeper.owned:
            try:
                at = await self.finder.find(name, denied)
                if at.host_id == self._host_id:
                    await self.keeper.acquire(name, at.epoch)
                else:
                    await self.keeper.refuse(name)
                    return True
            except TreecastError as error:
                if error.fault is Fault.NOT_COORDINATOR and at.epoch > denied:
                    denied = at.epoch  # the view may be behind: ask the coordinator
                    continue
                if error.fault is not Fault.COORDINATOR_UNAVAILABLE:
                    _log.warning("home cannot be served yet", home=name, error=error)
                return False
        return True


def _name_of(entry: HomeEntry) -> HomeName | None:
    """Returns None for homes that are not the broker's: the replica controller, a shared subscription."""
    if entry.kind not in (HomeKind.GROUP, HomeKind.TRANSACTION):
        return None
    return HomeName(entry.kind, entry.id)


def _steady() -> float:
    return asyncio.get_running_loop().time()
