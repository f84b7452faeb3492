"""The checks of a broker: a fault for every wrong field, cuts, arbitrary bytes, and the walk's plain twin."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire import compression
from treecast.middleware.wire.batch import BatchHeader, walk_records
from treecast.middleware.wire.compression import RECORD_BYTES
from treecast.middleware.wire.record_batch import (
    HEADER_SIZE,
    MAX_UNCOMPRESSED_BYTES,
    Unfinished,
    build_batch,
    check_batches,
    control_marker,
    most_uncompressed,
    read_header,
    read_records,
)

LARGE = 1 << 24
VALUES = [Record(b"k%d" % i, b"some value", (("h", b"x"),), 1_000 + i) for i in range(5)]
Records = st.SearchStrategy[list[Record]]
Mutations = st.SearchStrategy[Callable[[bytes], bytes]]


def sealed(batch: bytes | bytearray) -> bytearray:
    """Returns `batch` with the size and CRC that its bytes require."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return out


def changed(form: str, at: int, value: int, batch: bytes | None = None) -> bytearray:
    """Returns a good batch with one changed field of the header and a right CRC."""
    out = bytearray(build_batch(VALUES) if batch is None else batch)
    struct.pack_into(form, out, at, value)
    return sealed(out)


def fault(data: bytes | bytearray, limit: int = LARGE, **options: bool) -> Fault | None:
    try:
        check_batches(memoryview(bytearray(data)), limit, **options)
    except TreecastError as error:
        return error.fault
    return None


def test_good_batches_are_accepted_and_left_alone() -> None:
    good = build_batch(VALUES) + build_batch(VALUES, compression=Compression.ZSTD)
    data = bytearray(good)
    headers = check_batches(memoryview(data), LARGE)
    assert [header.count for header in headers] == [5, 5]
    assert data == good


def test_one_batch_per_partition() -> None:
    """Kafka: Produce 3 and later carries exactly one batch."""
    good = build_batch(VALUES)
    assert fault(good, single=True) is None
    assert fault(good + good, single=True) is Fault.INVALID_RECORD
    assert fault(b"", single=True) is Fault.INVALID_RECORD
    assert fault(b"") is Fault.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Compression))
def test_every_cut_is_refused(codec: Compression) -> None:
    good = build_batch(VALUES, compression=codec)
    for length in range(1, len(good)):
        assert fault(good[:length]) in (Fault.CORRUPT_BATCH, Fault.UNSUPPORTED_BATCH_FORMAT), length


@given(st.binary(min_size=1, max_size=100))
def test_trailing_bytes_are_refused(trailing: bytes) -> None:
    assert fault(build_batch(VALUES) + trailing) in (
        Fault.CORRUPT_BATCH,
        Fault.UNSUPPORTED_BATCH_FORMAT,
        Fault.BATCH_TOO_LARGE,
    )


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_only_a_refusal(data: bytes) -> None:
    assert fault(data) is not None
    assert fault(data[:16] + b"\2" + data[17:]) is not None


@pytest.mark.parametrize("index", range(12, HEADER_SIZE + 10))
def test_any_wrong_byte_under_the_crc_is_found(index: int) -> None:
    data = bytearray(build_batch(VALUES))
    data[index] ^= 0x41
    covered = index >= 16
    expected = Fault.UNSUPPORTED_BATCH_FORMAT if index == 16 else Fault.CORRUPT_BATCH
    assert fault(data) is (expected if covered else None)


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_only_magic_2(magic: int) -> None:
    data = bytearray(build_batch(VALUES))
    data[16] = magic
    assert fault(data) is Fault.UNSUPPORTED_BATCH_FORMAT
    assert fault(data[:17]) is Fault.UNSUPPORTED_BATCH_FORMAT


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 49, 2**30, 2**31 - 1])
def test_a_size_that_lies(length: int) -> None:
    data = bytearray(build_batch(VALUES))
    struct.pack_into(">i", data, 8, length)
    assert fault(data, 2**32) is Fault.CORRUPT_BATCH


def test_the_largest_batch_is_exact() -> None:
    good = build_batch(VALUES)
    assert fault(good, len(good)) is None
    assert fault(good, len(good) - 1) is Fault.BATCH_TOO_LARGE


