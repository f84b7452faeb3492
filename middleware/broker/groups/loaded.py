"""`LoadedGroups`: the groups that live on this host, their deadlines, and what of them lies on disk."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Protocol, TypeVar

import msgspec

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName, HomeStore, TableStore
from treecast.middleware.broker.values import (
    ConsumerHeartbeat,
    Joined,
    Synced,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.tables import Change, Tables

from .config import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, value_of
from .consumer import migration
from .consumer.group import ConsumerGroup, Timing
from .consumer.patterns import KnownTopics, NoTopics, Patterns
from .consumer.records import CONSUMER_GROUPS, CONSUMER_MEMBERS, Rows, parse_member_key
from .consumer.records import decode_group as decode_consumer_group
from .consumer.records import decode_member as decode_consumer_member
from .deadlines import Deadlines
from .effects import Answer, Done, Note, Write
from .entry import AnyGroup, Entry
from .group import NEVER, Group
from .items import Items, items_of, rows_of
from .journal import Journal
from .offsets import GroupOffsets
from .records import (
    CONFIGS,
    GROUPS,
    OFFSETS,
    PENDING,
    decode_config,
    decode_group,
    decode_offset,
    decode_pending,
    encode,
    parse_offset_key,
    parse_pending_key,
)
from .settings import GroupSettings

log = logging.getLogger(__name__)

T = TypeVar("T")


class Life(enum.Enum):
    LOADING = Fault.COORDINATOR_LOADING
    SERVING = None
    CLOSED = Fault.COORDINATOR_UNAVAILABLE


class OffsetGuard(Protocol):
    """Knows whether a producer's open transaction holds a group: else nothing would decide its offsets."""

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None] | None:
        """Raises what refuses them, at once or, where the transaction's home has to be asked, later."""


