"""A log that follows another one: the same bytes, truncated when the leader says so."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage import compaction, replicate
from treecast.middleware.storage.epochs import LeaderEpochs, divergence
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.settings import LogSettings
from treecast.middleware.storage.snapshot import encode_snapshot

Kit = Any
P7, P8 = ProducerIdentity(7, 0), ProducerIdentity(8, 0)


def follow(kit: Kit, leader: PartitionLog, follower: PartitionLog, max_bytes: int = 1 << 20) -> None:
    """Copies batches until `follower` is at the leader's end."""
    while follower.end_offset < leader.end_offset:
        chunks, _ = leader.read(follower.end_offset, max_bytes, leader.end_offset, at_least_one=True)
        data = b"".join(map(bytes, chunks))
        if not data:
            return
        follower.append_replicated(memoryview(data), kit.headers(data), 5000)


def state(log: PartitionLog) -> tuple[Any, ...]:
    """Returns everything that readers and producers can see of a log, except its start."""
    producers = sorted(
        (p.producer_id, p.epoch, p.transaction_start, p.coordinator_epoch, p.last_sequence, p.last_offset)
        for p in log.producers
    )
    aborted = log.held.aborted_between(log.start_offset, log.end_offset)
    return log.end_offset, log.stable_offset, producers, aborted, log.epoch_entries


def test_a_follower_has_the_same_bytes_and_knows_the_same(kit: Kit, tmp_path: Path) -> None:
    config = kit.config(segment_bytes=700)
    leader = kit.open(tmp_path / "a", config)
    follower = kit.open(tmp_path / "b", kit.config(segment_bytes=400))
    kit.append(leader, kit.batch(3), kit.batch(2, producer=P7, sequence=0, transactional=True))
    leader.begin_epoch(4)
    kit.append(leader, kit.batch(1, producer=P8, sequence=0, transactional=True))
    kit.append(leader, kit.marker(P7, committed=False), kit.batch(9))
    follow(kit, leader, follower, 300)
    assert kit.read_all(follower) == kit.read_all(leader)
    assert state(follower) == state(leader)
    assert follower.end_of_epoch(0) == leader.end_of_epoch(0) == (0, 5)
    assert follower.leader_epoch == 4
    check_invariants(follower)
    follower.close()
    again = kit.open(tmp_path / "b", kit.config(segment_bytes=400))
    assert state(again) == state(leader)
    check_invariants(again)


def test_holes_of_compaction_stay(kit: Kit, tmp_path: Path) -> None:
    config = kit.config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}, segment_bytes=200)
    leader = kit.open(tmp_path / "a", config)
    for _ in range(12):
        kit.append(leader, kit.keyed((b"k", b"v" * 30)))
    leader.flush(1000, checkpoint=True)
    assert compaction.compact(leader, 2000)
    follower = kit.open(tmp_path / "b", config)
    follow(kit, leader, follower)
    assert kit.read_all(follower) == kit.read_all(leader)
    assert follower.end_offset == 12
    assert len(kit.headers(kit.read_all(follower))) < 12
    check_invariants(follower)


def test_what_cannot_follow_is_refused(kit: Kit, tmp_path: Path) -> None:
    leader, follower = kit.open(tmp_path / "a"), kit.open(tmp_path / "b")
    kit.append(leader, kit.batch(3), kit.batch(3))
    data = kit.read_all(leader)
    headers = kit.headers(data)
    follower.append_replicated(memoryview(data), headers, 1)
    for wrong in ((data, headers), (data[:-1], headers[1:])):
        with pytest.raises(TreecastError) as caught:
            follower.append_replicated(memoryview(wrong[0]), wrong[1], 1)
        assert caught.value.fault is Fault.CORRUPT_BATCH
    assert kit.read_all(follower) == data


def test_more_offsets_left_out_than_an_index_can_tell(kit: Kit, tmp_path: Path) -> None:
    leader, follower = kit.open(tmp_path / "a"), kit.open(tmp_path / "b")
    replicate.restart_at(leader, 2**32, 1)
    kit.append(leader, kit.batch(2))
    data = kit.read_all(leader)
    follower.append_replicated(memoryview(data), kit.headers(data), 1)
    assert follower.end_offset == 2**32 + 2
    assert kit.read_all(follower) == data
    check_invariants(follower)


