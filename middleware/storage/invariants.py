"""The invariants of a log, as assertions for tests. Reads the whole log."""

from __future__ import annotations

import os

from .log import PartitionLog
from .producers import ProducerStates
from .replay import apply_batch
from .scan import BatchScanner
from .segment import Segment


def check_invariants(log: PartitionLog) -> None:
    """Raises AssertionError if the log contradicts itself or its files."""
    assert log.held.all, "a log has at least one segment"
    assert log.held.all[-1] is log.held.active
    assert log.held.bases == [segment.base_offset for segment in log.held.all]
    assert log.held.bases == sorted(set(log.held.bases))
    assert log.size == sum(segment.size for segment in log.held.all)
    assert log.start_offset <= log.stable_offset <= log.end_offset
    assert log.flushed_offset <= log.end_offset
    assert log.start_offset >= log.held.bases[0]
    assert not log.held.active.sealed
    assert log.held.active.next_offset == log.end_offset
    for before, after in zip(log.held.all, log.held.all[1:], strict=False):
        assert before.sealed
        assert before.next_offset == after.base_offset
    states = ProducerStates()
    for segment in log.held.all:
        _check_segment(segment, states)
    _check_producers(log, states)


def _check_segment(segment: Segment, states: ProducerStates) -> None:
    assert os.path.getsize(segment.file.path) == segment.size, "the file is as long as the segment"
    scanner = BatchScanner(segment.shared.pool.descriptor(segment.file), 0, segment.size, whole=True)
    expected = segment.base_offset
    newest = -1
    ends: dict[int, int] = {}  # last offset -> position
    aborted = 0
    header = scanner.next()
    while header is not None:
        assert header.base_offset >= expected
        assert scanner.checksum_fits(header)
        expected = header.next_offset
        newest = max(newest, header.max_timestamp)
        ends[header.last_offset] = scanner.position
        entry = apply_batch(states, header, scanner.batch(header), 0, 0)
        aborted += entry is not None
        header = scanner.next()
    assert scanner.position == segment.size, scanner.reason
    assert expected <= segment.next_offset
    assert segment.max_timestamp == newest
    _check_indexes(segment, ends)
    assert len(segment.aborted) >= aborted


def _check_indexes(segment: Segment, ends: dict[int, int]) -> None:
    indexes = segment.indexes
    last = -1
    for number in range(len(indexes.offsets)):
        offset, position = indexes.offsets.entry(number)
        assert ends[offset] == position, "an entry points to its batch"
        assert position > last
        last = position
    last = -1
    for number in range(len(indexes.times)):
        timestamp, offset = indexes.times.entry(number)
        assert timestamp > last
        assert offset in ends
        last = timestamp


def _check_producers(log: PartitionLog, states: ProducerStates) -> None:
    """The remaining batches agree with the log's producers (which may include older ones)."""
    for told in states:
        known = log.producers.get(told.producer_id)
        if known is None:
            continue  # expired
        assert known.epoch >= told.epoch
        if known.epoch == told.epoch and told.batches:
            assert known.last_sequence == told.last_sequence
            assert known.last_offset == told.last_offset
        assert known.transaction_start in (told.transaction_start, known.transaction_start)
    opens = log.producers.open_transactions()
    assert list(opens.values()) == sorted(opens.values())