class LoadedGroups:
    """What `GroupCoordinator` stands on: a group's requests become calls of its machine, and what that wants
    done is done. `clock` gives wall-clock seconds since the Unix epoch (commit times, retention); `timer`
    gives the seconds that session and rebalance time-outs run on, the loop's own time by default. A waiting
    join or sync may be cancelled: the member stays until its session is over.
    """

    def __init__(
        self,
        settings: GroupSettings,
        tables: Tables,
        counters: BrokerCounters,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        timer: Callable[[], float] | None = None,
        guard: OffsetGuard | None = None,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._counters = counters
        self._clock = clock
        self._rng = rng
        self._timer = timer
        self._guard = guard
        self._patterns = Patterns(NoTopics())
        self._store: HomeStore | None = None  # None: a host alone
        self._journal = Journal(TableStore(tables))
        self._deadlines = Deadlines(self._now, self.expire)
        self._groups: dict[str, Entry] = {}
        self._waiting: dict[int, asyncio.Future[Joined | Synced]] = {}
        self._waiters = count(1)
        self._order = 0  # of the last commit
        self._life = Life.LOADING

    def use(self, store: HomeStore, guard: OffsetGuard) -> None:
        """Before `start`: from now on `store` says of which groups this host is the home."""
        self._store = self._journal.store = store
        self._guard = guard

    def look_at(self, topics: KnownTopics) -> None:
        """Before `start`: the topics that groups of type consumer assign."""
        self._patterns = Patterns(topics)

    async def start(self) -> None:
        """Loads groups and offsets from the tables; session time-outs start anew. Serves from here on.

        On a joined host the groups are served once `own` has said in which epoch.
        """
        for table in (CONFIGS, GROUPS, OFFSETS, PENDING, CONSUMER_GROUPS, CONSUMER_MEMBERS):
            for key, value in self._tables.load(table).items():
                self._restore(table, key, value)
        for entry in list(self._groups.values()):
            entry.group.resume(self._now())
            self._follow(entry)
        self._life = Life.SERVING

    def _restore(self, table: str, key: str, value: bytes) -> None:
        """Takes one row of the tables into memory."""
        now = self._now()
        if table == GROUPS:
            record = decode_group(value)
            group = self._loaded(key).group
            if isinstance(group, Group):
                group.restore(record, now - (self._now_ms() - record.since_ms) / 1000, now)
        elif table == CONFIGS:
            self._loaded(key).config = decode_config(value)
        elif table == CONSUMER_GROUPS:
            consumers = decode_consumer_group(value)
            self._loaded_consumers(key).restore(consumers, now - (self._now_ms() - consumers.since_ms) / 1000)
        elif table == CONSUMER_MEMBERS:
            group_id, member_id = parse_member_key(key)
            self._loaded_consumers(group_id).restore_member(member_id, decode_consumer_member(value))
        elif table == OFFSETS:
            group_id, partition = parse_offset_key(key)
            offset = decode_offset(value)
            self._order = max(self._order, offset.order)
            self._loaded(group_id).offsets.restore(partition, offset)
        elif table == PENDING:
            group_id, producer_id = parse_pending_key(key)
            pending = decode_pending(value)
            self._order = max([self._order, *(offset.order for _, _, offset in pending.offsets)])
            self._loaded(group_id).offsets.restore_pending(producer_id, pending)

    async def close(self) -> None:
        """Answers all who wait with NOT_COORDINATOR, and waits for the last write. Safe to call twice."""
        self._life = Life.CLOSED
        self._deadlines.close()
        for entry in self._groups.values():
            entry.group.unload(self._now())
            self._follow(entry)
        await self._journal.drain()

    # --- the homes of a joined host

    def known(self) -> Sequence[str]:
        """The ids of all groups that are loaded here."""
        return list(self._groups)

    def own(self, group_id: str, epoch: int) -> None:
        """This host is the home in `epoch`, and what is loaded of the group is what counts."""
        entry = self._groups.get(group_id)
        if entry is not None:
            entry.epoch = epoch
            entry.group.resume(self._now())
            self._follow(entry)

    def items(self, group_id: str) -> Items:
        """What another host would need to become the group's home. Classic members join again there."""
        entry = self._groups.get(group_id)
        if entry is None:
            return {}
        rows = [*entry.offsets.rows(), *entry.group.rows(self._now_ms())]
        if entry.config:
            rows.append(Change(CONFIGS, group_id, encode(entry.config)))
        return items_of(rows)

    def rows(self, group_id: str, items: Items) -> Sequence[Change]:
        """`items` as rows of the tables; they have to be there before `load`. INTERNAL for nonsense."""
        try:
            return rows_of(group_id, items, self._now_ms())
        except (ValueError, msgspec.MsgspecError) as error:
            raise TreecastError(
                Fault.INTERNAL, f"what the coordinator keeps of group {group_id!r} makes no sense: {error}"
            ) from error

    def load(self, group_id: str, epoch: int, rows: Sequence[Change]) -> None:
        """Becomes the group's home in `epoch` with what the home before it wrote. INTERNAL for nonsense."""
        self.unload(group_id)
        try:
            for row in rows:
                self._restore(row.table, row.key, row.value or b"")
        except (ValueError, msgspec.MsgspecError) as error:
            self.unload(group_id)
            raise TreecastError(
                Fault.INTERNAL, f"what the coordinator keeps of group {group_id!r} makes no sense: {error}"
            ) from error
        self.own(group_id, epoch)

    def unload(self, group_id: str) -> Sequence[Change]:
        """This host is not the home any more: who waits gets NOT_COORDINATOR. Answers what removes its rows.

        Writes that are under way are refused by the store, as their epoch is over.
        """
        entry = self._groups.get(group_id)
        if entry is None:
            return []
        entry.group.unload(self._now())
        self._follow(entry)
        return self._forget(group_id, entry)

    # --- inside

    def expire(self) -> None:
        """Does what is due by now. The coordinator's own timer calls it."""
        now = self._now()
        for key in self._deadlines.take_due(now):
            entry = self._groups.get(str(key))
            if entry is not None and self._is_home(entry):
                entry.group.expire(now)
                self._follow(entry)

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._timer is None else self._timer()

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(int=self._rng.getrandbits(128), version=4)}"

    def _check(self, group_id: str, *, may_be_empty: bool = False) -> None:
        if self._life is not Life.SERVING:
            raise TreecastError(self._life.value)
        if self._store is not None:
            self._store.epoch(HomeName(HomeKind.GROUP, group_id))
        if not group_id and not may_be_empty:
            raise TreecastError(Fault.INVALID_GROUP, "a group id cannot be empty")

    def _entry(self, group_id: str) -> Entry:
        """The group, made if nobody has named it yet. NOT_COORDINATOR where its home is elsewhere."""
        entry = self._groups.get(group_id)
        if entry is None:
            store = self._store
            entry = self._loaded(group_id)
            entry.epoch = 0 if store is None else store.epoch(HomeName(HomeKind.GROUP, group_id))
        return entry

    def _loaded(self, group_id: str) -> Entry:
        """The group as it is loaded, wherever its home may be."""
        entry = self._groups.get(group_id)
        if entry is None:
            entry = self._groups[group_id] = Entry(self._new_classic(group_id), GroupOffsets(group_id), 0)
        return entry

    def _loaded_consumers(self, group_id: str) -> ConsumerGroup:
        """The same of a group of type consumer, of which nothing but its rows is known yet."""
        entry = self._loaded(group_id)
        if not isinstance(entry.group, ConsumerGroup):
            entry.group = self._new_consumers(group_id, 0)
        return entry.group

    def _new_consumers(self, group_id: str, epoch: int) -> ConsumerGroup:
        """`epoch`: what its epoch or generation was before it was of this type."""
        group = ConsumerGroup(
            group_id,
            self._settings.max_size,
            partial(self._timing, group_id),
            self._counters,
            self._patterns,
            self._new_member_id,
            self._now(),
        )
        group.epoch = group.assigned_epoch = epoch
        return group

    def _timing(self, group_id: str) -> Timing:
        """What holds for a group of type consumer, by its own settings or the daemon's."""
        entry = self._groups.get(group_id)
        own: Mapping[str, str] = {} if entry is None else entry.config
        return Timing(
            value_of(own, SESSION_TIMEOUT, self._settings) / 1000,
            value_of(own, HEARTBEAT_INTERVAL, self._settings),
        )

    def _new_classic(self, group_id: str) -> Group:
        return Group(group_id, self._settings, self._counters, self._new_member_id, self._now())

    def _is_home(self, entry: Entry) -> bool:
        if self._store is None:
            return True
        try:
            return self._store.epoch(HomeName(HomeKind.GROUP, entry.group.group_id)) == entry.epoch
        except TreecastError:
            return False

    def _existing(self, group_id: str) -> Entry:
        entry = self._groups.get(group_id)
        if entry is None or entry.blank:
            raise TreecastError(Fault.GROUP_NOT_FOUND)
        return entry

    def _wait(self) -> tuple[int, asyncio.Future[Joined | Synced]]:
        waiter = next(self._waiters)
        future: asyncio.Future[Joined | Synced] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = future
        return waiter, future

    async def _answer_to(self, waiter: int, future: asyncio.Future[Joined | Synced]) -> Joined | Synced:
        try:
            return await future
        finally:
            self._waiting.pop(waiter, None)

    def _follow(self, entry: Entry) -> asyncio.Future[TreecastError | None] | None:
        """Does what the group wants done. Answers the future of its last write, if there was one."""
        written = self._follow_group(entry, entry.group)
        group = entry.group
        if isinstance(group, ConsumerGroup) and not group.idle and group.members.all_classic():
            entry.group = self._new_classic(group.group_id)
            entry.leftovers += group.removal()
            migration.downgrade(group, entry.group, self._now())
            log.info("group %s: it is of type classic again", group.group_id)
            written = self._follow_group(entry, entry.group)
        self._schedule(entry)
        return written

    def _follow_group(self, entry: Entry, group: AnyGroup) -> asyncio.Future[TreecastError | None] | None:
        written = None
        for effect in group.take_effects():
            if isinstance(effect, Answer):
                self._answer(effect)
            elif isinstance(effect, Write):
                written = self._write_group(entry, effect)
            elif isinstance(effect, Rows):
                written = self._write_rows(entry, effect)
            elif isinstance(effect, Note):
                why = effect.reason or "no reason given"
                log.info("group %s: %s: %s (%s)", group.group_id, effect.event, effect.member_id, why)
        return written

    async def _consumers(self, entry: Entry, call: Callable[[ConsumerGroup, float], T]) -> T:
        """What `call` answers, once all that it stands on is on disk."""
        group = entry.group
        assert isinstance(group, ConsumerGroup)
        try:
            answer = call(group, self._now())
        finally:
            written = self._follow(entry)
        error = None if written is None else await asyncio.shield(written)
        if error is not None:
            raise TreecastError(error.fault, error.detail)
        return answer

    def _as_consumers(self, entry: Entry, request: ConsumerHeartbeat) -> None:
        """Makes the group one of type consumer, for a member that joins. GROUP_NOT_FOUND, GROUP_FULL."""
        classic = entry.group
        if isinstance(classic, ConsumerGroup):
            return
        static = classic.members.of_instance(request.instance_id) or classic.members.get(request.member_id)
        if len(classic.members) >= self._settings.max_size and static is None:
            raise TreecastError(Fault.GROUP_FULL)
        group_id = classic.group_id
        entry.group = migration.upgrade(
            classic, lambda epoch: self._new_consumers(group_id, epoch), self._now()
        )
        entry.leftovers += classic.removal()
        self._follow_group(entry, classic)  # answers those who wait
        if classic.members:
            log.info("group %s: it is of type consumer from now on", group_id)

    def _as_classic(self, entry: Entry) -> Group:
        """The group, made a classic one where it is of type consumer and has no members."""
        group = entry.group
        if isinstance(group, ConsumerGroup):
            entry.leftovers += group.removal()
            entry.group = self._new_classic(group.group_id)
            entry.group.generation = group.epoch
            return entry.group
        return group

    def _schedule(self, entry: Entry) -> None:
        """Sees to it that the group's next deadline is kept; drops a group of which there is nothing."""
        group = entry.group
        if self._life is Life.CLOSED or self._groups.get(group.group_id) is not entry:
            return
        if entry.blank and not entry.remembers:
            del self._groups[group.group_id]
        elif group.next_deadline() < NEVER:
            self._deadlines.add(group.group_id, group.next_deadline())

    def _answer(self, answer: Answer) -> None:
        future = self._waiting.pop(answer.waiter, None)
        if future is None or future.done():
            return  # who asked has gone
        if isinstance(answer.result, TreecastError):
            future.set_exception(answer.result)
        else:
            future.set_result(answer.result)

    def _write_group(self, entry: Entry, write: Write) -> asyncio.Future[TreecastError | None]:
        record = msgspec.structs.replace(write.record, since_ms=self._now_ms())
        group = entry.group
        assert isinstance(group, Group)

        def done(error: TreecastError | None) -> None:
            group.written(write.then, error, self._now())
            if group is entry.group:
                self._follow(entry)

        return self._submit(entry, [Change(GROUPS, group.group_id, encode(record))], done)

    def _write_rows(self, entry: Entry, rows: Rows) -> asyncio.Future[TreecastError | None]:
        group = entry.group
        assert isinstance(group, ConsumerGroup)
        return self._submit(
            entry, rows.changes(self._now_ms()), lambda error: group.written(rows.stamp, error)
        )

    def _submit(
        self, entry: Entry, changes: list[Change], done: Done
    ) -> asyncio.Future[TreecastError | None]:
        """Writes `changes` of the group's membership, and removes what is left of the protocol before."""
        leftovers = list(entry.leftovers)

        def then(error: TreecastError | None) -> None:
            if error is None:
                entry.leftovers = [change for change in entry.leftovers if change not in leftovers]
            done(error)

        return self._journal.submit(entry.group.group_id, entry.epoch, [*leftovers, *changes], then)

    async def _write(
        self,
        entry: Entry,
        changes: Sequence[Change],
        done: Callable[[TreecastError | None], None] = lambda _: None,
        *,
        forget: bool = False,
    ) -> None:
        """Returns when `changes` are on disk. `done` is called even if the caller has been cancelled."""
        group_id = entry.group.group_id
        error = await asyncio.shield(
            self._journal.submit(group_id, entry.epoch, changes, done, forget=forget)
        )
        if error is not None:
            raise TreecastError(error.fault, error.detail)

    def _forget(self, group_id: str, entry: Entry) -> list[Change]:
        """Takes a dead group out; answers what is to be deleted of it."""
        self._groups.pop(group_id, None)
        self._deadlines.discard(group_id)
        config = [Change(CONFIGS, group_id, None)] if entry.config else []
        return [*config, *entry.offsets.remove_all(), *entry.leftovers, *entry.group.removal()]
