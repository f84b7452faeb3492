"""`GroupCoordinator`: the groups that live on this host, and the asyncio edge around them."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Protocol

import msgspec

from treecast.middleware.broker.homes import HomeKind, HomeName, HomeStore, TableStore
from treecast.middleware.broker.values import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    Joined,
    JoinGroup,
    MemberIdentity,
    OffsetCommits,
    PartitionErrors,
    Synced,
    SyncGroup,
)
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Change, Tables

from .deadlines import Deadlines
from .effects import Answer, Note, Write
from .group import NEVER, Group
from .items import Items, items_of, rows_of
from .journal import Journal
from .offsets import GroupOffsets, split_by_metadata
from .records import (
    GROUPS,
    OFFSETS,
    PENDING,
    GroupRecord,
    OffsetRecord,
    decode_group,
    decode_offset,
    decode_pending,
    encode,
    parse_offset_key,
    parse_pending_key,
)
from .settings import GroupSettings
from .state import State
from .subscription import CONSUMER

log = logging.getLogger(__name__)


class _Life(enum.Enum):
    LOADING = Fault.COORDINATOR_LOADING
    SERVING = None
    CLOSED = Fault.COORDINATOR_UNAVAILABLE


class OffsetGuard(Protocol):
    """Knows whether a producer's open transaction holds a group: else nothing would decide its offsets."""

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None] | None:
        """Raises what refuses them, at once or, where the transaction's home has to be asked, later."""


class _Entry:
    """A group and its offsets. `epoch`: in which this host is its home; 0 on a host alone.

    `emptied`: a client has deleted offsets of it, and no housekeeping has come since. Till then it is seen as
    a group without members, as in Kafka: who deletes the last offset has not deleted the group.
    """

    __slots__ = ("emptied", "epoch", "group", "offsets")

    def __init__(self, group: Group, offsets: GroupOffsets, epoch: int) -> None:
        self.group = group
        self.offsets = offsets
        self.epoch = epoch
        self.emptied = False

    @property
    def blank(self) -> bool:
        """Whether clients can find nothing of it."""
        return self.group.idle and self.group.generation == 0 and not self.offsets and not self.emptied


