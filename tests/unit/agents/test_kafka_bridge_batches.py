"""Batches that cross are what a producer of the target would have sent, and no others cross."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.agents.kafka_bridge.batches import Batch, Run, Sieve, halves, taken_over
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record, TimestampType
from treecast.middleware.wire.record_batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    build_batch,
    check_batches,
    control_marker,
    read_header,
    read_records,
    sign_batch,
)

PRODUCER = ProducerIdentity(7, 3)
texts = st.none() | st.binary(max_size=20)
headers = st.lists(st.tuples(st.text(max_size=5), texts), max_size=3).map(tuple)
some = st.lists(st.builds(Record, texts, texts, headers, st.integers(0, 1 << 41)), min_size=1, max_size=6)


def signed(batch: Batch) -> bytes:
    sign_batch(memoryview(batch.data), 0, batch.header, PRODUCER, 5)
    return bytes(batch.data)


def contents(data: bytes) -> list[tuple[object, ...]]:
    found = read_records(data, 0, read_header(data, 0))
    return [(one.key, one.value, one.headers, one.timestamp) for one in found]


@given(some, st.sampled_from(Compression), st.integers(0, 1 << 40))
def test_a_signed_batch_is_the_one_that_a_producer_builds(
    records: list[Record], compression: Compression, base: int
) -> None:
    data = build_batch(records, base_offset=base, compression=compression, leader_epoch=4)
    made = taken_over(data, 0, read_header(data, 0), base)
    assert made is not None
    assert made.runs == [Run(base, len(records))]
    plain = build_batch(
        records, compression=compression, producer=PRODUCER, base_sequence=5, transactional=True
    )
    found = signed(made)
    assert found == plain
    assert [one.count for one in check_batches(memoryview(bytearray(found)), 1 << 20)] == [len(records)]


@given(some, st.sets(st.integers(0, 5)), st.integers(0, 6))
def test_gaps_are_closed(records: list[Record], kept: set[int], position: int) -> None:
    placed = [
        Record(one.key, one.value, one.headers, one.timestamp, 100 + number)
        for number, one in enumerate(records)
        if number in kept
    ]
    data = build_batch(placed, base_offset=100, last_offset_delta=len(records) - 1)
    made = taken_over(data, 0, read_header(data, 0), 100 + position)
    rest = [one for one in placed if one.offset >= 100 + position]
    if made is None:
        assert rest == []
        return
    found = signed(made)
    check_batches(memoryview(bytearray(found)), 1 << 20)
    assert contents(found) == [(one.key, one.value, one.headers, one.timestamp) for one in rest]
    offsets = [run.first + number for run in made.runs for number in range(run.count)]
    assert offsets == [one.offset for one in rest]


def test_the_time_of_the_append_becomes_that_of_the_records() -> None:
    data = build_batch(
        [Record(b"k", b"v", (), 5)], timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=900
    )
    made = taken_over(data, 0, read_header(data, 0), 0)
    assert made is not None
    found = signed(made)
    check_batches(memoryview(bytearray(found)), 1 << 20)
    assert contents(found) == [(b"k", b"v", (), 900)]


@given(some)
def test_halves_have_all_records_and_their_places(records: list[Record]) -> None:
    data = build_batch(records, base_offset=50)
    made = taken_over(data, 0, read_header(data, 0), 50)
    assert made is not None
    parts = halves(made)
    if len(records) == 1:
        assert parts == []
        return
    assert [row for one in parts for row in contents(bytes(one.data))] == contents(data)
    assert [run.first + n for one in parts for run in one.runs for n in range(run.count)] == [
        50 + number for number in range(len(records))
    ]


def log(*batches: bytes) -> tuple[bytes, list[BatchHeader]]:
    data, found, at = b"".join(batches), list[BatchHeader](), 0
    while at < len(data):
        found.append(read_header(data, at))
        at += found[-1].size
    return data, found


def batch(base: int, producer: int, *, transactional: bool = True) -> bytes:
    return build_batch(
        [Record(b"%d" % base, b"", (), 1)],
        base_offset=base,
        producer=ProducerIdentity(producer, 0),
        base_sequence=0,
        transactional=transactional,
    )


def marker(base: int, producer: int, kind: int) -> bytes:
    identity = ProducerIdentity(producer, 0)
    return control_marker(kind, identity, coordinator_epoch=0, timestamp=1, base_offset=base)


def test_aborted_and_returning_batches_stay() -> None:
    data, found = log(
        batch(0, 1),
        batch(1, 2),
        marker(2, 1, ABORT),
        batch(3, 1),  # of the next transaction, which is committed
        marker(4, 2, COMMIT),
        batch(5, 9),
        batch(6, -1, transactional=False),
        marker(7, 1, COMMIT),
    )
    taken = Sieve([(1, 0)], {9}).take(data, found, 0)
    assert [one.runs[0].first for one in taken.batches] == [1, 3, 6]
    assert (taken.aborted, taken.looped) == (1, 1)


def test_an_abort_whose_records_came_before_counts_once() -> None:
    data, found = log(marker(4, 1, ABORT), batch(5, 1), marker(6, 1, COMMIT))
    taken = Sieve([(1, 0)], ()).take(data, found, 4)
    assert [one.runs[0].first for one in taken.batches] == [5]