LIES = {
    "no records": (changed(">i", 57, 0), Fault.INVALID_RECORD),
    "a negative count": (changed(">i", 57, -1), Fault.INVALID_RECORD),
    "a count above the offsets": (changed(">i", 57, 6), Fault.INVALID_RECORD),
    "a count below the offsets": (changed(">i", 57, 4), Fault.INVALID_RECORD),
    "a negative last offset": (changed(">i", 23, -1), Fault.INVALID_RECORD),
    "the largest count": (changed(">i", 23, 2**31 - 1, changed(">i", 57, -(2**31))), Fault.INVALID_RECORD),
    "control": (changed(">h", 21, 0x20), Fault.INVALID_RECORD),
    "a delete horizon": (changed(">h", 21, 0x40), Fault.INVALID_RECORD),
    "log append time": (changed(">h", 21, 0x08), Fault.INVALID_TIMESTAMP),
    "a transaction of nobody": (changed(">h", 21, 0x10), Fault.INVALID_RECORD),
    "a producer without a sequence": (changed(">q", 43, 9), Fault.INVALID_RECORD),
    "codec 5": (changed(">h", 21, 5), Fault.UNSUPPORTED_COMPRESSION),
    "codec 7": (changed(">h", 21, 7), Fault.UNSUPPORTED_COMPRESSION),
    "a time beyond 64 bits": (changed(">q", 27, 2**63 - 2), Fault.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies(lie: str) -> None:
    data, expected = LIES[lie]
    assert fault(data) is expected


def test_a_client_may_not_end_a_transaction() -> None:
    marker = control_marker(1, ProducerIdentity(4, 2), coordinator_epoch=0, timestamp=1)
    assert fault(marker) is Fault.INVALID_RECORD


def test_idempotent_and_transactional_batches_are_accepted() -> None:
    producer = ProducerIdentity(4, 2)
    assert fault(build_batch(VALUES, producer=producer, base_sequence=0)) is None
    assert fault(build_batch(VALUES, producer=producer, base_sequence=7, transactional=True)) is None


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("claimed", [4, 6, 2**31 - 1])
def test_counts_that_lie_together(codec: Compression, claimed: int) -> None:
    """Count and last offset delta agree and the CRC is right, but the number of records differs."""
    data = changed(">i", 23, claimed - 1, changed(">i", 57, claimed, build_batch(VALUES, compression=codec)))
    assert fault(data) is Fault.INVALID_RECORD
    assert fault(data, deep=False) is None


def test_compressed_data_that_is_broken() -> None:
    for codec in list(Compression)[1:]:
        batch = build_batch(VALUES, compression=codec)
        assert fault(sealed(batch[:-3])) is Fault.CORRUPT_BATCH
        assert fault(sealed(batch[:HEADER_SIZE])) in (Fault.CORRUPT_BATCH, Fault.INVALID_RECORD)


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> int:
    """Every topic allows 512 KiB of decompressed records in a batch, and that is 4,096 records."""
    monkeypatch.setattr(compression, "MIN_UNCOMPRESSED_BYTES", 1 << 19)
    monkeypatch.setattr(compression, "MAX_UNCOMPRESSED_BYTES", 1 << 19)
    return 1 << 19


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_bombs_are_bounded(codec: Compression, small_bounds: int) -> None:
    def bomb(size: int) -> memoryview:
        return memoryview(bytearray(build_batch([Record(None, bytes(size))], compression=codec)))

    (header,) = check_batches(bomb(small_bounds - 20), LARGE)
    assert small_bounds - 20 < header.record_bytes <= small_bounds
    with pytest.raises(TreecastError, match="send smaller batches") as caught:
        check_batches(bomb(small_bounds), LARGE)
    assert caught.value.fault is Fault.BATCH_TOO_LARGE
    with pytest.raises(Unfinished):
        check_batches(bomb(small_bounds - 20), LARGE, at_once=1000)


def test_many_records_of_a_compressed_batch_are_bounded(small_bounds: int) -> None:
    """Each takes more as an object than as bytes. A number that lies is what it was: a wrong batch."""
    most = small_bounds // RECORD_BYTES
    for count, outcome in ((most, None), (most + 1, Fault.BATCH_TOO_LARGE)):
        records = [Record(None, b"")] * count
        assert fault(bytearray(build_batch(records, compression=Compression.LZ4))) is outcome
        assert fault(bytearray(build_batch(records))) is None
    few = build_batch([Record(None, b"")] * 9, compression=Compression.LZ4)
    assert fault(changed(">i", 23, most, changed(">i", 57, most + 1, few))) is Fault.INVALID_RECORD


def test_what_a_topic_allows_decides_what_a_batch_may_decompress_to() -> None:
    assert most_uncompressed(2_000) == 64 << 20
    assert most_uncompressed(1_048_588) == 128 * 1_048_588
    assert most_uncompressed(20_000_000) == most_uncompressed(2**31 - 1) == MAX_UNCOMPRESSED_BYTES


@pytest.mark.parametrize("codec", list(Compression))
def test_a_max_timestamp_that_lies_is_put_right(codec: Compression) -> None:
    """Kafka's LogValidator does the same: otherwise the time index would be wrong."""
    truth = build_batch(VALUES, compression=codec)
    data = changed(">q", 35, 2**50, truth)
    (header,) = check_batches(memoryview(data), LARGE)
    assert header.max_timestamp == 1_004
    assert header.crc == read_header(truth, 0).crc
    assert data == truth


def test_keyless_records_are_pointed_out() -> None:
    values = [Record(b"", b""), Record(b"a", b""), Record(None, b""), Record(None, b"")]
    for codec in Compression:
        (header,) = check_batches(memoryview(bytearray(build_batch(values, compression=codec))), LARGE)
        assert header.first_keyless == 2


# --- records: the walk, compared with its plain twin


def twin_accepts(payload: bytes, count: int) -> bool:
    header = BatchHeader(0, HEADER_SIZE + len(payload), -1, 2, 0, 0, count - 1, 0, 0, -1, -1, -1, count)
    try:
        read = read_records(bytes(HEADER_SIZE) + payload, 0, header)
    except TreecastError:
        return False
    return [record.offset for record in read] == list(range(count))


def walk_accepts(payload: bytes, count: int) -> bool:
    try:
        walk_records(payload, 0, count)
    except ValueError:
        return False
    return True


@given(data=st.data())
def test_the_walk_accepts_what_reading_accepts(
    records: Records, mutations: Mutations, data: st.DataObject
) -> None:
    values = data.draw(records)
    payload = build_batch(values)[HEADER_SIZE:]
    assert walk_accepts(payload, len(values))
    assert not walk_accepts(payload, len(values) + 1)
    assert not walk_accepts(payload, len(values) - 1)
    broken = data.draw(mutations)(payload)
    assert walk_accepts(broken, len(values)) == twin_accepts(broken, len(values))


@given(data=st.data())
def test_the_walk_finds_the_times_that_reading_finds(records: Records, data: st.DataObject) -> None:
    values = data.draw(records)
    facts = walk_records(build_batch(values)[HEADER_SIZE:], 0, len(values))
    deltas = [value.timestamp - values[0].timestamp for value in values]
    assert (facts.min_delta, facts.max_delta) == (min(deltas), max(deltas))


BODY = "00 00 00 01 01 00"  # attributes, time, offset, no key, no value, no headers
RECORDS = {
    "0c" + BODY: None,
    "0a" + BODY: "does not|do not",  # one byte short
    "0e" + BODY: "longer than the batch",
    "01" + BODY: "longer than the batch",  # a negative length
    "00": "end before",
    "0c 00 00 02 01 01 00": "offset delta 1",
    "0c 00 00 00 03 01 00": "a length of -2",
    "0c 00 00 00 01 03 00": "a length of -2",
    "0c 00 00 00 7e 01 00": "a length of 63",
    "0c 00 00 00 01 7e 00": "a length of 63",
    "0c 00 00 00 01 01 01": "-1 headers",
    "0c 00 00 00 01 01 7e": "63 headers",
    "0e 00 00 00 01 01 02 01": "no key",
    "10 00 00 00 01 01 02 00 03": "a length of -2",
    "10 00 00 00 01 01 02 00 01": None,  # an empty header key, a null value
    "14 00 00 8080808000 01 01 00": None,  # an offset delta of 0 that takes 5 bytes
    "16 00 00 808080808000 01 01 00": "5 bytes",
}


@pytest.mark.parametrize("text", RECORDS)
def test_one_record(text: str) -> None:
    payload = bytes.fromhex(text)
    reason = RECORDS[text]
    assert twin_accepts(payload, 1) == (reason is None)
    if reason is None:
        walk_records(payload, 0, 1)
    else:
        with pytest.raises(ValueError, match=reason):
            walk_records(payload, 0, 1)