class GroupCoordinator:
    """Implements `cluster.GroupHome`.

    `clock` gives wall-clock seconds since the Unix epoch (commit times, retention); `timer` gives the
    seconds that session and rebalance time-outs run on, the loop's own time by default. A waiting join
    or sync may be cancelled: the member stays until its session is over.
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
        self._store: HomeStore | None = None  # None: a host alone
        self._journal = Journal(TableStore(tables))
        self._deadlines = Deadlines(self._now, self.expire)
        self._groups: dict[str, _Entry] = {}
        self._waiting: dict[int, asyncio.Future[Joined | Synced]] = {}
        self._waiters = count(1)
        self._order = 0  # of the last commit
        self._life = _Life.LOADING

    def use(self, store: HomeStore, guard: OffsetGuard) -> None:
        """Before `start`: from now on `store` says of which groups this host is the home."""
        self._store = self._journal.store = store
        self._guard = guard

    async def start(self) -> None:
        """Loads groups and offsets from the tables; session time-outs start anew. Serves from here on.

        On a joined host the groups are served once `own` has said in which epoch.
        """
        for table in (GROUPS, OFFSETS, PENDING):
            for key, value in self._tables.load(table).items():
                self._restore(table, key, value)
        for entry in list(self._groups.values()):
            self._follow(entry)
        self._life = _Life.SERVING

    def _restore(self, table: str, key: str, value: bytes) -> None:
        """Takes one row of the tables into memory."""
        if table == GROUPS:
            record, now = decode_group(value), self._now()
            since = now - (self._now_ms() - record.since_ms) / 1000
            self._loaded(key).group.restore(record, since, now)
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
        self._life = _Life.CLOSED
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
        """What another host would need to become the group's home: without members, who join again."""
        entry = self._groups.get(group_id)
        if entry is None:
            return {}
        rows = entry.offsets.rows()
        if entry.group.generation:
            group = GroupRecord(entry.group.generation, entry.group.protocol_type, "", "", (), self._now_ms())
            rows.append(Change(GROUPS, group_id, encode(group)))
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

    # --- membership

    async def join(self, request: JoinGroup) -> Joined:
        self._check(request.group_id)
        shortest, longest = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise TreecastError(
                Fault.INVALID_SESSION_TIMEOUT, f"the session timeout has to be {shortest} to {longest} ms"
            )
        if request.group_id not in self._groups and request.member_id:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        entry = self._entry(request.group_id)
        waiter, future = self._wait()
        entry.group.join(request, waiter, self._now())
        self._follow(entry)
        joined = await self._answer_to(waiter, future)
        assert isinstance(joined, Joined)
        return joined

    async def sync(self, request: SyncGroup) -> Synced:
        self._check(request.group_id)
        entry = self._groups.get(request.group_id)
        if entry is None:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        waiter, future = self._wait()
        entry.group.sync(request, waiter, self._now())
        self._follow(entry)
        synced = await self._answer_to(waiter, future)
        assert isinstance(synced, Synced)
        return synced

    async def heartbeat(self, group_id: str, member: MemberIdentity) -> None:
        self._check(group_id)
        entry = self._groups.get(group_id)
        if entry is None:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        try:
            entry.group.heartbeat(member, self._now())
        finally:
            self._schedule(entry)

    async def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> Sequence[TreecastError | None]:
        """Answered when on disk, where the group is empty by it."""
        self._check(group_id)
        entry = self._groups.get(group_id)
        if entry is None:
            return [TreecastError(Fault.UNKNOWN_MEMBER) for _ in members]
        answers = entry.group.leave(members, self._now())
        written = self._follow(entry)
        if written is not None:
            await asyncio.shield(written)
        return answers

    # --- offsets

    async def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> PartitionErrors:
        """Answered when on disk. Group ids may be empty here, as in Kafka."""
        self._check(group_id, may_be_empty=True)
        if group_id not in self._groups and member.generation >= 0:
            raise TreecastError(Fault.ILLEGAL_GENERATION)
        entry = self._entry(group_id)
        try:
            entry.group.check_commit(member, self._now(), in_transaction=False)
            taken, refused = split_by_metadata(offsets, self._settings.offset_metadata_max)
            if taken:
                records, changes = entry.offsets.begin_commit(taken, self._now_ms(), self._next_order())
                await self._write(entry, changes, partial(entry.offsets.end_commit, records))
        finally:
            self._follow(entry)
        self._counters.committed_offsets += len(taken)
        return refused

    async def fetch_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool
    ) -> Mapping[TopicPartition, CommittedOffset | TreecastError]:
        self._check(group_id, may_be_empty=True)
        entry = self._groups.get(group_id)
        return {} if entry is None else entry.offsets.fetch(partitions, require_stable=require_stable)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> PartitionErrors:
        self._check(group_id)
        entry = self._existing(group_id)
        entry.group.check_delete_offsets()
        refused = {
            partition: TreecastError(Fault.GROUP_SUBSCRIBED)
            for partition in partitions
            if entry.group.is_subscribed(partition.topic)
        }
        entry.emptied = True
        await self._write(entry, entry.offsets.remove([p for p in partitions if p not in refused]))
        return refused

    async def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> PartitionErrors:
        """TxnOffsetCommit; refused where no open transaction of the producer holds the group."""
        if self._guard is not None:
            waiting = self._guard.verify_offsets(transactional_id, producer, group_id)
            if waiting is not None:
                await waiting
        self._check(group_id)
        entry = self._entry(group_id)
        try:
            entry.group.check_commit(member, self._now(), in_transaction=True)
            taken, refused = split_by_metadata(offsets, self._settings.offset_metadata_max)
            if taken:
                records, changes = entry.offsets.add_pending(
                    producer, taken, self._now_ms(), self._next_order()
                )
                undo = partial(entry.offsets.drop_pending, producer.producer_id, records)
                await self._write(entry, changes, lambda error: None if error is None else undo())
        finally:
            self._follow(entry)
        return refused

    async def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> None:
        """Answered when on disk; may be repeated."""
        self._check(group_id)
        entry = self._entry(group_id)
        changes, done = entry.offsets.end_transaction(producer, self._now_ms(), committed=committed)
        if changes:
            await self._write(entry, changes, done)

    # --- administration

    async def describe(self, group_id: str) -> GroupDescription:
        self._check(group_id, may_be_empty=True)
        entry = self._groups.get(group_id)
        if entry is None or entry.blank:
            return GroupDescription(group_id, State.DEAD.value, "", "", ())
        return entry.group.description()

    def list_groups(self) -> Sequence[GroupListing]:
        if self._life is not _Life.SERVING:
            raise TreecastError(self._life.value)
        return [
            entry.group.listing()
            for entry in self._groups.values()
            if not entry.blank and self._is_home(entry)
        ]

    async def delete(self, group_id: str) -> None:
        self._check(group_id, may_be_empty=True)
        entry = self._existing(group_id)
        entry.group.delete(self._now())
        await self._write(entry, self._forget(group_id, entry), forget=True)

    async def forget_topic(self, topic: str) -> None:
        """Deletes the offsets committed on a topic that was deleted."""
        writes = []
        for entry in filter(self._is_home, self._groups.values()):
            changes = entry.offsets.remove([p for p in entry.offsets.partitions() if p.topic == topic])
            writes += [self._write(entry, changes)] if changes else []
        await asyncio.gather(*writes)

    async def expire_offsets(self) -> None:
        """Deletes offsets past their retention, and groups of which nothing is left. For housekeeping."""
        writes = []
        for entry in list(self._groups.values()):
            entry.emptied = False
            changes, forget = self._expired(entry) if self._is_home(entry) else ([], False)
            writes += [self._write(entry, changes, forget=forget)] if changes else []
        await asyncio.gather(*writes)

    def _expired(self, entry: _Entry) -> tuple[list[Change], bool]:
        """What is to be deleted of a group, and whether that is all of it."""
        due = self._due(entry.group)
        expired = [] if due is None else entry.offsets.expired(due)
        self._counters.expired_offsets += len(expired)
        before_ms = self._now_ms() - self._settings.producer_id_expiration_ms
        changes = [*entry.offsets.remove(expired), *entry.offsets.forget_producers(before_ms)]
        if not entry.group.idle or entry.offsets or entry.offsets.remembers:
            return changes, False
        entry.group.forget(self._now())
        return [*changes, *self._forget(entry.group.group_id, entry)], True

    def expire(self) -> None:
        """Does what is due by now. The coordinator's own timer calls it."""
        now = self._now()
        for key in self._deadlines.take_due(now):
            entry = self._groups.get(str(key))
            if entry is not None and self._is_home(entry):
                entry.group.expire(now)
                self._follow(entry)

    # --- inside

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
        if self._life is not _Life.SERVING:
            raise TreecastError(self._life.value)
        if self._store is not None:
            self._store.epoch(HomeName(HomeKind.GROUP, group_id))
        if not group_id and not may_be_empty:
            raise TreecastError(Fault.INVALID_GROUP, "a group id cannot be empty")

    def _entry(self, group_id: str) -> _Entry:
        """The group, made if nobody has named it yet. NOT_COORDINATOR where its home is elsewhere."""
        entry = self._groups.get(group_id)
        if entry is None:
            store = self._store
            entry = self._loaded(group_id)
            entry.epoch = 0 if store is None else store.epoch(HomeName(HomeKind.GROUP, group_id))
        return entry

    def _loaded(self, group_id: str) -> _Entry:
        """The group as it is loaded, wherever its home may be."""
        entry = self._groups.get(group_id)
        if entry is None:
            group = Group(group_id, self._settings, self._counters, self._new_member_id, self._now())
            entry = self._groups[group_id] = _Entry(group, GroupOffsets(group_id), 0)
        return entry

    def _is_home(self, entry: _Entry) -> bool:
        if self._store is None:
            return True
        try:
            return self._store.epoch(HomeName(HomeKind.GROUP, entry.group.group_id)) == entry.epoch
        except TreecastError:
            return False

    def _existing(self, group_id: str) -> _Entry:
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

    def _follow(self, entry: _Entry) -> asyncio.Future[TreecastError | None] | None:
        """Does what the group wants done. Answers the future of its last write, if there was one."""
        group, written = entry.group, None
        for effect in group.take_effects():
            if isinstance(effect, Answer):
                self._answer(effect)
            elif isinstance(effect, Write):
                written = self._write_group(entry, effect)
            elif isinstance(effect, Note):
                why = effect.reason or "no reason given"
                log.info("group %s: %s: %s (%s)", group.group_id, effect.event, effect.member_id, why)
        self._schedule(entry)
        return written

    def _schedule(self, entry: _Entry) -> None:
        """Sees to it that the group's next deadline is kept; drops a group of which there is nothing."""
        group = entry.group
        if self._life is _Life.CLOSED or self._groups.get(group.group_id) is not entry:
            return
        if entry.blank and not entry.offsets.remembers:
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

    def _write_group(self, entry: _Entry, write: Write) -> asyncio.Future[TreecastError | None]:
        record = msgspec.structs.replace(write.record, since_ms=self._now_ms())

        def done(error: TreecastError | None) -> None:
            entry.group.written(write.then, error, self._now())
            self._follow(entry)

        group_id = entry.group.group_id
        return self._journal.submit(group_id, entry.epoch, [Change(GROUPS, group_id, encode(record))], done)

    async def _write(
        self,
        entry: _Entry,
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

    def _forget(self, group_id: str, entry: _Entry) -> list[Change]:
        """Takes a dead group out; answers what is to be deleted of it."""
        self._groups.pop(group_id, None)
        self._deadlines.discard(group_id)
        return [*entry.offsets.remove_all(), Change(GROUPS, group_id, None)]

    def _due(self, group: Group) -> Callable[[TopicPartition, OffsetRecord], bool] | None:
        """Which offsets of `group` have outlived the retention; None: none of them.

        After KIP-211: in an empty group, those not committed since it became empty; in a stable group
        of consumers, those of topics that no member reads; without members ever, by age alone.
        """
        now_ms, retention = self._now_ms(), self._settings.offsets_retention_ms
        if group.state is State.EMPTY:
            used_ms = now_ms - int((self._now() - group.since) * 1000) if group.protocol_type else 0
            return lambda _, record: now_ms - max(used_ms, record.committed_ms) >= retention
        subscribed = group.subscribed
        if group.state is State.STABLE and group.protocol_type == CONSUMER and subscribed is not None:
            return lambda p, record: p.topic not in subscribed and now_ms - record.committed_ms >= retention
        return None
