"""Hosts with homes in one process: a real coordinator, real tables, and calls that can be cut.

Only `pass_time` moves the clock. A host can be killed (nothing that it does afterwards reaches a disk or
another host), restarted, and cut off from the coordinator or from other hosts.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import Struct

from treecast.middleware.api.entries import (
    HomeKind,
    Position,
    Presence,
    Update,
    decode_change,
    home_key,
)
from treecast.middleware.broker.cluster import GROUPS, TRANSACTIONS, Kind
from treecast.middleware.broker.groups import GroupCoordinator, GroupSettings, LoadedGroups
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.broker.transactions import ProducerIds, TransactionCoordinator, TransactionSettings
from treecast.middleware.control import commands
from treecast.middleware.control.coordinator import Coordinator
from treecast.middleware.control.store import SqliteStore
from treecast.middleware.control.stored_state import CoordinatorSettings
from treecast.middleware.control.values import StateSettings
from treecast.middleware.fabric.channel import Answer, ChannelError, Methods
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity, TopicPartition
from treecast.middleware.relay.homes import Homes, HomeSettings, MirrorSettings
from treecast.middleware.relay.homes.ports import HomeAt, StateWrite, StoredHome
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.storage.settings import FsyncPolicy
from treecast.middleware.storage.tables import Tables

START = 1_700_000_000.0
TAKEOVER = 31.0
FIRST_RUN = 10
PATIENCE = 30.0  # seconds until a test gives up; no test asserts it


async def until(what: Callable[[], object]) -> None:
    """Waits until `what` is true."""
    async with asyncio.timeout(PATIENCE):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


class Town:
    def __init__(self, path: Path, seed: int = 1, patience: float = 0.02) -> None:
        self.path = path
        self.now = START
        self.rng = random.Random(seed)
        self.settings = HomeSettings(
            MirrorSettings(patience=patience, call=0.5, pause=0.02), ask_again=0.0, connect=0.02
        )
        self.up = True  # whether the coordinator answers
        self.hosts: dict[int, TownHost] = {}
        self.slowest = 0.0  # seconds, of calls to the coordinator and of its updates
        self.lost_answers = 0.0  # share of the coordinator's answers that are lost
        self.cut: set[frozenset[int]] = set()  # pairs of hosts that cannot reach each other
        self.partitions: dict[TopicPartition, TownPartition] = {}
        self.coordinator: Coordinator
        self._start_coordinator()

    def _start_coordinator(self) -> None:
        store = SqliteStore(
            self.path / "coordinator.sqlite", lambda: uuid.uuid4().hex, fsync=FsyncPolicy.NEVER
        )
        settings = CoordinatorSettings(
            StateSettings(hearing=0.0)
        )  # hosts here do not tell how far their views are
        self.coordinator = Coordinator(store, settings, lambda: self.now)

    async def restart_coordinator(self) -> None:
        self.up = False
        await self.coordinator.close()
        self._start_coordinator()
        self.up = True

    async def lose_store(self) -> None:
        """Restarts the coordinator with an empty store and a new history."""
        self.up = False
        await self.coordinator.close()
        for path in self.path.glob("coordinator.sqlite*"):
            path.unlink()
        self._start_coordinator()
        self.up = True

    async def host(self, name: str) -> TownHost:
        """Makes a new host, attached and started."""
        entry = await self.coordinator.do(commands.Attach(name, f"data of {name}", "h:1", "1", FIRST_RUN))
        made = TownHost(self, name, entry.host_id, entry.incarnation)
        self.hosts[entry.host_id] = made
        await made.start()
        return made

    def delay(self) -> float:
        return self.rng.random() * self.slowest

    def partition(self, topic: str, index: int) -> TownPartition:
        try:
            return self.partitions[TopicPartition(topic, index)]
        except KeyError:
            raise TreecastError(Fault.UNKNOWN_TOPIC) from None

    def add_partitions(self, *names: TopicPartition) -> None:
        self.partitions |= {name: TownPartition() for name in names}

    async def pass_time(self, seconds: float) -> None:
        """Moves the clock in steps; hosts that reach the coordinator renew their leases."""
        while seconds > 0:
            step = min(seconds, 2.0)
            seconds -= step
            self.now += step
            for host in self.hosts.values():
                if not host.dead:
                    host.parts.groups.loaded.expire()
                if host.reaches:
                    await host.renew()
            if self.up:
                await self.coordinator.expire_leases()
        await self.settle()

    async def settle(self) -> None:
        """Waits until the views of all connected hosts are up to date."""
        for host in self.hosts.values():
            while host.reaches and host.behind and not host._watching.done():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.002)

    async def close(self) -> None:
        for host in self.hosts.values():
            if not host.dead:
                await host.stop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.coordinator.close()
        for host in self.hosts.values():
            host.close_files()


class TownPartition:
    """Knows the open transactions of a partition, and the markers that were written."""

    def __init__(self) -> None:
        self.open: dict[int, ProducerIdentity] = {}
        self.markers: list[tuple[ProducerIdentity, bool, int]] = []
        self.refuses: TreecastError | None = None

    def append_marker(self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int) -> None:
        if self.refuses is not None:
            raise self.refuses
        if self.open.pop(producer.producer_id, None) is not None:
            self.markers.append((producer, committed, coordinator_epoch))


class DyingTables(Tables):
    """After a kill no call writes or returns."""

    dead = False

    async def commit(self, changes: Sequence[Any]) -> None:
        await _while_alive(self)
        await super().commit(changes)
        await _while_alive(self)


async def _while_alive(thing: Any) -> None:
    if thing.dead:
        await asyncio.get_running_loop().create_future()


class Copy(Struct):
    """A copy of a host's data directory: its tables, the number of its run, and the updates of its view."""

    path: Path
    run: int
    known: list[Update]


