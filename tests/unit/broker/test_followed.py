"""Reads at a replica while a chunk is shown to its readers, appended and forgotten again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.test_partitions import TOPIC, Waiter, opened

from treecast.middleware.broker.followed import FollowedPartition, extent
from treecast.middleware.broker.values import LATEST_TIMESTAMP, Isolation, PartitionRead
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    build_batch,
    control_marker,
    patch_batch,
    read_header,
)

UNCOMMITTED, COMMITTED = Isolation
PRODUCER = ProducerIdentity(7, 0)


class Leader:
    """Makes batches as a leader's log has them: with gaps, transactions and markers."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.end = 0
        self.sequence = 0
        self.open = False

    def chunk(self, batches: int) -> list[bytes]:
        return [self._batch() for _ in range(batches)]

    def _batch(self) -> bytes:
        if self.open and self.rng.random() < 0.4:
            self.open = False
            kind = self.rng.choice((COMMIT, ABORT))
            return self._placed(control_marker(kind, PRODUCER, coordinator_epoch=0, timestamp=1000))
        count = self.rng.randrange(1, 4)
        records = [Record(b"k", b"v" * self.rng.randrange(40), (), 1000) for _ in range(count)]
        if self.rng.random() < 0.4:
            self.open = True
            first, self.sequence = self.sequence, self.sequence + count
            return self._placed(
                build_batch(records, producer=PRODUCER, base_sequence=first, transactional=True)
            )
        return self._placed(build_batch(records))

    def _placed(self, data: bytes) -> bytes:
        self.end += self.rng.choice((0, 0, 0, 2))  # compaction leaves gaps
        placed = bytearray(data)
        patch_batch(placed, 0, self.end, 0)
        self.end = read_header(placed, 0).next_offset
        return bytes(placed)


def expected(batches: list[bytes], offset: int, max_bytes: int, end: int, *, at_least_one: bool) -> bytes:
    """The plain reference: batches are taken one by one."""
    found = b""
    for data in batches:
        header = read_header(data, 0)
        if header.next_offset <= offset or header.base_offset >= end:
            continue
        if len(found) + len(data) > max_bytes and (found or not at_least_one):
            break
        found += data
    return found


def bytes_of(found: PartitionRead) -> bytes:
    return b"".join(bytes(in_memory(chunk)) for chunk in found.chunks)


def headers_of(chunk: list[bytes]) -> list[BatchHeader]:
    return [read_header(data, 0) for data in chunk]


def reads(rng: random.Random, end: int) -> Iterator[tuple[int, int, bool]]:
    for offset in range(end + 1):
        yield offset, rng.choice((0, 1, 100, 250, 1 << 20)), rng.random() < 0.7


def check_uncommitted(
    replica: FollowedPartition, known: list[bytes], shown: list[bytes], rng: random.Random
) -> None:
    """Every offset up to the readable end is served: by the log what it holds, else by the shown chunk."""
    in_log = replica.log.end_offset
    for offset, max_bytes, one in reads(rng, replica.readable_end):
        found = replica.read(offset, max_bytes, UNCOMMITTED, at_least_one=one)
        source, end = (known, in_log) if offset < in_log else (known + shown, replica.readable_end)
        there = bytes_of(found)
        wanted = expected(source, offset, max_bytes, end, at_least_one=one)
        assert there == wanted[: len(there)]
        assert len(there) == len(wanted) or offset < in_log  # a log's read may end with its segment
        assert found.size == len(there)
        assert found.size or not wanted
        assert found.high_watermark >= offset


def check_committed(replica: FollowedPartition, known: list[bytes], rng: random.Random) -> None:
    """Records that are shown are not committed before the log has them."""
    stable = replica.log.stable_offset
    for offset, max_bytes, one in reads(rng, replica.readable_end):
        found = replica.read(offset, max_bytes, COMMITTED, at_least_one=one)
        wanted = expected(known, offset, max_bytes, stable, at_least_one=one)
        there = bytes_of(found)
        assert there == wanted[: len(there)]
        assert bool(there) == bool(wanted)
        assert found.last_stable_offset == stable
        aborted = replica.log.held.aborted_between(offset, stable) if there else []
        assert [(one.producer_id, one.first_offset) for one in found.aborted] == aborted


