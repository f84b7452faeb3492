"""`GroupCoordinator`: the groups that live on this host, and the asyncio edge around them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

from treecast.middleware.broker.homes import HomeStore
from treecast.middleware.broker.resting import rest
from treecast.middleware.broker.values import (
    NOBODY,
    CommittedOffset,
    ConfigChange,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
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
from treecast.middleware.model.budget import unbounded
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Change

from . import joining, syncing
from .at_once import RepeatedRequests
from .config import altered
from .consumer import classic as classic_members
from .consumer.group import ConsumerGroup, check_request
from .entry import Entry
from .loaded import Life, LoadedGroups
from .offsets import split_by_metadata
from .records import CONFIGS, encode
from .state import State

T = TypeVar("T")


class OffsetGuard(Protocol):
    """Knows whether a producer's open transaction includes a group, so that its end decides the offsets."""

    def verify_offsets(
        self, transactional_id: str, producer: ProducerIdentity, group_id: str
    ) -> Awaitable[None] | None:
        """Raises the refusal at once, or returns an awaitable if the transaction's home must be asked."""


class GroupCoordinator:
    """Implements `cluster.GroupHome`: the requests to the groups that are `loaded`.

    Cancelling a waiting join or sync leaves the member in the group until its session expires.
    """

    def __init__(self, loaded: LoadedGroups, guard: OffsetGuard | None = None) -> None:
        self.loaded = loaded
        self.work = unbounded()  # the budget of costly requests; the owner of the loop replaces it
        self._settings = loaded.settings
        self._counters = loaded.counters
        self._guard = guard
        self.at_once = RepeatedRequests(loaded)

    def use(self, store: HomeStore, guard: OffsetGuard) -> None:
        """Sets what knows which groups and transactions have their home here. Call before loading."""
        self.loaded.use(store)
        self._guard = guard

    # --- membership

    async def join(self, request: JoinGroup) -> Joined:
        self.loaded.check(request.group_id)
        shortest, longest = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise TreecastError(
                Fault.INVALID_SESSION_TIMEOUT,
                f"the session timeout must be between {shortest} and {longest} ms",
            )
        if request.group_id not in self.loaded.entries and request.member_id:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        entry = self.loaded.entry(request.group_id)
        if isinstance(entry.group, ConsumerGroup) and entry.group.members:
            size = self._settings.max_size
            return await self._consumers(entry, lambda g, now: classic_members.join(g, request, size, now))
        group = self.loaded.as_classic(entry)
        waiter, future = self.loaded.waiters.begin()
        joining.join(group, request, waiter, self.loaded.now())
        self.loaded.follow(entry)
        joined = await self.loaded.waiters.wait(waiter, future)
        assert isinstance(joined, Joined)
        return joined

    async def sync(self, request: SyncGroup) -> Synced:
        self.loaded.check(request.group_id)
        entry = self.loaded.entries.get(request.group_id)
        if entry is None:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        if isinstance(entry.group, ConsumerGroup):
            return await self._consumers(entry, lambda g, now: classic_members.sync(g, request, now))
        waiter, future = self.loaded.waiters.begin()
        syncing.sync(entry.group, request, waiter, self.loaded.now())
        self.loaded.follow(entry)
        synced = await self.loaded.waiters.wait(waiter, future)
        assert isinstance(synced, Synced)
        return synced

    async def heartbeat(self, group_id: str, member: MemberIdentity) -> None:
        if not self.at_once.heartbeat(group_id, member):
            entry = self.loaded.entries[group_id]
            await self._consumers(entry, lambda g, now: classic_members.heartbeat(g, member, now))

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Answers once the change is on disk. The first join turns a group of classic consumers into a group
        of type consumer.
        """
        self.loaded.check(request.group_id)
        check_request(request)
        if request.regex:
            await self._learn([request.regex])
        entry = self.loaded.entries.get(request.group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            with suppress(TreecastError):  # the group leaves out topics that now take too long
                await self._learn(entry.group.topics.unseen_expressions())
        entry = self.loaded.entries.get(request.group_id)
        if request.member_epoch == 0:
            entry = self.loaded.entry(request.group_id)
            try:
                self.loaded.as_consumers(entry, request)
            except TreecastError:
                self.loaded.schedule(entry)
                raise
        elif entry is None or not isinstance(entry.group, ConsumerGroup):
            raise TreecastError(Fault.UNKNOWN_MEMBER, "there is no such group of type consumer")
        return await self._consumers(entry, lambda g, now: g.heartbeat(request, now))

    async def _consumers(self, entry: Entry, call: Callable[[ConsumerGroup, float], T]) -> T:
        """Returns the result of `call` once the state behind it is on disk."""
        group = entry.group
        assert isinstance(group, ConsumerGroup)
        try:
            answer = call(group, self.loaded.now())
        finally:
            written = self.loaded.follow(entry)
        error = None if written is None else await asyncio.shield(written)
        if error is not None:
            raise TreecastError(error.fault, error.detail)
        return answer

    async def _learn(self, expressions: Iterable[str]) -> None:
        """Matches the topics with regular expressions, so that the group finds the results at once. Raises
        INVALID_REGEX."""
        for text in expressions:
            while not self.loaded.patterns.learn(text, self.work):
                await rest(self.work)

    async def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> Sequence[TreecastError | None]:
        """If the group becomes empty, answers once that is on disk."""
        self.loaded.check(group_id)
        entry = self.loaded.entries.get(group_id)
        if entry is None:
            return [TreecastError(Fault.UNKNOWN_MEMBER) for _ in members]
        group, now = entry.group, self.loaded.now()
        if isinstance(group, ConsumerGroup):
            answers = classic_members.leave(group, members, now)
        else:
            answers = group.leave(members, now)
        written = self.loaded.follow(entry)
        if written is not None:
            await asyncio.shield(written)
        return answers

    # --- offsets

    async def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> PartitionErrors:
        """Answers once the offsets are on disk. Accepts an empty group id, as Kafka does."""
        answered: asyncio.Future[PartitionErrors] = asyncio.get_running_loop().create_future()
        self.at_once.commit(group_id, member, offsets, partial(_settle, answered))
        return await answered

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberIdentity = NOBODY,
    ) -> Mapping[TopicPartition, CommittedOffset | TreecastError]:
        self.loaded.check(group_id, may_be_empty=True)
        entry = self.loaded.entries.get(group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            entry.group.check_fetch(member.member_id, member.generation)
        return {} if entry is None else entry.offsets.fetch(partitions, require_stable=require_stable)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> PartitionErrors:
        self.loaded.check(group_id)
        entry = self.loaded.existing(group_id)
        entry.group.check_delete_offsets()
        refused = {
            partition: TreecastError(Fault.GROUP_SUBSCRIBED)
            for partition in partitions
            if entry.group.is_subscribed(partition.topic)
        }
        entry.emptied = True
        await self.loaded.write(entry, entry.offsets.remove([p for p in partitions if p not in refused]))
        return refused

    async def commit_transaction_offsets(
        self,
        group_id: str,
        member: MemberIdentity,
        transactional_id: str,
        producer: ProducerIdentity,
        offsets: OffsetCommits,
    ) -> PartitionErrors:
        """TxnOffsetCommit. Refuses the commit if no open transaction of the producer includes the group."""
        if self._guard is not None:
            waiting = self._guard.verify_offsets(transactional_id, producer, group_id)
            if waiting is not None:
                await waiting
        self.loaded.check(group_id)
        entry = self.loaded.entry(group_id)
        try:
            entry.group.check_commit(member, self.loaded.now(), in_transaction=True)
            taken, refused = split_by_metadata(offsets, self._settings.offset_metadata_max)
            if taken:
                records, changes = entry.offsets.add_pending(
                    producer, taken, self.loaded.now_ms(), self.loaded.next_order()
                )
                undo = partial(entry.offsets.drop_pending, producer.producer_id, records)
                await self.loaded.write(entry, changes, lambda error: None if error is None else undo())
        finally:
            self.loaded.follow(entry)
        return refused

    async def end_transaction_offsets(
        self, group_id: str, producer: ProducerIdentity, *, committed: bool
    ) -> None:
        """Answers once the decision is on disk. Idempotent."""
        self.loaded.check(group_id)
        entry = self.loaded.entry(group_id)
        changes, done = entry.offsets.end_transaction(producer, self.loaded.now_ms(), committed=committed)
        if changes:
            await self.loaded.write(entry, changes, done)

    # --- administration

    async def describe(self, group_id: str) -> GroupDescription:
        self.loaded.check(group_id, may_be_empty=True)
        entry = self.loaded.entries.get(group_id)
        if entry is None or entry.blank:
            return GroupDescription(group_id, State.DEAD.value, "", "", ())
        return entry.group.description()

    def list_groups(self) -> Sequence[GroupListing]:
        if self.loaded.life is not Life.SERVING:
            raise TreecastError(self.loaded.life.value)
        return [
            entry.group.listing()
            for entry in self.loaded.entries.values()
            if not entry.blank and self.loaded.is_home(entry)
        ]

    async def delete(self, group_id: str) -> None:
        self.loaded.check(group_id, may_be_empty=True)
        entry = self.loaded.existing(group_id)
        entry.group.delete(self.loaded.now())
        await self.loaded.write(entry, self.loaded.forget(group_id, entry), forget=True)

    async def alter_config(
        self, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Returns the group's own settings once `changes` are on disk. The group need not exist."""
        self.loaded.check(group_id)
        entry = self.loaded.entries.get(group_id)
        before: Mapping[str, str] = {} if entry is None else entry.config
        after = altered(before, changes, self._settings)
        if after != before and not validate_only:
            entry = self.loaded.entry(group_id)
            await self.loaded.write(entry, [Change(CONFIGS, group_id, encode(after) if after else None)])
            entry.config = after
            self.loaded.follow(entry)
        return after

    async def forget_topic(self, topic: str) -> None:
        """Deletes the committed offsets of a deleted topic."""
        writes = []
        for entry in filter(self.loaded.is_home, self.loaded.entries.values()):
            changes = entry.offsets.remove([p for p in entry.offsets.partitions() if p.topic == topic])
            writes += [self.loaded.write(entry, changes)] if changes else []
        await asyncio.gather(*writes)

    async def expire_offsets(self) -> None:
        """Deletes offsets past their retention and groups without any state left. Called by housekeeping."""
        writes = []
        for entry in list(self.loaded.entries.values()):
            entry.emptied = False
            changes, forget = self._expired(entry) if self.loaded.is_home(entry) else ([], False)
            writes += [self.loaded.write(entry, changes, forget=forget)] if changes else []
        await asyncio.gather(*writes)

    def _expired(self, entry: Entry) -> tuple[list[Change], bool]:
        """Returns the deletions that are due for a group, and whether they remove the whole group."""
        due = entry.due(self.loaded.now(), self.loaded.now_ms(), self._settings.offsets_retention_ms)
        expired = [] if due is None else entry.offsets.expired(due)
        self._counters.expired_offsets += len(expired)
        before_ms = self.loaded.now_ms() - self._settings.producer_id_expiration_ms
        changes = [*entry.offsets.remove(expired), *entry.offsets.forget_producers(before_ms)]
        if not entry.group.idle or entry.offsets or entry.remembers:
            return changes, False
        entry.group.forget(self.loaded.now())
        return [*changes, *self.loaded.forget(entry.group.group_id, entry)], True


def _settle(
    answered: asyncio.Future[PartitionErrors], refused: PartitionErrors, error: TreecastError | None
) -> None:
    if answered.done():
        return  # the requester has gone
    if error is None:
        answered.set_result(refused)
    else:
        answered.set_exception(error)
