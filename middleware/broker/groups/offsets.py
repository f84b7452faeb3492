"""One group's committed offsets, and offsets pending in transactions.

A commit becomes visible once it is on disk. Until then, and while a transaction is open, the offset is
unstable (KIP-447). Of two commits of a partition, the one that reached this host later counts. For a
transaction's offset this is the time at which it was added, not the time of the decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from treecast.middleware.broker.values import CommittedOffset, OffsetCommits
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Change

from .effects import Done
from .records import OFFSETS, PENDING, OffsetRecord, PendingRecord, encode, offset_key, pending_key


class _Producer:
    """A producer's newest epoch, and the offsets of its open transaction."""

    def __init__(
        self, epoch: int, touched_ms: int, offsets: dict[TopicPartition, OffsetRecord] | None = None
    ) -> None:
        self.epoch = epoch
        self.touched_ms = touched_ms
        self.offsets: dict[TopicPartition, OffsetRecord] = offsets or {}
        # one entry for each transaction whose decision is not on disk yet
        self.closing: list[dict[TopicPartition, OffsetRecord]] = []


def split_by_metadata(
    offsets: OffsetCommits, limit: int
) -> tuple[OffsetCommits, dict[TopicPartition, TreecastError]]:
    """Splits commits into acceptable ones and errors for metadata longer than `limit` characters."""
    refused = {
        partition: TreecastError(Fault.OFFSET_METADATA_TOO_LARGE)
        for partition, commit in offsets.items()
        if len(commit.metadata) > limit
    }
    if not refused:
        return offsets, refused
    return {p: commit for p, commit in offsets.items() if p not in refused}, refused


