"""Idempotence rules, snapshots and transactions, compared with Kafka's rules and a plain reference."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage.invariants import check_invariants
from treecast.middleware.storage.producers import Producer, ProducerBatch, ProducerStates
from treecast.middleware.storage.settings import DAY_MS
from treecast.middleware.storage.snapshot import decode_snapshot, encode_snapshot
from treecast.middleware.wire.record_batch import BatchHeader, read_header

Kit = Any

MAX = 2**31 - 1


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 1, transactional: bool = False
) -> BatchHeader:
    attributes = 0x10 if transactional else 0
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, 50, 50, producer_id, epoch, sequence, count)


def produce(states: ProducerStates, batch: BatchHeader, offset: int, now_ms: int = 0) -> int | None:
    """Acts as a broker does. Returns the offset of the batch that it repeats, or None."""
    repeated = states.check(batch)
    if repeated is None:
        batch.base_offset = offset
        states.update(batch, now_ms)
    return repeated


def fault(states: ProducerStates, batch: BatchHeader) -> Fault:
    with pytest.raises(TreecastError) as refused:
        states.check(batch)
    return refused.value.fault


def test_the_next_sequence_is_taken_others_are_out_of_order() -> None:
    states = ProducerStates()
    assert produce(states, header(0, 3), 10) is None
    assert produce(states, header(3, 2), 13) is None
    assert fault(states, header(6)) is Fault.OUT_OF_ORDER_SEQUENCE
    assert fault(states, header(4)) is Fault.OUT_OF_ORDER_SEQUENCE
    assert produce(states, header(5), 15) is None


def test_the_last_five_batches_are_known_as_repeats() -> None:
    states = ProducerStates()
    for number in range(7):
        produce(states, header(2 * number, 2), 100 + 2 * number)
    for number in range(2, 7):
        assert states.check(header(2 * number, 2)) == 100 + 2 * number
    assert fault(states, header(2, 2)) is Fault.OUT_OF_ORDER_SEQUENCE
    assert fault(states, header(4, 3)) is Fault.OUT_OF_ORDER_SEQUENCE  # the same start with another end


def test_an_unknown_producer_may_begin_anywhere() -> None:
    states = ProducerStates()
    assert produce(states, header(77), 0) is None
    assert produce(states, header(78), 1) is None


def test_epochs() -> None:
    states = ProducerStates()
    produce(states, header(0, 5, epoch=3), 0)
    assert fault(states, header(5, epoch=2)) is Fault.INVALID_PRODUCER_EPOCH
    assert fault(states, header(5, epoch=4)) is Fault.OUT_OF_ORDER_SEQUENCE
    assert produce(states, header(0, epoch=4), 5) is None
    assert fault(states, header(0, 5, epoch=4)) is Fault.OUT_OF_ORDER_SEQUENCE  # no repeat: another length
    assert fault(states, header(0, 5, epoch=3)) is Fault.INVALID_PRODUCER_EPOCH


def test_a_marker_of_a_new_epoch_makes_the_producer_begin_at_zero() -> None:
    states = ProducerStates()
    produce(states, header(0, 5), 0)
    states.end_transaction(1, 1, 0, 0)
    assert fault(states, header(5, epoch=1)) is Fault.OUT_OF_ORDER_SEQUENCE
    assert fault(states, header(5, epoch=0)) is Fault.INVALID_PRODUCER_EPOCH
    assert states.check(header(0, epoch=1)) is None


def test_sequences_wrap_around() -> None:
    states = ProducerStates()
    produce(states, header(MAX - 1, 2), 0)
    assert produce(states, header(0, 1), 2) is None
    states = ProducerStates()
    produce(states, header(MAX, 3), 0)  # MAX, 0, 1
    assert states.check(header(MAX, 3)) == 0
    assert produce(states, header(2), 3) is None
    known = states.get(1)
    assert known is not None
    assert known.batches[0].first_sequence == MAX


def test_batches_without_a_producer_are_not_looked_at() -> None:
    assert ProducerStates().check(header(-1, producer_id=-1, epoch=-1)) is None


def test_open_transactions_and_plain_batches_do_not_mix() -> None:
    states = ProducerStates()
    produce(states, header(0, transactional=True), 5)
    assert fault(states, header(1)) is Fault.INVALID_TRANSACTION_STATE
    assert states.first_open_offset == 5


def test_markers_of_old_epochs_and_coordinators_are_refused() -> None:
    states = ProducerStates()
    produce(states, header(0, epoch=5, transactional=True), 5)
    assert states.end_transaction(1, 5, 9, 0) == 5
    with pytest.raises(TreecastError) as refused:
        states.check_marker(1, 4, 9)
    assert refused.value.fault is Fault.INVALID_PRODUCER_EPOCH
    with pytest.raises(TreecastError) as refused:
        states.check_marker(1, 5, 8)
    assert refused.value.fault is Fault.NOT_COORDINATOR
    states.check_marker(1, 6, 9)
    states.check_marker(2, 0, 0)


def test_idle_producers_are_forgotten_open_transactions_are_not() -> None:
    states = ProducerStates()
    produce(states, header(0, producer_id=1), 0, now_ms=1000)
    produce(states, header(0, producer_id=2), 1, now_ms=2000)
    produce(states, header(0, producer_id=3, transactional=True), 2, now_ms=1000)
    assert states.expire(1000 + DAY_MS - 1, DAY_MS) == 0
    assert states.expire(1000 + DAY_MS, DAY_MS) == 1
    assert [known.producer_id for known in states] == [2, 3]


class ReferenceProducers:
    """Kafka's rules without any of the shortcuts."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.batches: dict[int, deque[tuple[list[int], int]]] = {}

    def produce(self, producer_id: int, epoch: int, sequence: int, count: int, offset: int) -> Any:
        sequences = [(sequence + number) % 2**31 for number in range(count)]
        if producer_id in self.epochs:
            known = self.epochs[producer_id]
            if epoch < known:
                return Fault.INVALID_PRODUCER_EPOCH
            if epoch == known:
                for numbers, base in self.batches[producer_id]:
                    if numbers == sequences:
                        return base
                last = self.batches[producer_id][-1][0][-1]
                if sequence != (last + 1) % 2**31:
                    return Fault.OUT_OF_ORDER_SEQUENCE
            elif sequence != 0:
                return Fault.OUT_OF_ORDER_SEQUENCE
        if self.epochs.get(producer_id) != epoch:
            self.batches[producer_id] = deque(maxlen=5)
        self.epochs[producer_id] = epoch
        self.batches[producer_id].append((sequences, offset))
        return None


