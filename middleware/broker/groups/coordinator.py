"""`GroupCoordinator`: the groups that live on this host, and the asyncio edge around them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

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
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Change

from .config import altered
from .consumer import classic as classic_members
from .consumer.group import ConsumerGroup, check_request
from .entry import Entry
from .loaded import Life, LoadedGroups
from .offsets import split_by_metadata
from .records import CONFIGS, encode
from .state import State

T = TypeVar("T")


class GroupCoordinator(LoadedGroups):
    """Implements `cluster.GroupHome`. Cancelling a waiting join or sync leaves the member in the group until
    its session expires.
    """

    # --- membership

    async def join(self, request: JoinGroup) -> Joined:
        self._check(request.group_id)
        shortest, longest = self._settings.min_session_timeout_ms, self._settings.max_session_timeout_ms
        if not shortest <= request.session_timeout_ms <= longest:
            raise TreecastError(
                Fault.INVALID_SESSION_TIMEOUT,
                f"the session timeout must be between {shortest} and {longest} ms",
            )
        if request.group_id not in self._groups and request.member_id:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        entry = self._entry(request.group_id)
        if isinstance(entry.group, ConsumerGroup) and entry.group.members:
            size = self._settings.max_size
            return await self._consumers(entry, lambda g, now: classic_members.join(g, request, size, now))
        group = self._as_classic(entry)
        waiter, future = self._wait()
        group.join(request, waiter, self._now())
        self._follow(entry)
        joined = await self._answer_to(waiter, future)
        assert isinstance(joined, Joined)
        return joined

    async def sync(self, request: SyncGroup) -> Synced:
        self._check(request.group_id)
        entry = self._groups.get(request.group_id)
        if entry is None:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        if isinstance(entry.group, ConsumerGroup):
            return await self._consumers(entry, lambda g, now: classic_members.sync(g, request, now))
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
        if isinstance(entry.group, ConsumerGroup):
            await self._consumers(entry, lambda g, now: classic_members.heartbeat(g, member, now))
            return
        try:
            entry.group.heartbeat(member, self._now())
        finally:
            self._schedule(entry)

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Answers once the change is on disk. The first join turns a group of classic consumers into a group
        of type consumer.
        """
        self._check(request.group_id)
        check_request(request)
        if request.regex:
            await self._learn([request.regex])
        entry = self._groups.get(request.group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            with suppress(TreecastError):  # the group leaves out topics that now take too long
                await self._learn(entry.group.unseen_expressions())
        entry = self._groups.get(request.group_id)
        if request.member_epoch == 0:
            entry = self._entry(request.group_id)
            try:
                self._as_consumers(entry, request)
            except TreecastError:
                self._schedule(entry)
                raise
        elif entry is None or not isinstance(entry.group, ConsumerGroup):
            raise TreecastError(Fault.UNKNOWN_MEMBER, "there is no such group of type consumer")
        return await self._consumers(entry, lambda g, now: g.heartbeat(request, now))

    async def _learn(self, expressions: Iterable[str]) -> None:
        """Matches the topics with regular expressions, so that the group finds the results at once. Raises
        INVALID_REGEX."""
        for text in expressions:
            while not self._patterns.learn(text, self.work):
                await rest(self.work)

    async def leave(self, group_id: str, members: Sequence[MemberIdentity]) -> Sequence[TreecastError | None]:
        """If the group becomes empty, answers once that is on disk."""
        self._check(group_id)
        entry = self._groups.get(group_id)
        if entry is None:
            return [TreecastError(Fault.UNKNOWN_MEMBER) for _ in members]
        group, now = entry.group, self._now()
        if isinstance(group, ConsumerGroup):
            answers = classic_members.leave(group, members, now)
        else:
            answers = group.leave(members, now)
        written = self._follow(entry)
        if written is not None:
            await asyncio.shield(written)
        return answers

    # --- offsets

    async def commit_offsets(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits
    ) -> PartitionErrors:
        """Answers once the offsets are on disk. Accepts an empty group id, as Kafka does."""
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
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool,
        member: MemberIdentity = NOBODY,
    ) -> Mapping[TopicPartition, CommittedOffset | TreecastError]:
        self._check(group_id, may_be_empty=True)
        entry = self._groups.get(group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            entry.group.check_fetch(member.member_id, member.generation)
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
        """TxnOffsetCommit. Refuses the commit if no open transaction of the producer includes the group."""
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
        """Answers once the decision is on disk. Idempotent."""
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
        if self._life is not Life.SERVING:
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

    async def alter_config(
        self, group_id: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Returns the group's own settings once `changes` are on disk. The group need not exist."""
        self._check(group_id)
        entry = self._groups.get(group_id)
        before: Mapping[str, str] = {} if entry is None else entry.config
        after = altered(before, changes, self._settings)
        if after != before and not validate_only:
            entry = self._entry(group_id)
            await self._write(entry, [Change(CONFIGS, group_id, encode(after) if after else None)])
            entry.config = after
            self._follow(entry)
        return after

    async def forget_topic(self, topic: str) -> None:
        """Deletes the committed offsets of a deleted topic."""
        writes = []
        for entry in filter(self._is_home, self._groups.values()):
            changes = entry.offsets.remove([p for p in entry.offsets.partitions() if p.topic == topic])
            writes += [self._write(entry, changes)] if changes else []
        await asyncio.gather(*writes)

    async def expire_offsets(self) -> None:
        """Deletes offsets past their retention and groups without any state left. Called by housekeeping."""
        writes = []
        for entry in list(self._groups.values()):
            entry.emptied = False
            changes, forget = self._expired(entry) if self._is_home(entry) else ([], False)
            writes += [self._write(entry, changes, forget=forget)] if changes else []
        await asyncio.gather(*writes)

    def _expired(self, entry: Entry) -> tuple[list[Change], bool]:
        """Returns the deletions that are due for a group, and whether they remove the whole group."""
        due = entry.due(self._now(), self._now_ms(), self._settings.offsets_retention_ms)
        expired = [] if due is None else entry.offsets.expired(due)
        self._counters.expired_offsets += len(expired)
        before_ms = self._now_ms() - self._settings.producer_id_expiration_ms
        changes = [*entry.offsets.remove(expired), *entry.offsets.forget_producers(before_ms)]
        if not entry.group.idle or entry.offsets or entry.remembers:
            return changes, False
        entry.group.forget(self._now())
        return [*changes, *self._forget(entry.group.group_id, entry)], True
