"""Committed and pending offsets of one group, compared with a plain list of all operations."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from treecast.middleware.broker.groups import records as rows
from treecast.middleware.broker.groups.offsets import GroupOffsets, split_by_metadata
from treecast.middleware.broker.values import CommittedOffset
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicPartition
from treecast.middleware.storage.tables import Change

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PARTITIONS = (T0, T1, U0)
FIRST, SECOND = ProducerIdentity(7, 0), ProducerIdentity(7, 1)
FAILED = TreecastError(Fault.STORAGE)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 3, f"at {offset}")


def stable(offsets: GroupOffsets, partition: TopicPartition) -> CommittedOffset | Fault | None:
    found = offsets.fetch([partition], require_stable=True).get(partition)
    return found.fault if isinstance(found, TreecastError) else found


def commit(offsets: GroupOffsets, partition: TopicPartition, value: int, order: int) -> None:
    records, _ = offsets.begin_commit({partition: at(value)}, 0, order)
    offsets.end_commit(records, None)


def end(offsets: GroupOffsets, identity: ProducerIdentity, *, committed: bool, fails: bool = False) -> None:
    _, done = offsets.end_transaction(identity, 0, committed=committed)
    done(FAILED if fails else None)


def test_a_commit_is_seen_once_it_is_on_disk() -> None:
    offsets = GroupOffsets("g")
    records, changes = offsets.begin_commit({T0: at(5)}, 0, 1)
    assert offsets.fetch(None, require_stable=False) == {}
    assert stable(offsets, T0) is Fault.UNSTABLE_OFFSETS
    assert len(changes) == 1
    offsets.end_commit(records, None)
    assert offsets.fetch(None, require_stable=True) == {T0: at(5)}


def test_a_commit_that_cannot_be_written_never_was() -> None:
    offsets = GroupOffsets("g")
    commit(offsets, T0, 5, 1)
    records, _ = offsets.begin_commit({T0: at(6)}, 0, 2)
    offsets.end_commit(records, FAILED)
    assert stable(offsets, T0) == at(5)


def test_what_was_never_committed_is_left_out() -> None:
    offsets = GroupOffsets("g")
    commit(offsets, T0, 5, 1)
    assert offsets.fetch([T0, T1], require_stable=True) == {T0: at(5)}


def test_metadata_too_long() -> None:
    taken, refused = split_by_metadata(
        {T0: CommittedOffset(1, metadata="é" * 4), T1: CommittedOffset(1, metadata="x" * 5)}, 4
    )
    assert set(taken) == {T0}
    assert refused[T1].fault is Fault.OFFSET_METADATA_TOO_LARGE


def test_a_transactions_offsets_are_seen_when_it_is_committed() -> None:
    offsets = GroupOffsets("g")
    commit(offsets, T0, 5, 1)
    offsets.add_pending(FIRST, {T0: at(9)}, 0, 2)
    assert offsets.fetch([T0], require_stable=False) == {T0: at(5)}
    assert stable(offsets, T0) is Fault.UNSTABLE_OFFSETS
    end(offsets, FIRST, committed=True)
    assert stable(offsets, T0) == at(9)


def test_a_transactions_offsets_are_gone_when_it_is_aborted() -> None:
    offsets = GroupOffsets("g")
    commit(offsets, T0, 5, 1)
    offsets.add_pending(FIRST, {T0: at(9), T1: at(9)}, 0, 2)
    end(offsets, FIRST, committed=False)
    assert offsets.fetch(None, require_stable=True) == {T0: at(5)}


def test_all_means_all_that_is_committed() -> None:
    """As in Kafka, a partition that only a transaction has named is left out."""
    offsets = GroupOffsets("g")
    offsets.add_pending(FIRST, {T0: at(9)}, 0, 1)
    assert offsets.fetch(None, require_stable=True) == {}
    assert offsets


def test_a_later_commit_outlives_the_transaction() -> None:
    offsets = GroupOffsets("g")
    offsets.add_pending(FIRST, {T0: at(9)}, 0, 1)
    commit(offsets, T0, 5, 2)
    end(offsets, FIRST, committed=True)
    assert stable(offsets, T0) == at(5)


def test_a_decision_that_cannot_be_written_is_open_still() -> None:
    offsets = GroupOffsets("g")
    offsets.add_pending(FIRST, {T0: at(9)}, 0, 1)
    end(offsets, FIRST, committed=True, fails=True)
    assert stable(offsets, T0) is Fault.UNSTABLE_OFFSETS
    end(offsets, FIRST, committed=True)
    assert stable(offsets, T0) == at(9)


def test_a_decision_may_be_repeated() -> None:
    offsets = GroupOffsets("g")
    offsets.add_pending(FIRST, {T0: at(9)}, 0, 1)
    end(offsets, FIRST, committed=True)
    commit(offsets, T0, 10, 2)
    end(offsets, FIRST, committed=True)
    assert stable(offsets, T0) == at(10)


def test_an_older_epoch_is_fenced() -> None:
    """The transaction timed out and was aborted with the next epoch; its producer does not know yet."""
    offsets = GroupOffsets("g")
    end(offsets, SECOND, committed=False)
    with pytest.raises(TreecastError) as refused:
        offsets.add_pending(FIRST, {T0: at(9)}, 0, 1)
    assert refused.value.fault is Fault.INVALID_PRODUCER_EPOCH
    offsets.add_pending(SECOND, {T0: at(9)}, 0, 2)
    assert offsets.end_transaction(FIRST, 0, committed=True)[0] == []
    assert stable(offsets, T0) is Fault.UNSTABLE_OFFSETS


def test_a_newer_epoch_waits_for_the_decision_on_the_older() -> None:
    offsets = GroupOffsets("g")
    offsets.add_pending(FIRST, {T0: at(9)}, 0, 1)
    with pytest.raises(TreecastError) as refused:
        offsets.add_pending(SECOND, {T0: at(10)}, 0, 2)
    assert refused.value.fault is Fault.COORDINATOR_LOADING
    end(offsets, FIRST, committed=True)
    offsets.add_pending(SECOND, {T0: at(10)}, 0, 3)


def test_what_cannot_be_added_is_taken_back() -> None:
    offsets = GroupOffsets("g")
    records, _ = offsets.add_pending(FIRST, {T0: at(9)}, 0, 1)
    offsets.drop_pending(FIRST.producer_id, records)
    assert stable(offsets, T0) is None


def test_what_is_deleted_does_not_come_back() -> None:
    offsets = GroupOffsets("g")
    written, _ = offsets.begin_commit({T0: at(5)}, 0, 1)
    offsets.add_pending(FIRST, {T1: at(9)}, 0, 2)
    _, done = offsets.end_transaction(FIRST, 0, committed=True)
    removed = offsets.remove([T0, T1])
    assert {c.key for c in removed if c.value is None} == {rows.offset_key("g", p) for p in (T0, T1)}
    offsets.end_commit(written, None)
    done(None)
    assert offsets.fetch(PARTITIONS, require_stable=True) == {}
    assert not offsets


def test_expiry_leaves_what_is_open() -> None:
    offsets = GroupOffsets("g")
    for order, partition in enumerate(PARTITIONS):
        commit(offsets, partition, 1, order)
    offsets.add_pending(FIRST, {T0: at(9)}, 0, 9)
    offsets.begin_commit({T1: at(9)}, 0, 10)
    assert offsets.expired(lambda partition, record: True) == [U0]


def test_epochs_of_producers_are_forgotten_in_the_end() -> None:
    offsets = GroupOffsets("g")
    offsets.end_transaction(FIRST, 1_000, committed=False)[1](None)
    assert offsets.forget_producers(999) == []
    assert offsets.remembers
    assert offsets.forget_producers(1_000) == [Change(rows.PENDING, rows.pending_key("g", 7), None)]
    assert not offsets.remembers


def test_epochs_of_open_transactions_are_not_forgotten() -> None:
    offsets = GroupOffsets("g")
    offsets.add_pending(FIRST, {T0: at(1)}, 0, 1)
    assert offsets.forget_producers(10**15) == []


# --- against a reference


@dataclass
class Entry:
    """One commit for one partition, as the reference stores it."""

    order: int
    value: CommittedOffset
    producer: int | None
    state: str  # writing, open, closing, visible, gone


@dataclass
class Reference:
    """All commits of every partition, in order. The newest visible entry is the visible one."""

    entries: dict[TopicPartition, list[Entry]] = field(default_factory=lambda: {p: [] for p in PARTITIONS})

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        visible = {p: [e for e in entries if e.state == "visible"] for p, entries in self.entries.items()}
        return {p: max(found, key=lambda e: e.order).value for p, found in visible.items() if found}

    def unstable(self) -> set[TopicPartition]:
        open_states = {"writing", "open", "closing"}
        return {p for p, entries in self.entries.items() if any(e.state in open_states for e in entries)}


class OffsetsMachine(RuleBasedStateMachine):
    """Operations are submitted, and reach the disk later and in order, as through the journal."""

    def __init__(self) -> None:
        super().__init__()
        self.offsets = GroupOffsets("g")
        self.reference = Reference()
        self.order = 0
        self.queue: list[tuple[list[Change], object, list[Entry], str]] = []
        self.disk: dict[tuple[str, str], bytes] = {}

    def submit(self, changes, done, entries, state) -> None:
        self.queue.append((changes, done, entries, state))

    some = st.sets(st.sampled_from(PARTITIONS), min_size=1)

    @rule(partitions=some)
    def commit(self, partitions) -> None:
        self.order += 1
        commits = {p: at(self.order) for p in partitions}
        records, changes = self.offsets.begin_commit(commits, 0, self.order)
        entries = [Entry(self.order, at(self.order), None, "writing") for _ in partitions]
        for partition, entry in zip(partitions, entries, strict=True):
            self.reference.entries[partition].append(entry)
        self.submit(changes, lambda: self.offsets.end_commit(records, None), entries, "visible")

    @rule(partitions=some, producer=st.integers(1, 2))
    def add(self, partitions, producer) -> None:
        self.order += 1
        commits = {p: at(self.order) for p in partitions}
        _, changes = self.offsets.add_pending(ProducerIdentity(producer, 0), commits, 0, self.order)
        for partition in partitions:
            for entry in self.reference.entries[partition]:
                if entry.state == "open" and entry.producer == producer:
                    entry.state = "gone"
            self.reference.entries[partition].append(Entry(self.order, at(self.order), producer, "open"))
        self.submit(changes, lambda: None, [], "")

    @rule(producer=st.integers(1, 2), committed=st.booleans())
    def end(self, producer, committed) -> None:
        changes, done = self.offsets.end_transaction(ProducerIdentity(producer, 0), 0, committed=committed)
        mine = [
            entry
            for entries in self.reference.entries.values()
            for entry in entries
            if entry.producer == producer and entry.state == "open"
        ]
        for entry in mine:
            entry.state = "closing"
        self.submit(changes, lambda: done(None), mine, "visible" if committed else "gone")

    @rule(partitions=some)
    def remove(self, partitions) -> None:
        changes = self.offsets.remove(partitions)
        for partition in partitions:
            for entry in self.reference.entries[partition]:
                entry.state = "gone"
        self.submit(changes, lambda: None, [], "")

    @precondition(lambda self: self.queue)
    @rule()
    def reach_the_disk(self) -> None:
        changes, done, entries, state = self.queue.pop(0)
        for change in changes:
            if change.value is None:
                self.disk.pop((change.table, change.key), None)
            else:
                self.disk[change.table, change.key] = change.value
        done()
        for entry in entries:
            if entry.state in ("writing", "closing"):
                entry.state = state

    @invariant()
    def shows_what_the_reference_shows(self) -> None:
        committed, unstable = self.reference.committed(), self.reference.unstable()
        assert self.offsets.fetch(None, require_stable=False) == committed
        assert self.offsets.fetch(PARTITIONS, require_stable=False) == committed
        found = self.offsets.fetch(PARTITIONS, require_stable=True)
        assert {p for p, value in found.items() if isinstance(value, TreecastError)} == unstable
        assert bool(self.offsets) == bool(committed or unstable)

    @precondition(lambda self: not self.queue)
    @invariant()
    def is_the_same_after_a_restart(self) -> None:
        again = GroupOffsets("g")
        for (table, key), value in self.disk.items():
            if table == rows.OFFSETS:
                group_id, partition = rows.parse_offset_key(key)
                again.restore(partition, rows.decode_offset(value))
            else:
                group_id, producer_id = rows.parse_pending_key(key)
                again.restore_pending(producer_id, rows.decode_pending(value))
            assert group_id == "g"
        for stable_only in (True, False):
            before = self.offsets.fetch(PARTITIONS, require_stable=stable_only)
            after = again.fetch(PARTITIONS, require_stable=stable_only)
            assert {p: repr(v) for p, v in before.items()} == {p: repr(v) for p, v in after.items()}


TestAgainstReference = OffsetsMachine.TestCase
TestAgainstReference.settings = settings(max_examples=80, stateful_step_count=30)
