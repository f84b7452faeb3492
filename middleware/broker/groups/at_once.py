"""The requests that consumers repeat with each poll, answered by a call instead of a coroutine."""

from __future__ import annotations

from functools import partial

from treecast.middleware.broker.cluster import CommitAnswer
from treecast.middleware.broker.values import MemberIdentity, OffsetCommits, PartitionErrors
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

from .consumer.group import ConsumerGroup
from .entry import Entry
from .loaded import LoadedGroups
from .offsets import split_by_metadata
from .records import OffsetRecord

_NONE: PartitionErrors = {}


class RepeatedRequests:
    """Implements `cluster.GroupsAtOnce` for the groups that are `loaded`."""

    def __init__(self, loaded: LoadedGroups) -> None:
        self._loaded = loaded

    def heartbeat(self, group_id: str, member: MemberIdentity) -> bool:
        loaded = self._loaded
        loaded.check(group_id)
        entry = loaded.entries.get(group_id)
        if entry is None:
            raise TreecastError(Fault.UNKNOWN_MEMBER)
        group = entry.group
        if isinstance(group, ConsumerGroup):
            return False
        try:
            group.heartbeat(member, loaded.now())
        finally:
            loaded.schedule(entry)
        return True

    def commit(
        self, group_id: str, member: MemberIdentity, offsets: OffsetCommits, answer: CommitAnswer
    ) -> None:
        loaded = self._loaded
        loaded.check(group_id, may_be_empty=True)
        if group_id not in loaded.entries and member.generation >= 0:
            raise TreecastError(Fault.ILLEGAL_GENERATION)
        entry = loaded.entry(group_id)
        try:
            entry.group.check_commit(member, loaded.now(), in_transaction=False)
            taken, refused = split_by_metadata(offsets, loaded.settings.offset_metadata_max)
        except TreecastError:
            loaded.follow(entry)
            raise
        if not taken:
            loaded.follow(entry)
            answer(refused, None)
            return
        records, changes = entry.offsets.begin_commit(taken, loaded.now_ms(), loaded.next_order())
        done = partial(self._committed, entry, records, refused, answer)
        loaded.journal.add(group_id, entry.epoch, changes, done)

    def _committed(
        self,
        entry: Entry,
        records: dict[TopicPartition, OffsetRecord],
        refused: PartitionErrors,
        answer: CommitAnswer,
        error: TreecastError | None,
    ) -> None:
        """The write has ended. The client is answered whatever becomes of the group meanwhile."""
        entry.offsets.end_commit(records, error)
        self._loaded.follow(entry)
        if error is None:
            self._loaded.counters.committed_offsets += len(records)
            answer(refused, None)
        else:
            answer(_NONE, TreecastError(error.fault, error.detail))