@settings(max_examples=150)
@given(st.data())
def test_against_the_reference(data: st.DataObject) -> None:
    """Near-miss sequences of two producers, with snapshots taken and read back in between."""
    states, reference = ProducerStates(), ReferenceProducers()
    following = {1: 0, 2: MAX - 3}
    offset = 0
    for _ in range(data.draw(st.integers(1, 40))):
        producer_id = data.draw(st.sampled_from([1, 2]))
        epoch = data.draw(st.sampled_from([0, 0, 0, 1]))
        count = data.draw(st.integers(1, 3))
        jump = data.draw(st.sampled_from([0, 0, 0, -1, 1, -2, -3, -6]))
        sequence = (following[producer_id] + jump) % 2**31
        if data.draw(st.booleans()) and epoch == 1:
            sequence = 0
        batch = header(sequence, count, epoch=epoch, producer_id=producer_id)
        expected = reference.produce(producer_id, epoch, sequence, count, offset)
        try:
            found: Any = produce(states, batch, offset)
        except TreecastError as error:
            found = error.fault
        assert found == expected
        if expected is None:
            following[producer_id] = (sequence + count) % 2**31
            offset += count
        if data.draw(st.integers(0, 4)) == 0:
            copied = decode_snapshot(encode_snapshot(states))
            assert copied is not None
            states = copied


def some_states() -> ProducerStates:
    states = ProducerStates()
    for number in range(9):
        produce(states, header(number, producer_id=7, epoch=2), 10 * number, now_ms=number)
    produce(states, header(0, 4, producer_id=8, transactional=True), 200)
    produce(states, header(0, 4, producer_id=6, transactional=True), 150)
    states.end_transaction(9, 3, 11, 5)
    return states


def facts(states: ProducerStates) -> list[Any]:
    return [
        (
            (p.producer_id, p.epoch, p.coordinator_epoch, p.transaction_start, p.last_ms),
            [(b.last_sequence, b.last_offset, b.offset_delta) for b in p.batches],
        )
        for p in states
    ]


def test_a_snapshot_brings_back_everything() -> None:
    states = some_states()
    copied = decode_snapshot(encode_snapshot(states))
    assert copied is not None
    assert facts(copied) == facts(states)
    assert copied.first_open_offset == 150
    assert list(copied.open_transactions()) == [6, 8]
    nothing = decode_snapshot(encode_snapshot(ProducerStates()))
    assert nothing is not None
    assert facts(nothing) == []


def test_the_snapshot_begins_as_kafkas() -> None:
    """version int16, crc uint32, count int32, then the fields of Kafka's ProducerSnapshot, 46 bytes each."""
    states = ProducerStates()
    producer = Producer(0x0102, 3)
    producer.batches.append(ProducerBatch(9, 1000, 4, 77))
    producer.last_ms, producer.coordinator_epoch = 77, 5
    states.restore(producer)
    data = encode_snapshot(states)
    assert data[:2] == b"\0\1"
    assert data[6:10] == (1).to_bytes(4)
    assert data[10:56].hex() == "000000000000010200030000000900000000000003e800000004" + (
        "000000000000004d00000005ffffffffffffffff"
    )


def test_a_damaged_snapshot_is_no_snapshot() -> None:
    data = encode_snapshot(some_states())
    for size in range(len(data)):
        assert decode_snapshot(data[:size]) is None
    for at in range(len(data)):
        assert decode_snapshot(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]) is None


def test_repeats_are_known_after_a_kill_and_after_a_roll(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_bytes=300))
    producer = ProducerIdentity(3, 0)
    for number in range(9):
        kit.append(log, kit.batch(2, producer=producer, sequence=2 * number))
    for file in path.glob("*0.snapshot"):
        os.unlink(file)
    again = kit.open(path, kit.config(segment_bytes=300))
    for number in range(4, 9):
        repeat = kit.batch(2, producer=producer, sequence=2 * number)
        assert again.producers.check(read_header(repeat, 0)) == 2 * number
    check_invariants(again)


def test_producers_outlive_their_records(kit: Kit, path: Path) -> None:
    log = kit.open(path, kit.config(segment_bytes=300))
    producer = ProducerIdentity(3, 0)
    for number in range(9):
        kit.append(log, kit.batch(2, producer=producer, sequence=2 * number))
    log.delete_before(18)
    log.clean(1000)
    log.delete()
    again = kit.open(path)
    assert again.start_offset == again.end_offset == 18
    assert again.producers.check(read_header(kit.batch(2, producer=producer, sequence=16), 0)) == 16