class TownHost:
    """One host over its runs. `parts`, `homes` and so on belong to the current run."""

    def __init__(self, town: Town, name: str, host_id: int, incarnation: int) -> None:
        self.town = town
        self.name = name
        self.host_id = host_id
        self.session = commands.Session(host_id, incarnation)
        self.directory = f"data of {name}"  # its id
        self.run = FIRST_RUN
        self.returns_late = False  # on an older directory, once its lease has ended
        self.old_directory = False  # as the last attach has found
        self.cut_off = False  # from the coordinator
        self.sees_first = True  # it starts with the present view, not with the stored one
        self.dead = True
        self.died = asyncio.Event()
        self.known: list[Update] = []  # the updates of the view, kept over runs
        self.files: list[Tables] = []

    @property
    def tables_path(self) -> Path:
        return self.town.path / f"{self.name}.sqlite"

    @property
    def reaches(self) -> bool:
        return not self.dead and not self.cut_off and self.town.up

    # --- start and stop

    async def start(self, *, attach: bool = False) -> None:
        if attach:
            await self.attach()
        self.dead, self.died = False, asyncio.Event()
        self.tables = DyingTables(self.tables_path, FsyncPolicy.NEVER)
        self.files.append(self.tables)
        self.counters = Counters()
        self.parts = self._parts()
        self.view = ClusterView()
        for update in self.known:
            self.view.apply(update)
        if self.reaches and self.sees_first:
            await self._see()
        self.methods = Methods()
        self.caller = Caller(self)
        self.methods.use(self.caller)
        self.port = Port(self, self.tables)
        self.homes = Homes(
            self.parts, self.view, self.port, self.methods, self.caller.is_up, self.town.settings
        )
        await self.parts.groups.loaded.start()
        self.parts.transactions.restore()
        await self.homes.start()
        await self.parts.transactions.start(Reach(self))
        self._watching = asyncio.create_task(self._watch(self.tables))

    def _parts(self) -> LocalParts:
        now = lambda: self.town.now  # noqa: E731
        producer_ids = ProducerIds(self.tables)
        settings = TransactionSettings()
        transactions = TransactionCoordinator(settings, self.tables, producer_ids, self.counters.broker, now)
        groups = LoadedGroups(
            GroupSettings(initial_rebalance_delay_ms=0),
            self.tables,
            self.counters.broker,
            clock=now,
            rng=random.Random(self.town.rng.getrandbits(64)),
            timer=lambda: self.town.now - START,
        )
        unused: Any = None
        host = Host(self.host_id, self.name)
        return LocalParts(
            unused,
            "cluster",
            host,
            self.tables,
            SimpleNamespace(guard=None),
            GroupCoordinator(groups, transactions),
            transactions,
            producer_ids,
            unused,
            self.counters,
            now,
            self.town.rng,
            1,
            unused,
            unused,
        )

    def kill(self) -> None:
        self.dead = self.tables.dead = True
        self._watching.cancel()
        self.died.set()

    async def stop(self) -> None:
        """Stops in order."""
        await self.homes.close()
        await asyncio.gather(self.parts.transactions.close(), self.parts.producer_ids.close())
        await self.parts.groups.loaded.close()
        self.kill()

    def close_files(self) -> None:
        for tables in self.files:
            tables.close()

    def copy(self) -> Copy:
        """Copies the data directory, also that of a running host."""
        source = sqlite3.connect(self.tables_path)
        path = self.town.path / f"{self.name}-copy-{len(list(self.town.path.iterdir()))}"
        target = sqlite3.connect(path)
        source.backup(target)
        source.close()
        target.close()
        return Copy(path, self.run, list(self.known))

    def restore(self, copy: Copy, *, noticed: bool = True) -> None:
        """Puts a copy in the place of the killed host's directory. `noticed`: the coordinator will see that
        by the number of its next run."""
        assert self.dead
        for path in self.town.path.glob(f"{self.name}.sqlite*"):
            path.unlink()
        shutil.copy(copy.path, self.tables_path)
        self.known = list(copy.known)
        if noticed:
            self.run = copy.run - 2
            self.returns_late = True

    async def restart(self) -> None:
        """Starts again after a kill; the coordinator, if reachable, sees another incarnation."""
        if not self.dead:
            self.kill()
        self.run, self.old_directory = self.run + 1, False
        await self.start(attach=self.town.up and not self.cut_off)

    # --- the coordinator

    async def attach(self) -> None:
        if self.returns_late:  # the later state does not hold its lease any more
            later = self.town.coordinator.stored.state.host(self.name)
            if later is not None and later.presence is Presence.ATTACHED:
                session = commands.Session(later.host_id, later.incarnation)
                await self.town.coordinator.do(commands.Detach(session))
            self.returns_late = False
        attach = commands.Attach(self.name, self.directory, "h:1", "1", self.run)
        entry = await self.town.coordinator.do(attach)
        self.session = commands.Session(entry.host_id, entry.incarnation)
        if entry.run > self.run:
            self.run, self.old_directory = entry.run, True
            if not self.dead:
                self.port.on_old_directory()

    async def renew(self) -> None:
        try:
            await self.town.coordinator.do(commands.Renew(self.session))
        except TreecastError:
            await self.attach()

    @property
    def behind(self) -> bool:
        at = Position(self.town.coordinator.stored.history_id, self.town.coordinator.stored.revision)
        return self.view.position != at

    async def _watch(self, tables: DyingTables) -> None:
        while True:
            await asyncio.sleep(0.001 + self.town.delay())
            if self.reaches and self.behind:
                await self._see()

    async def _see(self) -> None:
        coordinator, at = self.town.coordinator, self.view.position
        after = coordinator.stored.after(at.history, at.revision, 1 << 20)
        if after is None:
            taken = await coordinator.snapshot()
            revision, messages, snapshot = taken.revision, taken.changes, True
        elif after:
            messages = [change for one in after for change in one.changes]
            revision, snapshot = after[-1].number, False
        else:
            return
        changes = tuple(map(decode_change, messages))
        update = Update(snapshot, Position(coordinator.stored.history_id, revision), changes)
        self.known.append(update)
        self.view.apply(update)

    # --- for tests

    @property
    def group(self) -> Any:
        return self.homes.home(GROUPS, "")

    @property
    def transaction(self) -> Any:
        return self.homes.home(TRANSACTIONS, "")

    @property
    def quiet(self) -> bool:
        """Returns whether no write to the store, and no look-up, arrival or departure of a home, is under
        way."""
        keeper, adopting = self.homes.keeper, self.homes._adopting
        if adopting is not None and not adopting.done():
            return False
        busy = (self.homes.mirror._task, keeper._coming, keeper._going, keeper._notes)
        return not any(busy)

    def is_home(self, id: str, kind: HomeKind = HomeKind.GROUP) -> bool:
        return HomeName(kind, id) in self.homes.keeper.owned


