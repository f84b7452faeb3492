"""`LoadedGroups`: the groups of this host, their deadlines and their rows on disk.

As one side of a joined host's homes (`relay.homes.keeper.HomeSide`) it takes groups over and gives them up.
"""

from __future__ import annotations

import asyncio
import enum
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName, HomeStore, TableStore
from treecast.middleware.broker.values import ConsumerHeartbeat
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER
from treecast.middleware.storage.tables import Change, Tables

from . import syncing
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
from .group import Group
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
from .waiters import Waiters

log = Log(__name__)


class Life(enum.Enum):
    LOADING = Fault.COORDINATOR_LOADING
    SERVING = None
    CLOSED = Fault.COORDINATOR_UNAVAILABLE


class LoadedGroups:
    """Keeps the state machines of groups and carries out their effects.

    `clock` returns wall-clock seconds since the Unix epoch (commit times, retention). `timer` returns the
    seconds for session and rebalance time-outs, by default the loop's time.
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
    ) -> None:
        self.settings = settings
        self._tables = tables
        self.counters = counters
        self._clock = clock
        self._rng = rng
        self._timer = timer
        self._store: HomeStore | None = None  # None: a host alone
        self._order = 0  # of the last commit
        self.life = Life.LOADING
        self.patterns = Patterns(NoTopics())
        self.journal = Journal(TableStore(tables))
        self.deadlines = Deadlines(self.now, self.expire)
        self.entries: dict[str, Entry] = {}
        self.waiters = Waiters()

    def use(self, store: HomeStore) -> None:
        """Sets the store that knows which groups have their home here. Call before `start`."""
        self._store = self.journal.store = store

    def look_at(self, topics: KnownTopics) -> None:
        """Sets the topics that groups of type consumer assign. Call before `start`."""
        self.patterns = Patterns(topics)

    async def start(self) -> None:
        """Loads groups and offsets from the tables, restarts session time-outs and begins to serve.

        On a joined host, a group is served once `own` has set its epoch.
        """
        for table in (CONFIGS, GROUPS, OFFSETS, PENDING, CONSUMER_GROUPS, CONSUMER_MEMBERS):
            for key, value in self._tables.load(table).items():
                self._restore(table, key, value)
        for entry in list(self.entries.values()):
            entry.group.resume(self.now())
            self.follow(entry)
        self.life = Life.SERVING

    def _restore(self, table: str, key: str, value: bytes) -> None:
        """Takes one row of the tables into memory."""
        now = self.now()
        if table == GROUPS:
            record = decode_group(value)
            group = self._loaded(key).group
            if isinstance(group, Group):
                group.restore(record, now - (self.now_ms() - record.since_ms) / 1000, now)
        elif table == CONFIGS:
            self._loaded(key).config = decode_config(value)
        elif table == CONSUMER_GROUPS:
            consumers = decode_consumer_group(value)
            self._loaded_consumers(key).restore(consumers, now - (self.now_ms() - consumers.since_ms) / 1000)
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
        """Answers all waiters with NOT_COORDINATOR and awaits the last write. Safe to call twice."""
        self.life = Life.CLOSED
        self.deadlines.close()
        for entry in self.entries.values():
            entry.group.unload(self.now())
            self.follow(entry)
        await self.journal.drain()

    # --- the homes of a joined host

    def known(self) -> Sequence[str]:
        """The ids of all loaded groups."""
        return list(self.entries)

    def own(self, group_id: str, epoch: int) -> None:
        """Makes this host the home in `epoch`, with the state that is loaded."""
        entry = self.entries.get(group_id)
        if entry is not None:
            entry.epoch = epoch
            entry.group.resume(self.now())
            self.follow(entry)

    def items(self, group_id: str) -> Items:
        """The items from which another host can become the group's home. Classic members rejoin there."""
        entry = self.entries.get(group_id)
        if entry is None:
            return {}
        rows = [*entry.offsets.rows(), *entry.group.rows(self.now_ms())]
        if entry.config:
            rows.append(Change(CONFIGS, group_id, encode(entry.config)))
        return items_of(rows)

    def rows(self, group_id: str, items: Items) -> Sequence[Change]:
        """Returns `items` as table rows, to be stored before `load`. Raises INTERNAL for a bad item."""
        try:
            return rows_of(group_id, items, self.now_ms())
        except (ValueError, msgspec.MsgspecError) as error:
            raise TreecastError(
                Fault.INTERNAL, f"the coordinator's entry of group {group_id!r} cannot be read: {error}"
            ) from error

    def load(self, group_id: str, epoch: int, rows: Sequence[Change]) -> None:
        """Becomes the group's home in `epoch` with the rows of the previous home. Raises INTERNAL if bad."""
        self.unload(group_id)
        try:
            for row in rows:
                self._restore(row.table, row.key, row.value or b"")
        except (ValueError, msgspec.MsgspecError) as error:
            self.unload(group_id)
            raise TreecastError(
                Fault.INTERNAL, f"the coordinator's entry of group {group_id!r} cannot be read: {error}"
            ) from error
        self.own(group_id, epoch)

    def unload(self, group_id: str) -> Sequence[Change]:
        """Gives up the group: answers its waiters with NOT_COORDINATOR and returns the removal of its rows.

        The store refuses writes in progress, because their epoch is over.
        """
        entry = self.entries.get(group_id)
        if entry is None:
            return []
        entry.group.unload(self.now())
        self.follow(entry)
        return self.forget(group_id, entry)

    # --- time

    def expire(self) -> None:
        """Handles all deadlines up to now. The coordinator's timer calls it."""
        now = self.now()
        for key in self.deadlines.take_due(now):
            entry = self.entries.get(str(key))
            if entry is not None and self.is_home(entry):
                entry.group.expire(now)
                self.follow(entry)

    def now(self) -> float:
        """Returns the seconds that deadlines are given in."""
        return asyncio.get_running_loop().time() if self._timer is None else self._timer()

    def now_ms(self) -> int:
        """Returns the wall clock."""
        return int(self._clock() * 1000)

    def next_order(self) -> int:
        """Returns the number of a new commit."""
        self._order += 1
        return self._order

    # --- look-ups

    def _new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{uuid.UUID(int=self._rng.getrandbits(128), version=4)}"

    def check(self, group_id: str, *, may_be_empty: bool = False) -> None:
        """Raises the reason why a request for this group cannot be served here now."""
        if self.life is not Life.SERVING:
            raise TreecastError(self.life.value)
        if self._store is not None:
            self._store.epoch(HomeName(HomeKind.GROUP, group_id))
        if not group_id and not may_be_empty:
            raise TreecastError(Fault.INVALID_GROUP, "a group id cannot be empty")

    def entry(self, group_id: str) -> Entry:
        """Returns the group, creating it if needed. Raises NOT_COORDINATOR if its home is elsewhere."""
        entry = self.entries.get(group_id)
        if entry is None:
            store = self._store
            entry = self._loaded(group_id)
            entry.epoch = 0 if store is None else store.epoch(HomeName(HomeKind.GROUP, group_id))
        return entry

    def _loaded(self, group_id: str) -> Entry:
        """Returns the loaded group, whatever its home, creating it if needed."""
        entry = self.entries.get(group_id)
        if entry is None:
            entry = self.entries[group_id] = Entry(self._new_classic(group_id), GroupOffsets(group_id), 0)
        return entry

    def _loaded_consumers(self, group_id: str) -> ConsumerGroup:
        """Like `_loaded`, for rows of a group of type consumer."""
        entry = self._loaded(group_id)
        if not isinstance(entry.group, ConsumerGroup):
            entry.group = self._new_consumers(group_id, 0)
        return entry.group

    def _new_consumers(self, group_id: str, epoch: int) -> ConsumerGroup:
        """`epoch`: the group's last epoch or generation before it had this type."""
        group = ConsumerGroup(
            group_id,
            self.settings.max_size,
            partial(self._timing, group_id),
            self.counters,
            self.patterns,
            self._new_member_id,
            self.now(),
        )
        group.epoch = group.assigned_epoch = epoch
        return group

    def _timing(self, group_id: str) -> Timing:
        """The timing of a group of type consumer: its own settings, else the daemon's."""
        entry = self.entries.get(group_id)
        own: Mapping[str, str] = {} if entry is None else entry.config
        return Timing(
            value_of(own, SESSION_TIMEOUT, self.settings) / 1000,
            value_of(own, HEARTBEAT_INTERVAL, self.settings),
        )

    def _new_classic(self, group_id: str) -> Group:
        return Group(group_id, self.settings, self.counters, self._new_member_id, self.now())

    def is_home(self, entry: Entry) -> bool:
        """Whether this host is still the home in the entry's epoch."""
        if self._store is None:
            return True
        try:
            return self._store.epoch(HomeName(HomeKind.GROUP, entry.group.group_id)) == entry.epoch
        except TreecastError:
            return False

    def existing(self, group_id: str) -> Entry:
        """Returns a group that clients see. Raises GROUP_NOT_FOUND."""
        entry = self.entries.get(group_id)
        if entry is None or entry.blank:
            raise TreecastError(Fault.GROUP_NOT_FOUND)
        return entry

    # --- effects

    def follow(self, entry: Entry) -> asyncio.Future[TreecastError | None] | None:
        """Carries out the group's effects. Returns the future of its last write, if any."""
        written = self._follow_group(entry, entry.group)
        group = entry.group
        if isinstance(group, ConsumerGroup) and not group.idle and group.members.all_classic():
            entry.group = self._new_classic(group.group_id)
            entry.leftovers += group.removal()
            migration.downgrade(group, entry.group, self.now())
            log.info("group changed to type classic", group=group.group_id)
            written = self._follow_group(entry, entry.group)
        self.schedule(entry)
        return written

    def _follow_group(self, entry: Entry, group: AnyGroup) -> asyncio.Future[TreecastError | None] | None:
        written = None
        for effect in group.take_effects():
            if isinstance(effect, Answer):
                self.waiters.answer(effect)
            elif isinstance(effect, Write):
                written = self._write_group(entry, effect)
            elif isinstance(effect, Rows):
                written = self._write_rows(entry, effect)
            elif isinstance(effect, Note):
                why = effect.reason or "no reason given"
                log.info(
                    "group member changed",
                    group=group.group_id,
                    change=effect.event,
                    member=effect.member_id,
                    reason=why,
                )
        return written

    def as_consumers(self, entry: Entry, request: ConsumerHeartbeat) -> None:
        """Converts the group to type consumer for a joining member. Raises GROUP_NOT_FOUND, GROUP_FULL."""
        classic = entry.group
        if isinstance(classic, ConsumerGroup):
            return
        static = classic.members.of_instance(request.instance_id) or classic.members.get(request.member_id)
        if len(classic.members) >= self.settings.max_size and static is None:
            raise TreecastError(Fault.GROUP_FULL)
        group_id = classic.group_id
        entry.group = migration.upgrade(
            classic, lambda epoch: self._new_consumers(group_id, epoch), self.now()
        )
        entry.leftovers += classic.removal()
        self._follow_group(entry, classic)  # answers the waiters
        if classic.members:
            log.info("group changed to type consumer", group=group_id)

    def as_classic(self, entry: Entry) -> Group:
        """Returns the classic group; converts a group of type consumer that has no members."""
        group = entry.group
        if isinstance(group, ConsumerGroup):
            entry.leftovers += group.removal()
            entry.group = self._new_classic(group.group_id)
            entry.group.generation = group.epoch
            return entry.group
        return group

    def schedule(self, entry: Entry) -> None:
        """Schedules the group's next deadline. Drops a group without any state."""
        group = entry.group
        if self.life is Life.CLOSED or self.entries.get(group.group_id) is not entry:
            return
        if entry.blank and not entry.remembers:
            del self.entries[group.group_id]
        elif group.next_deadline() < NEVER:
            self.deadlines.add(group.group_id, group.next_deadline())

    def _write_group(self, entry: Entry, write: Write) -> asyncio.Future[TreecastError | None]:
        record = msgspec.structs.replace(write.record, since_ms=self.now_ms())
        group = entry.group
        assert isinstance(group, Group)

        def done(error: TreecastError | None) -> None:
            syncing.written(group, write.then, error, self.now())
            if group is entry.group:
                self.follow(entry)

        return self._submit(entry, [Change(GROUPS, group.group_id, encode(record))], done)

    def _write_rows(self, entry: Entry, rows: Rows) -> asyncio.Future[TreecastError | None]:
        group = entry.group
        assert isinstance(group, ConsumerGroup)
        return self._submit(
            entry, rows.changes(self.now_ms()), lambda error: group.effects.written(rows.stamp, error)
        )

    def _submit(
        self, entry: Entry, changes: list[Change], done: Done
    ) -> asyncio.Future[TreecastError | None]:
        """Writes `changes` of the membership and removes leftover rows of the previous protocol."""
        leftovers = list(entry.leftovers)

        def then(error: TreecastError | None) -> None:
            if error is None:
                entry.leftovers = [change for change in entry.leftovers if change not in leftovers]
            done(error)

        return self.journal.submit(entry.group.group_id, entry.epoch, [*leftovers, *changes], then)

    async def write(
        self,
        entry: Entry,
        changes: Sequence[Change],
        done: Callable[[TreecastError | None], None] = lambda _: None,
        *,
        forget: bool = False,
    ) -> None:
        """Returns once `changes` are on disk. Calls `done` even if the caller is cancelled."""
        group_id = entry.group.group_id
        error = await asyncio.shield(self.journal.submit(group_id, entry.epoch, changes, done, forget=forget))
        if error is not None:
            raise TreecastError(error.fault, error.detail)

    def forget(self, group_id: str, entry: Entry) -> list[Change]:
        """Removes a dead group and returns the deletions of its rows."""
        self.entries.pop(group_id, None)
        self.deadlines.discard(group_id)
        config = [Change(CONFIGS, group_id, None)] if entry.config else []
        return [*config, *entry.offsets.remove_all(), *entry.leftovers, *entry.group.removal()]