def test_a_batch_is_never_cut(kit: Kit, tmp_path: Path) -> None:
    log = kit.open(tmp_path / "a")
    kit.append(log, kit.batch(4), kit.batch(4))
    assert replicate.truncate_to(log, 6, 1) == 4
    assert replicate.truncate_to(log, 9, 1) == 4
    kit.append(log, kit.batch(1))
    assert log.end_offset == 5
    check_invariants(log)


def test_restart_and_start(kit: Kit, tmp_path: Path) -> None:
    log = kit.open(tmp_path / "a", kit.config(segment_bytes=200))
    for _ in range(6):
        kit.append(log, kit.batch(2, producer=P7, sequence=log.end_offset, transactional=True))
    replicate.advance_start(log, 5, 1)
    assert (log.start_offset, log.end_offset) == (5, 12)
    replicate.advance_start(log, 3, 1)
    assert log.start_offset == 5
    replicate.advance_start(log, 40, 1)
    assert (log.start_offset, log.stable_offset, log.end_offset) == (40, 40, 40)
    assert not list(log.producers)
    assert log.epoch_entries == []
    check_invariants(log)
    replicate.restart_at(log, 7, 1)  # a leader may have lost more
    assert log.start_offset == log.end_offset == 7
    kit.append(log, kit.batch(2))
    log.close()
    again = kit.open(tmp_path / "a")
    assert (again.start_offset, again.end_offset) == (7, 9)
    check_invariants(again)


def test_a_flush_under_way_promises_nothing_of_what_was_cut(kit: Kit, tmp_path: Path) -> None:
    log = kit.open(tmp_path / "a")
    kit.append(log, kit.batch(5), kit.batch(5))
    ticket = log.durability.begin(1, checkpoint=True)
    assert ticket is not None
    replicate.truncate_to(log, 5, 1)
    kit.append(log, kit.batch(5, value=b"other"))
    ticket.run()
    log.durability.end(ticket, None)
    assert log.flushed_offset <= 5
    assert not log.durability.covered()
    data = kit.read_all(log)
    again = kit.open(tmp_path / "a")
    assert kit.read_all(again) == data
    check_invariants(again)


def test_compaction_under_way_does_not_bring_back_what_was_cut(kit: Kit, tmp_path: Path) -> None:
    config = kit.config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0}, segment_bytes=200)
    log = kit.open(tmp_path / "a", config)
    for _ in range(9):
        kit.append(log, kit.keyed((b"k", b"v" * 30)))
    log.flush(1000, checkpoint=True)
    round_ = compaction.plan(log, 2000)
    assert round_ is not None
    round_.run(lambda: None)
    replicate.truncate_to(log, 3, 1)
    data = kit.read_all(log)
    assert not compaction.install(log, round_)
    assert kit.read_all(log) == data
    assert log.end_offset == 3
    check_invariants(log)


def test_an_epoch_without_records_is_remembered_by_a_log_closed_in_order(kit: Kit, tmp_path: Path) -> None:
    log = kit.open(tmp_path / "a")
    kit.append(log, kit.batch(2))
    log.begin_epoch(3)
    log.close()
    again = kit.open(tmp_path / "a")
    assert again.leader_epoch == 3
    assert again.end_of_epoch(0) == (0, 2)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_whatever_was_cut_the_log_is_as_if_it_had_never_been_there(kit: Kit, seed: int) -> None:
    """A log with appends, cuts and kills equals one that only ever had the remaining batches."""
    rng = random.Random(seed)
    root = Path(tempfile.mkdtemp())
    try:
        config = kit.config(segment_bytes=rng.choice([300, 900, 100_000]), index_interval_bytes=100)
        options = LogSettings(checkpoint_bytes=rng.choice([500, 1 << 20]))
        log = kit.open(root / "a", config, options)
        for _ in range(25):
            log = _step(kit, rng, log, root, config, options)
        plain = kit.open(root / "plain", config, options)
        replicate.restart_at(plain, log.start_offset, 1)
        data = kit.read_all(log)
        if data:
            plain.append_replicated(memoryview(data), kit.headers(data), 1)
        assert kit.read_all(plain) == data
        assert state(plain)[1:4] == state(log)[1:4]
        check_invariants(log)
        log.close(1)
        again = kit.open(root / "a", config, options)
        assert kit.read_all(again) == data
        assert state(again)[:4] == state(log)[:4]
    finally:
        shutil.rmtree(root)