@pytest.mark.parametrize("seed", range(30))
async def test_every_offset_is_served_before_during_and_after_the_append(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    partitions, leader = opened(tmp_path / "logs"), Leader(rng)
    replica = partitions.follow(TOPIC, 0)
    known: list[bytes] = []
    replica.watch(Waiter(), UNCOMMITTED)
    for _ in range(6):
        chunk = leader.chunk(rng.randrange(1, 5))
        replica.show(b"".join(chunk), headers_of(chunk))
        assert replica.readable_end == leader.end
        assert replica.offset_for_time(LATEST_TIMESTAMP, UNCOMMITTED).offset == leader.end
        assert replica.offset_for_time(LATEST_TIMESTAMP, COMMITTED).offset == replica.log.stable_offset
        check_uncommitted(replica, known, chunk, rng)
        check_committed(replica, known, rng)
        if rng.random() < 0.2:  # the disk refused it: the leader sends it again
            replica.forget_fresh()
            assert replica.readable_end == replica.log.end_offset
            check_uncommitted(replica, known, [], rng)
        replica.append_replicated(b"".join(chunk), headers_of(chunk), 1)
        known += chunk
        check_uncommitted(replica, known, [], rng)
        check_committed(replica, known, rng)
        if rng.random() < 0.7:
            replica.forget_fresh()
            check_uncommitted(replica, known, [], rng)
    await partitions.close()


async def test_only_beyond_what_is_shown_is_out_of_range(tmp_path: Path) -> None:
    partitions, leader = opened(tmp_path / "logs"), Leader(random.Random(1))
    replica = partitions.follow(TOPIC, 0)
    replica.watch(Waiter(), UNCOMMITTED)
    chunk = leader.chunk(3)
    replica.show(b"".join(chunk), headers_of(chunk))
    for isolation in Isolation:
        with pytest.raises(TreecastError) as caught:
            replica.read(leader.end + 1, 100, isolation, at_least_one=True)
        assert caught.value.fault is Fault.OFFSET_OUT_OF_RANGE
    await partitions.close()


@pytest.mark.parametrize("change", ["truncate", "restart", "advance"])
async def test_nothing_of_a_chunk_is_left_in_memory_when_the_log_is_changed(
    tmp_path: Path, change: str
) -> None:
    partitions, leader = opened(tmp_path / "logs"), Leader(random.Random(2))
    replica = partitions.follow(TOPIC, 0)
    first, second = leader.chunk(2), leader.chunk(2)
    replica.append_replicated(b"".join(first), headers_of(first), 1)
    cut = replica.log.end_offset
    replica.append_replicated(b"".join(second), headers_of(second), 1)
    if change == "truncate":
        replica.truncate(cut, 1)
    elif change == "restart":
        replica.restart(100, 1)
    else:
        replica.advance_start(leader.end, 1)
    end = {"truncate": cut, "restart": 100, "advance": leader.end}[change]
    assert replica.readable_end == replica.log.end_offset == end
    assert replica.read(end, 1 << 20, UNCOMMITTED, at_least_one=True).size == 0
    await partitions.close()


def test_an_extent_is_whole_batches_within_the_limit() -> None:
    chunk = Leader(random.Random(3)).chunk(4)
    headers, sizes = headers_of(chunk), [len(data) for data in chunk]
    assert extent(headers, headers[0].base_offset, sum(sizes), at_least_one=True) == (0, sum(sizes))
    assert extent(headers, headers[2].base_offset, sizes[2], at_least_one=False) == (
        sizes[0] + sizes[1],
        sum(sizes[:3]),
    )
    assert extent(headers, headers[1].base_offset, 1, at_least_one=False) == (sizes[0], sizes[0])
    assert extent(headers, headers[1].base_offset, 1, at_least_one=True) == (sizes[0], sum(sizes[:2]))
    assert extent(headers, headers[-1].next_offset, 1, at_least_one=True) == (sum(sizes), sum(sizes))