class GroupOffsets:
    """The offsets of one group. Mutating methods return the changes to write."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._committed: dict[TopicPartition, OffsetRecord] = {}
        self._writing: dict[TopicPartition, list[int]] = {}  # orders of commits that are not on disk yet
        self._producers: dict[int, _Producer] = {}

    # --- look-ups

    def __bool__(self) -> bool:
        """Whether clients can see any offset."""
        return bool(self._committed or self._unstable())

    @property
    def remembers(self) -> bool:
        """Whether producers' epochs must be kept although clients see no offset."""
        return bool(self._producers)

    def fetch(
        self, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, CommittedOffset | TreecastError]:
        """Returns the committed offsets of `partitions` or of all; UNSTABLE_OFFSETS for open ones."""
        unstable = self._unstable() if require_stable else frozenset[TopicPartition]()
        found: dict[TopicPartition, CommittedOffset | TreecastError] = {}
        for partition in self._committed if partitions is None else partitions:
            if partition in unstable:
                found[partition] = TreecastError(Fault.UNSTABLE_OFFSETS)
            elif partition in self._committed:
                found[partition] = self._committed[partition].value()
        return found

    def _unstable(self) -> frozenset[TopicPartition]:
        added = (one for p in self._producers.values() for one in (p.offsets, *p.closing))
        return frozenset(self._writing).union(*added)

    def partitions(self) -> set[TopicPartition]:
        """All partitions with a committed, pending or unwritten offset."""
        return self._committed.keys() | self._unstable()

    # --- committing

    def begin_commit(
        self, offsets: OffsetCommits, now_ms: int, order: int
    ) -> tuple[dict[TopicPartition, OffsetRecord], list[Change]]:
        """Returns the argument for `end_commit`, and the changes to write before that call."""
        records = {p: OffsetRecord.of(commit, now_ms, order) for p, commit in offsets.items()}
        return records, self._begin(records)

    def _begin(self, records: Mapping[TopicPartition, OffsetRecord]) -> list[Change]:
        for partition, record in records.items():
            self._writing.setdefault(partition, []).append(record.order)
        return [self._set(partition, record) for partition, record in records.items()]

    def end_commit(self, records: Mapping[TopicPartition, OffsetRecord], error: TreecastError | None) -> None:
        for partition, record in records.items():
            orders = self._writing.get(partition, [])
            if record.order not in orders:
                continue  # deleted during the write
            orders.remove(record.order)
            if not orders:
                del self._writing[partition]
            if error is None:
                self._put(partition, record)

    def _put(self, partition: TopicPartition, record: OffsetRecord) -> None:
        if self._is_newest(partition, record):
            self._committed[partition] = record

    def _is_newest(self, partition: TopicPartition, record: OffsetRecord) -> bool:
        current = self._committed.get(partition)
        return current is None or current.order <= record.order

    def _set(self, partition: TopicPartition, record: OffsetRecord) -> Change:
        return Change(OFFSETS, offset_key(self._group_id, partition), encode(record))

    # --- transactions

    def add_pending(
        self, identity: ProducerIdentity, offsets: OffsetCommits, now_ms: int, order: int
    ) -> tuple[dict[TopicPartition, OffsetRecord], list[Change]]:
        """Adds unstable offsets to the open transaction. Call `drop_pending` if the write fails."""
        producer = self._producers.setdefault(identity.producer_id, _Producer(identity.epoch, now_ms))
        if identity.epoch < producer.epoch:
            raise TreecastError(Fault.INVALID_PRODUCER_EPOCH)
        if identity.epoch > producer.epoch and (producer.offsets or producer.closing):
            # The decision for the transaction of the older epoch has not arrived yet.
            raise TreecastError(Fault.COORDINATOR_LOADING, "the previous transaction has not ended yet")
        records = {p: OffsetRecord.of(commit, now_ms, order) for p, commit in offsets.items()}
        producer.epoch, producer.touched_ms = identity.epoch, now_ms
        producer.offsets.update(records)
        return records, [self._set_pending(identity.producer_id, producer)]

    def drop_pending(self, producer_id: int, records: Mapping[TopicPartition, OffsetRecord]) -> None:
        """Reverts `add_pending`."""
        producer = self._producers.get(producer_id)
        if producer is not None:
            for partition, record in records.items():
                if producer.offsets.get(partition) is record:
                    del producer.offsets[partition]

    def end_transaction(
        self, identity: ProducerIdentity, now_ms: int, *, committed: bool
    ) -> tuple[list[Change], Done]:
        """Returns the changes to write for the decision, and the callback for the result of the write.

        The epoch is remembered, so that a late commit of the same transaction is refused. A decision of an
        older epoch changes nothing.
        """
        producer = self._producers.setdefault(identity.producer_id, _Producer(identity.epoch, now_ms))
        if identity.epoch < producer.epoch:
            return [], lambda error: None
        producer.epoch, producer.touched_ms = identity.epoch, now_ms
        decided, producer.offsets = producer.offsets, {}
        producer.closing.append(decided)
        kept = {p: record for p, record in decided.items() if committed and self._outlives(p, record)}
        changes = self._begin(kept)
        changes.append(self._set_pending(identity.producer_id, producer))
        return changes, partial(self._decided, producer, decided, kept)

    def _decided(
        self,
        producer: _Producer,
        decided: dict[TopicPartition, OffsetRecord],
        kept: Mapping[TopicPartition, OffsetRecord],
        error: TreecastError | None,
    ) -> None:
        """Completes a decision. `decided` no longer holds offsets deleted in the meantime."""
        producer.closing = [others for others in producer.closing if others is not decided]
        self.end_commit(kept, error)
        if error is not None:
            producer.offsets = decided | producer.offsets

    def _outlives(self, partition: TopicPartition, record: OffsetRecord) -> bool:
        """Whether there is no later commit of the partition, written or in progress."""
        later = any(order > record.order for order in self._writing.get(partition, ()))
        return self._is_newest(partition, record) and not later

    def _set_pending(self, producer_id: int, producer: _Producer) -> Change:
        offsets = tuple((p.topic, p.partition, record) for p, record in producer.offsets.items())
        value = encode(PendingRecord(producer.epoch, producer.touched_ms, offsets))
        return Change(PENDING, pending_key(self._group_id, producer_id), value)

    # --- deleting

    def remove(self, partitions: Collection[TopicPartition]) -> list[Change]:
        """Removes `partitions`, including writes in progress and pending offsets."""
        gone = self.partitions() & set(partitions)
        changes = [Change(OFFSETS, offset_key(self._group_id, partition), None) for partition in gone]
        for partition in gone:
            self._committed.pop(partition, None)
            self._writing.pop(partition, None)
        for producer_id, producer in self._producers.items():
            for decided in producer.closing:
                for partition in decided.keys() & gone:
                    del decided[partition]
            if producer.offsets.keys() & gone:
                producer.offsets = {p: r for p, r in producer.offsets.items() if p not in gone}
                changes.append(self._set_pending(producer_id, producer))
        return changes

    def remove_all(self) -> list[Change]:
        """Removes all offsets of a group that ends."""
        changes = self.remove(self.partitions())
        changes += [Change(PENDING, pending_key(self._group_id, p), None) for p in self._producers]
        self._producers.clear()
        return changes

    def expired(self, due: Callable[[TopicPartition, OffsetRecord], bool]) -> list[TopicPartition]:
        """Returns the partitions whose committed offsets are `due` and not open."""
        unstable = self._unstable()
        return [p for p, record in self._committed.items() if p not in unstable and due(p, record)]

    def forget_producers(self, before_ms: int) -> list[Change]:
        """Forgets the epochs of producers silent since `before_ms` without an open transaction."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if not producer.offsets and not producer.closing and producer.touched_ms <= before_ms
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return [Change(PENDING, pending_key(self._group_id, producer_id), None) for producer_id in gone]

    # --- after a restart, and for another host

    def rows(self) -> list[Change]:
        """The rows that the tables hold while no write is in progress."""
        rows = [self._set(partition, record) for partition, record in self._committed.items()]
        return rows + [self._set_pending(number, producer) for number, producer in self._producers.items()]

    def restore(self, partition: TopicPartition, record: OffsetRecord) -> None:
        self._committed[partition] = record

    def restore_pending(self, producer_id: int, record: PendingRecord) -> None:
        offsets = {TopicPartition(topic, partition): r for topic, partition, r in record.offsets}
        self._producers[producer_id] = _Producer(record.epoch, record.touched_ms, offsets)