class Port:
    """Implements `homes.ports.Coordinator` for one run of a host."""

    def __init__(self, host: TownHost, tables: DyingTables) -> None:
        self._host = host
        self._tables = tables
        self.on_old_directory: Callable[[], None] = lambda: None

    def when_old(self, call: Callable[[], None]) -> None:
        self.on_old_directory = call

    @property
    def answers(self) -> bool:
        return self._host.reaches

    @property
    def directory_is_old(self) -> bool:
        return self._host.old_directory

    async def _do(self, command: commands.Command) -> Any:
        await _while_alive(self._tables)
        await asyncio.sleep(self._host.town.delay())
        if not self._host.reaches:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "cut off")
        try:
            answer = await self._host.town.coordinator.do(command)
        except TreecastError as error:
            if error.fault is not Fault.UNKNOWN_MEMBER:
                raise
            await self._host.attach()
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "attached again") from error
        await _while_alive(self._tables)
        if not self._host.reaches or self._host.town.rng.random() < self._host.town.lost_answers:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "the answer was lost")
        return answer

    async def ask(self, name: HomeName) -> HomeAt:
        command = commands.AskHome(self._host.session, name.kind, name.id)
        entry = await self._do(command)
        return HomeAt(entry.host_id, entry.epoch)

    async def put(self, writes: Sequence[StateWrite]) -> Mapping[int, TreecastError]:
        made = tuple(
            commands.HomeWrite(
                w.name.kind,
                w.name.id,
                w.epoch,
                tuple(w.stored().items()),
                w.forget,
            )
            for w in writes
        )
        refusals: Mapping[int, TreecastError] = (
            await self._do(commands.PutHomeState(self._host.session, made))
        ).refused
        return refusals

    async def get(self, name: HomeName, epoch: int) -> StoredHome:
        kind = name.kind
        await self._do(commands.CheckHome(self._host.session, kind, name.id, epoch))
        key = home_key(kind, name.id)
        items, more = await self._host.town.coordinator.home_items(key, b"", 1 << 20)
        assert not more
        return StoredHome.of(dict(items))

    async def producer_ids(self, count: int) -> range:
        block = await self._do(commands.TakeProducerIds(self._host.session, count))
        return range(block.first, block.first + block.count)


