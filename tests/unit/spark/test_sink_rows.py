"""Rows become batches: compared with plain batch building, and with Kafka's own choice of partitions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as kafka_murmur2

from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import build_batch, check_batches, seal_batch
from treecast.spark_connectors.sink.rows import Headers, Pending, Values, add_rows, by_key, murmur2
from treecast.spark_connectors.sink.tables import packed

pa = pytest.importorskip("pyarrow")

bytes_or_null = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), bytes_or_null), max_size=3)
rows = st.lists(
    st.tuples(bytes_or_null, bytes_or_null, headers, st.integers(0, 2**41)), min_size=1, max_size=20
)


def column(values: list[bytes | None]) -> Values:
    return packed(pa.array(values, pa.binary()))


@settings(max_examples=60)
@given(rows, st.booleans(), st.sampled_from([Compression.NONE, Compression.LZ4]))
def test_batches_are_those_that_values_make(found: list, all_columns: bool, codec: Compression) -> None:
    pending = Pending()
    keys = [row[0] for row in found] if all_columns else None
    times = [row[3] for row in found] if all_columns else None
    listed: list[Headers | None] | None = None
    if all_columns:
        listed = [[{"key": name, "value": value} for name, value in row[2]] or None for row in found]
    values = [row[1] for row in found]
    assert add_rows([pending], None, 0, keys, column(values), times, 77, listed, 0, 1 << 30) == len(found)
    producer = ProducerIdentity(5, 2)
    sealed = seal_batch(
        pending.body(),
        pending.count,
        pending.base_time,
        pending.max_time,
        compression=codec,
        producer=producer,
        base_sequence=9,
        transactional=True,
    )
    records = [
        Record(
            row[0] if all_columns else None,
            row[1],
            tuple(row[2]) if all_columns else (),
            row[3] if all_columns else 77,
        )
        for row in found
    ]
    plain = build_batch(records, compression=codec, producer=producer, base_sequence=9, transactional=True)
    assert sealed == plain
    if codec is Compression.NONE:
        assert pending.size == len(sealed) - 61


@given(
    st.lists(st.none() | st.text(max_size=5), max_size=8),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    st.integers(0, 3),
)
def test_values_are_cut_where_arrow_has_them(found: list[str | None], kind: object, skipped: int) -> None:
    """This includes a slice, which starts within its buffers."""
    part = pa.array(found, pa.string()).cast(kind)[skipped:]
    plain = [None if text is None else text.encode() for text in found[skipped:]]
    pending = Pending()
    assert add_rows([pending], None, 0, None, packed(part), None, 5, None, 0, 1 << 20) == len(plain)
    if plain:
        sealed = seal_batch(pending.body(), pending.count, pending.base_time, pending.max_time)
        assert sealed == build_batch([Record(None, value, (), 5) for value in plain])


def test_values_that_are_not_as_many_as_said() -> None:
    with pytest.raises(ValueError, match="these are not 2 values"):
        Values(2, bytes(16), b"", b"")


def test_a_batch_that_is_full_stops() -> None:
    first, second = Pending(), Pending()
    values: list[bytes | None] = [b"x" * 100] * 10
    row = add_rows([first, second], [0, 1] * 5, 0, None, column(values), None, 1, None, 0, 300)
    assert (row, first.count, second.count) == (5, 3, 2)
    row = add_rows([Pending(), second], [0, 1] * 5, 0, None, column(values), None, 1, None, row, 10_000)
    assert row == 10
    assert second.count == 5


def test_many_records_and_times_before_the_first() -> None:
    pending = Pending()
    values: list[bytes | None] = [b"v"] * 20_000
    times = [1_700_000_000_000 - n for n in range(20_000)]
    assert add_rows([pending], None, 0, None, column(values), times, 0, None, 0, 1 << 30) == 20_000
    data = bytearray(seal_batch(pending.body(), pending.count, pending.base_time, pending.max_time))
    (header,) = check_batches(memoryview(data), 1 << 20)
    assert (header.count, header.max_timestamp) == (20_000, times[0])


@given(st.binary(max_size=40))
def test_keys_are_hashed_as_kafka_does(key: bytes) -> None:
    assert murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF
    assert by_key([key, None], 7, 3) == [(kafka_murmur2(key) & 0x7FFFFFFF) % 7, 3]


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5])
def test_hashes_of_all_lengths(size: int) -> None:
    assert murmur2(b"\xff" * size) == kafka_murmur2(b"\xff" * size) & 0xFFFFFFFF
