"""A partition's log as a stream's: its entries equal the list of its batches, from memory or from disk."""

from __future__ import annotations

import os
import random
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.relay.world import batch, headers_of

from treecast.middleware.model.counters import StorageCounters
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.relay.partitions.stream_log import PartitionStreamLog, StreamMemory
from treecast.middleware.storage import compaction
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import LogSettings
from treecast.middleware.wire.segment import Message
from treecast.middleware.wire.segment_bodies import Expiry, Skipped


def opened(path: Path, **config: object) -> PartitionLog:
    overrides = {key.replace("_", "."): str(value) for key, value in config.items()}
    return PartitionLog.open(path, TopicConfig.of(overrides), LogSettings(), StorageCounters(), 1)


def append(log: PartitionLog, stream: PartitionStreamLog | None, *values: bytes, times: int = 1) -> None:
    data = memoryview(bytearray(batch(*values) * times))
    headers = headers_of(bytes(data))
    log.append(data, headers, 1)
    headers = headers_of(bytes(data))  # with their offsets
    if stream is not None:
        stream.appended(data, headers)


def told(stream: PartitionStreamLog, first: int, end: int) -> list[tuple[int, int, bool]]:
    """Returns (first, end, whether it is a message) of entries that are whole and without gaps."""
    out = []
    at = first
    for entry in stream.entries(first, end):
        if isinstance(entry, Message):
            headers = headers_of(entry.payload)
            assert (headers[0].base_offset, headers[-1].next_offset) == (entry.sequence, entry.end)
            assert all(one.next_offset == other.base_offset for one, other in pairwise(headers))
            assert entry.sequence <= at < entry.end
            if len(headers) > 1:  # joined messages lie inside the requested range
                assert first <= entry.sequence
                assert entry.end <= end
            out.append((entry.sequence, entry.end, True))
        else:
            assert entry.first == at
            out.append((entry.first, entry.end, False))
        at = out[-1][1]
    assert at >= end or first >= end
    return out


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_entries_are_those_of_the_log(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng = random.Random(seed)
    log = opened(tmp_path_factory.mktemp("t"), segment_bytes=rng.choice([1500, 4000, 1 << 20]))
    for _ in range(rng.randint(0, 10)):
        append(log, None, *[b"x"] * rng.randint(1, 4))
    stream = PartitionStreamLog(
        log,
        StreamMemory(),
        tail_bytes=rng.choice([1, 200, 1000]),
        block_bytes=rng.choice([1, 300, 9999]),
        join_bytes=rng.choice([0, 200, 1000]),
    )
    for _ in range(rng.randint(1, 30)):
        if rng.random() < 0.9:
            values = [b"y" * rng.randint(0, 50)] * rng.randint(1, 4)
            append(log, stream, *values, times=rng.randint(1, 4))
        else:
            log.delete_before(rng.randint(log.start_offset, log.end_offset))
            log.clean(1)
        first = rng.randint(0, log.end_offset)
        end = rng.randint(first, log.end_offset)
        found = told(stream, first, end)
        assert all(is_message or entry_end <= log.start_offset for _, entry_end, is_message in found)
        assert stream.trimmed(0) == ({Expiry.SIZE: log.start_offset} if log.start_offset else {})
    log.delete()


def test_what_was_just_appended_is_not_read_again(tmp_path: Path) -> None:
    log = opened(tmp_path)
    stream = PartitionStreamLog(log, StreamMemory())
    for number in range(50):
        append(log, stream, b"%d" % number)
    assert len(told(stream, 0, 50)) == 50
    assert stream.blocks_read == 0
    assert log.counters.read_bytes == 0


def test_the_tail_frees_what_it_drops(tmp_path: Path) -> None:
    """Also if its messages are large and therefore few."""
    log = opened(tmp_path)
    stream = PartitionStreamLog(log, StreamMemory(), tail_bytes=100_000)
    for _ in range(50):
        append(log, stream, bytes(20_000))
        assert stream.newest(log.end_offset - 1) is not None
        assert sum([len(message.payload) for message in stream._tail.messages]) < 2.5 * 100_000


def test_batches_that_nobody_has_asked_for_are_joined_to_what_one_segment_holds(tmp_path: Path) -> None:
    log = opened(tmp_path)
    size = len(batch(b"x" * 100))
    stream = PartitionStreamLog(log, StreamMemory(), join_bytes=3 * size)
    append(log, stream, b"x" * 100, times=5)
    append(log, stream, b"x" * 100)
    append(log, stream, b"x" * 100)
    assert told(stream, 0, 7) == [(0, 3, True), (3, 6, True), (6, 7, True)]
    append(log, stream, b"x" * 100)  # the message before it was handed out, and stays
    assert told(stream, 6, 8) == [(6, 7, True), (7, 8, True)]
    assert told(stream, 1, 8)[:3] == [(1, 2, True), (2, 3, True), (3, 6, True)]  # begins at its first
    assert told(stream, 3, 5) == [(3, 4, True), (4, 5, True)]  # ends at its last
    assert stream.first_at(4) == 4


def test_a_batch_that_is_larger_than_a_segment_is_a_message_by_itself(tmp_path: Path) -> None:
    log = opened(tmp_path)
    stream = PartitionStreamLog(log, StreamMemory(), join_bytes=200)
    append(log, stream, b"x" * 300, times=2)
    assert told(stream, 0, 2) == [(0, 1, True), (1, 2, True)]


def test_a_replay_reads_large_pieces(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(400):
        append(log, None, b"x" * 1000)
    stream = PartitionStreamLog(log, StreamMemory(), block_bytes=100_000)
    at = 0
    while at < 400:  # as a sender does: it stops at its window and continues there
        for entry in stream.entries(at, 400):
            at = entry.end
            if at % 7 == 0:
                break
    assert stream.blocks_read <= 6


def test_compacted_records_are_skipped_as_such(tmp_path: Path) -> None:
    log = opened(
        tmp_path, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.bytes": 200}
    )
    for _ in range(10):
        append(log, None, b"v" * 30)
    log.flush(1, checkpoint=True)
    assert compaction.compact(log, 10_000_000)
    stream = PartitionStreamLog(log, StreamMemory())
    skipped = [entry for entry in stream.entries(0, 10) if isinstance(entry, Skipped)]
    assert {entry.reason for entry in skipped} == {Expiry.COMPACTED}
    messages = sum(entry.records for entry in stream.entries(0, 10) if isinstance(entry, Message))
    assert sum(entry.end - entry.first for entry in skipped) + messages == 10
    assert 1 <= messages < 10


def test_a_log_that_begins_inside_a_batch_is_served_from_the_batch(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for _ in range(3):
        append(log, None, b"a", b"b", b"c")
    log.delete_before(4)
    stream = PartitionStreamLog(log, StreamMemory())
    assert stream.first_at(4) == 3
    assert told(stream, 0, 9) == [(0, 3, False), (3, 6, True), (6, 9, True)]


def test_what_the_disk_refuses_is_not_skipped(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, None, b"a")
    stream = PartitionStreamLog(log, StreamMemory())
    append(log, stream, b"b")
    log.shared.pool._close(log.held.active.file)
    os.rename(log.held.active.file.path, log.held.active.file.path + ".lost")  # it cannot be opened again
    assert list(stream.entries(0, 2)) == []
    assert stream.failed_reads == 1
    assert [entry.sequence for entry in stream.entries(1, 2) if isinstance(entry, Message)] == [1]


def test_streams_share_a_bounded_memory(tmp_path: Path) -> None:
    memory = StreamMemory(tail_bytes=10_000, block_bytes=6000)
    streams = []
    for number in range(4):
        log = opened(tmp_path / str(number))
        for _ in range(5):
            append(log, None, b"x" * 1000)
        stream = PartitionStreamLog(log, memory, block_bytes=2000)
        memory.add(stream)
        streams.append(stream)
        for _ in range(20):
            append(log, stream, b"y" * 1000)
        assert len(told(stream, 0, 25)) == 25
    assert sum(stream._kept for stream in streams) <= 10_000
    held = [block for stream in streams for block in stream._blocks]
    assert 2 <= len(held) <= 6
    assert sum(block.size for block in held) == memory._in_blocks <= 6000
    for stream in streams[1:]:
        memory.remove(stream)
    assert memory._in_blocks == sum(block.size for block in streams[0]._blocks)
    streams[0].appended(memoryview(b""), [])
    append(streams[0]._log, streams[0], b"z" * 9000)
    assert streams[0]._kept > 5000
