"""Record batches from and to values: golden bytes, kafka-python's builder and reader as the oracle."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record, TimestampType
from treecast.middleware.wire import record_batch
from treecast.middleware.wire.record_batch import (
    ABORT,
    COMMIT,
    HEADER_SIZE,
    build_batch,
    check_batches,
    control_marker,
    encode_record,
    patch_batch,
    read_control_type,
    read_header,
    read_records,
    record_size,
    stamp_append_time,
)

LARGE = 1 << 24
Records = st.SearchStrategy[list[Record]]


def theirs(records: list[Record], codec: Compression, producer: ProducerIdentity, sequence: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        2, codec, False, producer.producer_id, producer.epoch, sequence, LARGE
    )
    for index, record in enumerate(records):
        builder.append(index, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def as_read_by_kafka_python(data: bytes) -> list[Record]:
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    return [Record(r.key, r.value, tuple(r.headers), r.timestamp, r.offset) for r in batch]


def test_golden_bytes() -> None:
    """One record with key, value and a header, laid out by hand according to the protocol guide."""
    body = bytes.fromhex(
        "22"  # length 17
        "00"  # attributes
        "00"  # timestamp delta
        "00"  # offset delta
        "02 6b"  # key "k"
        "0a 76616c7565"  # value "value"
        "02"  # one header
        "02 68"  # its key "h"
        "04 6869"  # its value "hi"
    )
    covered = bytes.fromhex(
        "0000"  # attributes
        "00000000"  # last offset delta
        "0000018bcfe56800 0000018bcfe56800"  # base and max timestamp 1700000000000
        "ffffffffffffffff ffff ffffffff"  # no producer
        "00000001"  # count
    )
    rest = covered + body
    golden = struct.pack(">qiibI", 7, 9 + len(rest), 3, 2, 0x69B73D69) + rest
    record = Record(b"k", b"value", (("h", b"hi"),), 1_700_000_000_000)
    assert build_batch([record], base_offset=7, leader_epoch=3).hex() == golden.hex()
    assert check_batches(memoryview(bytearray(golden)), LARGE)[0].base_offset == 7


@pytest.mark.parametrize("codec", list(Compression))
@given(data=st.data())
def test_batches_of_kafka_python_are_read(records: Records, codec: Compression, data: st.DataObject) -> None:
    values = data.draw(records)
    producer = data.draw(st.sampled_from([ProducerIdentity(), ProducerIdentity(2**40, 7)]))
    sequence = -1 if producer.producer_id < 0 else 2**31 - 3
    batch = bytearray(theirs(values, codec, producer, sequence))
    (header,) = check_batches(memoryview(batch), LARGE)
    oracle = DefaultRecordBatch(batch)
    assert (header.size, header.count, header.crc) == (len(batch), len(values), oracle.crc)
    assert (header.attributes, header.compression) == (oracle.attributes, oracle.compression_type)
    assert (header.producer_id, header.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (header.base_sequence, header.last_sequence) == (sequence, oracle.last_sequence)
    assert (header.base_timestamp, header.max_timestamp) == (oracle.first_timestamp, oracle.max_timestamp)
    assert header.min_timestamp == min(value.timestamp for value in values)
    keyless = [index for index, value in enumerate(values) if value.key is None]
    assert header.first_keyless == (keyless[0] if keyless else -1)
    assert read_records(batch, 0, header) == as_read_by_kafka_python(bytes(batch))


@pytest.mark.parametrize("codec", list(Compression))
@given(data=st.data())
def test_our_batches_are_read_by_kafka_python(
    records: Records, codec: Compression, data: st.DataObject
) -> None:
    values = data.draw(records)
    base = data.draw(st.integers(0, 2**62))
    batch = build_batch(values, base_offset=base, compression=codec)
    read = as_read_by_kafka_python(batch)
    assert read == [
        Record(value.key, value.value, value.headers, value.timestamp, base + index)
        for index, value in enumerate(values)
    ]
    assert read_records(batch, 0, read_header(batch, 0)) == read


@given(data=st.data())
def test_uncompressed_batches_equal_those_of_kafka_python(records: Records, data: st.DataObject) -> None:
    values = data.draw(records)
    ours = build_batch(values, leader_epoch=0)
    assert ours == theirs(values, Compression.NONE, ProducerIdentity(), -1)


@given(data=st.data())
def test_record_size_is_an_upper_bound(records: Records, data: st.DataObject) -> None:
    for record in data.draw(records):
        out = bytearray()
        encode_record(out, record, 2**40, 2**31 - 1)
        longest = len(record.headers) * 20 + 30
        assert len(out) <= record_size(record, 2**40, 2**31 - 1) <= len(out) + longest


# --- for compaction


def test_offsets_with_gaps_are_kept() -> None:
    values = [Record(b"a", b"1", (), 5, 100), Record(b"b", None, (), 6, 104)]
    batch = build_batch(values, base_offset=98, last_offset_delta=9, base_sequence=40, max_timestamp=90)
    header = read_header(batch, 0)
    assert read_records(batch, 0, header) == values
    assert (header.count, header.last_offset, header.next_offset) == (2, 107, 108)
    assert (header.max_timestamp, header.last_sequence) == (90, 49)


def test_a_batch_may_be_left_without_records() -> None:
    producer = ProducerIdentity(9, 1)
    batch = build_batch([], base_offset=50, last_offset_delta=4, base_sequence=3, producer=producer)
    header = read_header(batch, 0)
    assert (header.count, header.last_offset, header.last_sequence) == (0, 54, 7)
    assert (header.producer_id, header.base_timestamp) == (9, -1)
    assert read_records(batch, 0, header) == []


def test_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    values = [Record(b"a", None, (), 1_000, 0), Record(b"b", b"", (), 900, 1)]
    batch = build_batch(values, delete_horizon=5_000)
    header = read_header(batch, 0)
    assert header.delete_horizon
    assert (header.base_timestamp, header.max_timestamp) == (5_000, 1_000)
    assert read_records(batch, 0, header) == values


def test_header_keys_that_are_no_text_survive() -> None:
    record = Record(b"k", b"v", (("h", b""),), 1)
    out = bytearray(build_batch([record]))
    out[out.index(b"h", HEADER_SIZE)] = 0xFF
    header = read_header(out, 0)
    (read,) = read_records(out, 0, header)
    assert build_batch([read])[HEADER_SIZE:] == bytes(out[HEADER_SIZE:])


# --- fields that a broker writes in place


def test_patch_leaves_the_rest_and_the_crc_alone() -> None:
    before = build_batch([Record(b"k", b"v", (), 1)])
    batch = bytearray(b"##" + before + b"##")
    patch_batch(memoryview(batch), 2, 2**40, 77)
    header = read_header(batch, 2)
    assert (header.base_offset, header.leader_epoch) == (2**40, 77)
    assert batch[:2] + batch[-2:] == b"####"
    assert batch[2 + 16 : -2] == before[16:]
    assert DefaultRecordBatch(batch[2:-2]).validate_crc()


@pytest.mark.parametrize("codec", list(Compression))
def test_append_time_is_the_time_of_all_records(codec: Compression) -> None:
    batch = bytearray(
        b"##" + build_batch([Record(None, b"v" * 50, (), t) for t in (5, 9)], compression=codec)
    )
    stamp_append_time(memoryview(batch), 2, 123_456)
    header = read_header(batch, 2)
    assert header.log_append_time
    assert (header.max_timestamp, header.compression) == (123_456, codec)
    assert {record.timestamp for record in read_records(batch, 2, header)} == {123_456}
    assert [record.timestamp for record in as_read_by_kafka_python(bytes(batch[2:]))] == [123_456] * 2


def test_append_time_can_be_built() -> None:
    batch = build_batch([Record(b"", b"", (), 8)], timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert read_header(batch, 0).log_append_time


# --- end-transaction markers


@pytest.mark.parametrize(("kind", "name"), [(ABORT, "abort"), (COMMIT, "commit")])
def test_control_markers(kind: int, name: str) -> None:
    marker = control_marker(kind, ProducerIdentity(4, 2), coordinator_epoch=6, timestamp=99, base_offset=11)
    header = read_header(marker, 0)
    assert header.control
    assert header.transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, -1)
    assert read_control_type(marker, 0, header) == kind
    (oracle,) = DefaultRecordBatch(marker)
    assert (oracle.commit, oracle.abort) == (name == "commit", name == "abort")
    assert (oracle.offset, oracle.value) == (11, struct.pack(">hi", 0, 6))


def test_a_control_batch_without_a_type_is_corrupt() -> None:
    for record in (Record(None, b""), Record(b"\0\0\0", b"")):
        batch = build_batch([record], control=True)
        with pytest.raises(TreecastError) as caught:
            read_control_type(batch, 0, read_header(batch, 0))
        assert caught.value.fault is Fault.CORRUPT_BATCH


# --- broken input


@given(data=st.data())
def test_broken_records_give_only_corrupt_batch(
    records: Records, mutations: st.SearchStrategy[object], data: st.DataObject
) -> None:
    batch = build_batch(data.draw(records))
    mutate = data.draw(mutations)
    assert callable(mutate)
    broken = batch[:HEADER_SIZE] + mutate(batch[HEADER_SIZE:])
    header = read_header(broken, 0)
    header.size = len(broken)
    assert _fault_of_reading(broken, header) in (None, Fault.CORRUPT_BATCH)


def _fault_of_reading(data: bytes, header: record_batch.BatchHeader) -> Fault | None:
    try:
        read_records(data, 0, header)
    except TreecastError as error:
        return error.fault
    return None


@pytest.mark.parametrize("position", [-1, 1, 1000])
def test_a_header_beyond_the_data_is_corrupt(position: int) -> None:
    with pytest.raises(TreecastError) as caught:
        read_header(bytes(HEADER_SIZE), position)
    assert caught.value.fault is Fault.CORRUPT_BATCH


def test_unknown_compression_cannot_be_read() -> None:
    batch = bytearray(build_batch([Record(None, b"")]))
    batch[22] = 6
    with pytest.raises(TreecastError) as caught:
        read_records(batch, 0, read_header(batch, 0))
    assert caught.value.fault is Fault.UNSUPPORTED_COMPRESSION


def test_reading_is_bounded() -> None:
    batch = build_batch([Record(None, bytes(100_000))], compression=Compression.ZSTD)
    with pytest.raises(TreecastError) as caught:
        read_records(batch, 0, read_header(batch, 0), 50_000)
    assert caught.value.fault is Fault.BATCH_TOO_LARGE