class Caller:
    """Implements what `Methods` needs of the channels: a call runs at the other host, as bytes."""

    def __init__(self, host: TownHost) -> None:
        self._host = host
        self.cancellable: set[int] = set()

    def is_up(self, host_id: int) -> bool:
        town, me = self._host.town, self._host.host_id
        other = town.hosts.get(host_id)
        return other is not None and not other.dead and frozenset((me, host_id)) not in town.cut

    def call(
        self, host_id: int, method: int, head: bytes = b"", body: Any = b"", *, timeout: float
    ) -> Awaitable[Answer]:
        return asyncio.ensure_future(self._call(host_id, method, head, timeout))

    async def _call(self, host_id: int, method: int, head: bytes, timeout: float) -> Answer:
        await asyncio.sleep(0)
        if not self.is_up(host_id):
            raise ChannelError(Fault.LEADER_UNAVAILABLE, "not connected", False)
        other = self._host.town.hosts[host_id]
        died = asyncio.ensure_future(other.died.wait())
        handled = asyncio.ensure_future(_handled(other.methods, self._host.host_id, method, head))
        try:
            await asyncio.wait([died, handled], return_when=asyncio.FIRST_COMPLETED, timeout=timeout)
            if not handled.done() or not self.is_up(host_id):
                raise ChannelError(Fault.LEADER_UNAVAILABLE, "the connection broke", True)
            return handled.result()
        finally:
            died.cancel()
            if method in self.cancellable:
                handled.cancel()

    def notify(self, host_id: int, method: int, head: bytes = b"", body: Any = b"") -> bool:
        return False


async def _handled(methods: Methods, host_id: int, method: int, head: bytes) -> Answer:
    answer = methods.handle(host_id, method, head, memoryview(bytearray()))
    return answer if isinstance(answer, Answer) else await answer


class Reach:
    """The partitions and homes that transactions at a host can reach."""

    def __init__(self, host: TownHost) -> None:
        self._host = host

    def partition(self, topic: str, index: int) -> Any:
        return self._host.town.partition(topic, index)

    def home(self, kind: Kind[Any], id: str) -> Any:
        return self._host.homes.home(kind, id)
