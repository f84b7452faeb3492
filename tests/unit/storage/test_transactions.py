"""Open and aborted transactions: the last stable offset, and the records that read_committed readers skip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.aborted import AbortedEntry, decode_entries, encode_entry
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.wire.record_batch import build_batch

Kit = Any


def test_the_stable_offset_waits_for_the_oldest_open_transaction(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    one, two = ProducerIdentity(1, 0), ProducerIdentity(2, 0)
    kit.append(log, kit.batch(3))
    assert log.stable_offset == 3
    kit.append(log, kit.batch(2, producer=one, sequence=0, transactional=True))
    kit.append(log, kit.batch(2, producer=two, sequence=0, transactional=True))
    assert log.stable_offset == 3
    kit.append(log, kit.marker(one, committed=True))
    assert log.stable_offset == 5
    kit.append(log, kit.marker(two, committed=False))
    assert log.stable_offset == log.end_offset == 9
    assert log.held.aborted_between(0, 9) == [(2, 5)]
    assert log.held.aborted_between(0, 5) == []
    assert log.held.aborted_between(9, 9) == []
    assert log.held.aborted_between(8, 9) == [(2, 5)]
    check_invariants(log)


def test_records_before_the_log_start_hold_nothing_up(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.batch(2, producer=ProducerIdentity(1, 0), sequence=0, transactional=True))
    kit.append(log, kit.batch(2))
    log.delete_before(3)
    assert log.stable_offset == 3


def test_a_marker_without_a_transaction_aborts_nothing(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    kit.append(log, kit.marker(ProducerIdentity(1, 0), committed=False))
    assert log.held.aborted_between(0, 1) == []
    assert log.stable_offset == 1


def test_control_batches_of_other_kinds_end_nothing(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    producer = ProducerIdentity(1, 0)
    kit.append(log, kit.batch(2, producer=producer, sequence=0, transactional=True))
    kit.append(log, build_batch([], last_offset_delta=0, producer=producer, transactional=True, control=True))
    assert log.stable_offset == 0


def test_a_control_batch_that_cannot_be_read_is_refused_whole(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    data = bytearray(kit.marker(ProducerIdentity(1, 0), committed=False))
    data[61] = 0xFF
    with pytest.raises(TreecastError):
        kit.append(log, data)
    assert log.end_offset == log.size == 0
    check_invariants(log)


def test_entries_as_kafka_writes_them() -> None:
    entry = AbortedEntry(1, 2, 3, 4)
    data = encode_entry(entry)
    assert data.hex() == "0000" + "".join(f"{number:016x}" for number in (1, 2, 3, 4))
    assert len(decode_entries(data + data[:-1])) == 1
    assert decode_entries(b"\0\1" + data[2:]) == []


@pytest.mark.parametrize("damage", [b"", b"\0" * 10, b"\xff" * 34, None])
def test_the_index_is_rebuilt_from_the_log_after_a_kill(kit: Kit, path: Path, damage: bytes | None) -> None:
    log = kit.open(path)
    producer = ProducerIdentity(1, 0)
    for number in range(3):
        kit.append(log, kit.batch(2, producer=producer, sequence=2 * number, transactional=True))
        kit.append(log, kit.marker(producer, committed=number == 1))
    file = path / "00000000000000000000.txnindex"
    good = file.read_bytes()
    if damage is None:
        file.unlink()
    else:
        file.write_bytes(good[:34] + damage)
    again = kit.open(path)
    assert again.held.aborted_between(0, 100) == [(1, 0), (1, 6)]
    assert file.read_bytes() == good
    check_invariants(again)


def test_an_index_that_cannot_be_written_does_not_fail_the_append(kit: Kit, path: Path) -> None:
    log = kit.open(path)
    producer = ProducerIdentity(1, 0)
    kit.append(log, kit.batch(2, producer=producer, sequence=0, transactional=True))
    assert log.held.active.aborted == []
    in_the_way = path / "00000000000000000000.txnindex"
    in_the_way.mkdir()
    kit.append(log, kit.marker(producer, committed=False))
    assert log.counters.write_errors == 1
    assert log.held.aborted_between(0, 3) == [(1, 0)]
    in_the_way.rmdir()
    assert kit.open(path).held.aborted_between(0, 3) == [(1, 0)]


@settings(max_examples=60)
@given(st.data())
def test_read_committed_against_a_list(kit: Kit, data: st.DataObject) -> None:
    """Interleaved transactions of three producers: every range lists exactly its aborted ones, also after a
    kill.
    """
    with kit.directory() as path:
        config = kit.config(segment_bytes=data.draw(st.sampled_from([300, 900, 10_000])))
        log = kit.open(path, config)
        opened: dict[int, int] = {}
        sequences = {1: 0, 2: 0, 3: 0}
        ended: list[tuple[int, int, int]] = []  # aborted: producer id, first offset, marker's offset
        for _ in range(data.draw(st.integers(1, 30))):
            producer_id = data.draw(st.integers(1, 3))
            producer = ProducerIdentity(producer_id, 0)
            step = data.draw(st.sampled_from(["write", "write", "commit", "abort", "kill"]))
            if step == "kill":
                log.delete()
                log = kit.open(path, config)
            elif step == "write":
                batch = kit.batch(producer=producer, sequence=sequences[producer_id], transactional=True)
                opened.setdefault(producer_id, kit.append(log, batch).base_offset)
                sequences[producer_id] += 1
            else:
                marker = kit.append(log, kit.marker(producer, committed=step == "commit")).base_offset
                first = opened.pop(producer_id, None)
                if first is not None and step == "abort":
                    ended.append((producer_id, first, marker))
            assert log.stable_offset == min(opened.values(), default=log.end_offset)
        check_invariants(log)
        first = data.draw(st.integers(0, log.stable_offset))
        limit = data.draw(st.integers(first, log.stable_offset))
        found = log.held.aborted_between(first, limit)
        assert sorted(found) == sorted((p, f) for p, f, last in ended if last >= first and f < limit)