def _step(
    kit: Kit, rng: random.Random, log: PartitionLog, root: Path, config: Any, options: LogSettings
) -> PartitionLog:
    do = rng.random()
    if do < 0.6:
        producer = rng.choice([P7, P8])
        known = log.producers.get(producer.producer_id)
        is_open = known is not None and known.transaction_start >= 0
        if is_open and rng.random() < 0.5:
            kit.append(log, kit.marker(producer, committed=rng.random() < 0.5))
        else:
            sequence = known.last_sequence + 1 if known is not None else 0
            count = rng.randint(1, 4)
            kit.append(log, kit.batch(count, producer=producer, sequence=sequence, transactional=True))
    elif do < 0.75:
        replicate.truncate_to(log, rng.randint(0, log.end_offset + 2), 1)
        log.begin_epoch(log.leader_epoch + 1)
        check_invariants(log)
    elif do < 0.9:
        log.flush(1, checkpoint=rng.random() < 0.5)
    else:
        kill = rng.random() < 0.5
        if kill:
            log.delete()
        else:
            log.close(1)
        before = os.listdir(log.directory)
        log = kit.open(root / "a", config, options)
        assert before
        check_invariants(log)
    return log


def test_snapshots_of_what_was_cut_are_not_used(kit: Kit, tmp_path: Path) -> None:
    log = kit.open(tmp_path / "a", kit.config(segment_bytes=200))
    for number in range(8):
        kit.append(log, kit.batch(1, producer=P7, sequence=number, value=b"v" * 60))
    replicate.truncate_to(log, 3, 1)
    before = encode_snapshot(log.producers)
    log.delete()
    again = kit.open(tmp_path / "a", kit.config(segment_bytes=200))
    assert [p.last_sequence for p in again.producers] == [2]
    assert len(before) == len(encode_snapshot(again.producers))


# --- where two logs diverge


def history(rng: random.Random) -> tuple[list[tuple[int, int]], int, list[tuple[int, int]], int, int]:
    """Makes a leader and a follower by a plain model: each offset has the epoch in which it was written.

    The leader repeatedly loses its tail and begins a new epoch. The follower copies now and then, and first
    cuts what differs from the leader's log. Returns both histories and the offset where they diverge.
    """
    leader: list[tuple[int, int]] = []  # (epoch, unique record)
    follower: list[tuple[int, int]] = []
    begun: list[tuple[int, int]] = [(0, 0)]
    epoch = record = 0
    for _ in range(rng.randint(1, 12)):
        do = rng.random()
        if do < 0.5:
            for _ in range(rng.randint(1, 5)):
                record += 1
                leader.append((epoch, record))
        elif do < 0.75:
            del leader[rng.randint(0, len(leader)) :]
            epoch += 1
            begun = [one for one in begun if one[1] < len(leader)] + [(epoch, len(leader))]
        else:
            same = _common(leader, follower)
            follower[same:] = leader[same : same + rng.randint(0, 8)]
    return _entries(follower), len(follower), begun, len(leader), _common(leader, follower)


def _common(one: list[Any], other: list[Any]) -> int:
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same


def _entries(log: list[tuple[int, int]]) -> list[tuple[int, int]]:
    epochs = LeaderEpochs()
    for offset, (epoch, _) in enumerate(log):
        if epoch > epochs.latest:
            epochs.begin(epoch, offset)
    return epochs.entries


@settings(max_examples=500)
@given(seed=st.integers(0, 2**40))
def test_where_two_logs_part_is_found(seed: int) -> None:
    follower, follower_end, leader, leader_end, parted = history(random.Random(seed))
    found = divergence(follower, follower_end, leader, leader_end)
    assert max(found, 0) == parted or (found == -1 and follower_end == 0)
