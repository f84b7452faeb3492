"""Compressions: kafka-python's codecs as the reference in both directions, bombs, cuts, arbitrary bytes."""

from __future__ import annotations

import gzip
import random
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from kafka import codec as reference

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Compression
from treecast.middleware.wire import compression
from treecast.middleware.wire.compression import SNAPPY_BLOCK, Unfinished, compress, decompress, most_added

REAL = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"the quick brown fox jumps over the lazy dog. " * 3000
LIMIT = 1 << 20

ENCODE = {
    Compression.GZIP: reference.gzip_encode,
    Compression.SNAPPY: reference.snappy_encode,
    Compression.LZ4: reference.lz4_encode,
    Compression.ZSTD: reference.zstd_encode,
}
DECODE = {
    Compression.GZIP: reference.gzip_decode,
    Compression.SNAPPY: reference.snappy_decode,
    Compression.LZ4: reference.lz4_decode,
    Compression.ZSTD: reference.zstd_decode,
}


def refused(codec: Compression, data: bytes, limit: int = LIMIT) -> TreecastError:
    with pytest.raises(TreecastError) as caught:
        decompress(codec, data, limit)
    return caught.value


OURS = (None, Fault.CORRUPT_BATCH, Fault.BATCH_TOO_LARGE)


def outcome(codec: Compression, data: bytes, limit: int) -> Fault | None:
    """Returns None if `data` is accepted. Any error but TreecastError fails the test."""
    try:
        decompress(codec, data, limit)
    except TreecastError as error:
        return error.fault
    return None


@pytest.mark.parametrize("codec", list(Compression))
@given(data=st.binary(max_size=2000))
@example(data=b"")
@example(data=TEXT)
def test_round_trip(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data
    assert decompress(codec, memoryview(bytearray(compress(codec, memoryview(data)))), LIMIT) == data


@pytest.mark.parametrize("codec", REAL)
@pytest.mark.parametrize("data", [b"x", TEXT], ids=["short", "long"])
def test_agrees_with_kafka_python(codec: Compression, data: bytes) -> None:
    assert bytes(DECODE[codec](compress(codec, data))) == data
    assert decompress(codec, bytes(ENCODE[codec](data)), LIMIT) == data


@pytest.mark.parametrize("codec", list(Compression))
def test_limit_is_exact(codec: Compression) -> None:
    data = compress(codec, TEXT)
    assert decompress(codec, data, len(TEXT)) == TEXT
    error = refused(codec, data, len(TEXT) - 1)
    assert error.fault is Fault.BATCH_TOO_LARGE
    assert str(len(TEXT) - 1) in error.detail


@pytest.mark.parametrize("codec", REAL)
def test_every_cut_is_refused(codec: Compression) -> None:
    data = compress(codec, TEXT[:200])
    for length in range(len(data)):
        if codec is Compression.SNAPPY and length == 16:
            continue  # a header alone is snappy-java's empty stream
        assert refused(codec, data[:length]).fault is Fault.CORRUPT_BATCH, length


@pytest.mark.parametrize("codec", REAL)
def test_large_data_is_refused_where_it_is_cut(codec: Compression) -> None:
    noise = zlib.compress(TEXT) * 300
    data = compress(codec, noise)
    for cut in (1, 3, 8, 1000, len(data) // 2):
        assert refused(codec, data[:-cut], len(noise)).fault is Fault.CORRUPT_BATCH


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_several_frames_are_one_text(codec: Compression) -> None:
    data = compress(codec, b"one ") + compress(codec, b"two")
    assert decompress(codec, data, 7) == b"one two"
    assert refused(codec, data, 6).fault is Fault.BATCH_TOO_LARGE
    assert refused(codec, data + b"\0").fault is Fault.CORRUPT_BATCH


@pytest.mark.parametrize("codec", REAL)
@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_give_only_our_error(codec: Compression, data: bytes) -> None:
    for candidate in (data, compress(codec, b"")[:16] + data):
        assert outcome(codec, candidate, 1000) in OURS


@pytest.mark.parametrize("codec", REAL)
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255))
def test_one_wrong_byte_gives_only_our_error(codec: Compression, at: float, value: int) -> None:
    data = bytearray(compress(codec, TEXT))
    data[int(at * len(data))] = value
    assert outcome(codec, bytes(data), len(TEXT) * 2) in OURS


# --- output of other clients


def test_gzip_of_other_writers() -> None:
    assert decompress(Compression.GZIP, gzip.compress(TEXT, 9), LIMIT) == TEXT


def test_raw_snappy() -> None:
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, raw, LIMIT) == TEXT


def test_snappy_golden_bytes() -> None:
    """snappy-java's header, then one block with its length; the block is one literal of 3 bytes."""
    golden = b"\x82SNAPPY\0" + bytes.fromhex("00000001 00000001 00000005 03 08") + b"abc"
    assert compress(Compression.SNAPPY, b"abc") == golden
    assert decompress(Compression.SNAPPY, golden, 3) == b"abc"


def test_snappy_blocks_are_bounded_together() -> None:
    data = compress(Compression.SNAPPY, bytes(3 * SNAPPY_BLOCK))
    error = refused(Compression.SNAPPY, data, 2 * SNAPPY_BLOCK)
    assert error.fault is Fault.BATCH_TOO_LARGE
    assert str(2 * SNAPPY_BLOCK) in error.detail


def test_snappy_length_is_checked_before_it_is_allocated() -> None:
    claim = b"\xff\xff\xff\xff\x0f"  # 4 GiB in a raw block
    assert refused(Compression.SNAPPY, claim + b"\0abc").fault is Fault.BATCH_TOO_LARGE


def test_lz4_with_checksums_and_linked_blocks() -> None:
    framed = lz4.frame.compress(TEXT, block_linked=True, content_checksum=True, block_checksum=True)
    assert decompress(Compression.LZ4, framed, LIMIT) == TEXT


def test_lz4_frame_of_java_clients() -> None:
    """KIP-57: version 1, independent blocks of 64 KiB, no checksums but the header's."""
    head = compress(Compression.LZ4, TEXT)[:7]
    assert head[:4] == bytes.fromhex("04224d18")
    assert head[4] & 0b1110_0000 == 0b0110_0000  # version 01, blocks independent
    assert head[4] & 0b0001_1101 == 0  # no checksums, size or dictionary
    assert head[5] == 0x40  # blocks of 64 KiB


def test_zstd_without_its_content_size() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    data = compressor.compress(TEXT)
    assert decompress(Compression.ZSTD, data, len(TEXT)) == TEXT
    assert refused(Compression.ZSTD, data, len(TEXT) - 1).fault is Fault.BATCH_TOO_LARGE


def test_zstd_flushed_in_pieces() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    parts = []
    for start in range(0, len(TEXT), 999):
        parts += [stream.compress(TEXT[start : start + 999]), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)]
    parts.append(stream.flush())
    assert decompress(Compression.ZSTD, b"".join(parts), LIMIT) == TEXT


def test_zstd_that_lies_about_its_content_size() -> None:
    """A frame header with 8 bytes of content size, which claims 2^62, then an empty last block."""
    claim = bytes.fromhex("28b52ffd e0") + (2**62).to_bytes(8, "little") + b"\x01\0\0"
    assert refused(Compression.ZSTD, claim).fault is Fault.BATCH_TOO_LARGE


def test_zstd_skippable_frame() -> None:
    skipped = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    assert decompress(Compression.ZSTD, skipped + compress(Compression.ZSTD, TEXT), LIMIT) == TEXT


@pytest.mark.parametrize("codec", REAL)
def test_bomb_is_stopped(codec: Compression) -> None:
    bomb = compress(codec, bytes(32 << 20))
    assert refused(codec, bomb, 1 << 16).fault is Fault.BATCH_TOO_LARGE


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
def test_a_crowd_of_empty_frames_is_refused(codec: Compression) -> None:
    """Each frame would copy the rest of the data: a second of work for a megabyte."""
    assert refused(codec, compress(codec, b"") * 65).fault is Fault.CORRUPT_BATCH


def test_a_crowd_of_empty_snappy_blocks_is_refused() -> None:
    data = compress(Compression.SNAPPY, b"")
    assert refused(Compression.SNAPPY, data + b"\0\0\0\1\0" * 1000).fault is Fault.CORRUPT_BATCH


@pytest.mark.parametrize("codec", REAL)
def test_what_is_larger_than_wanted_at_once_is_not_refused(codec: Compression) -> None:
    data = compress(codec, TEXT)
    with pytest.raises(Unfinished):
        decompress(codec, data, LIMIT, at_once=len(TEXT) - 1)
    assert decompress(codec, data, LIMIT, at_once=len(TEXT)) == TEXT
    with pytest.raises(TreecastError) as caught:  # too large in any case
        decompress(codec, data, len(TEXT) - 1, at_once=len(TEXT) - 1)
    assert caught.value.fault is Fault.BATCH_TOO_LARGE


SIZES = (0, 1, 100, 16_383, 16_385, SNAPPY_BLOCK, SNAPPY_BLOCK + 1, 65_537, 131_073, 1 << 20)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", SIZES)
def test_data_that_cannot_be_made_smaller_grow_by_a_bounded_size(codec: Compression, size: int) -> None:
    rng = random.Random(size)
    word = rng.randbytes(4)
    short_matches = b"".join(word + rng.randbytes(1) for _ in range(size // 5))
    for data in (rng.randbytes(size), short_matches):
        assert len(compress(codec, data)) - len(data) <= most_added(codec, len(data))


def test_lz4_reads_frames_that_end_anywhere_in_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the input in pieces, because it copies what is left of a piece at each step."""
    rng = random.Random(1)
    parts = [rng.randbytes(size) for size in (0, 1, 700, 70_000)]
    framed = b"".join(lz4.frame.compress(part) for part in parts)
    for step in (1, 7, 1000, 1 << 20):
        monkeypatch.setattr(compression, "_PIECE", step)
        assert decompress(Compression.LZ4, framed, LIMIT) == b"".join(parts)
        assert refused(Compression.LZ4, framed[:-1]).fault is Fault.CORRUPT_BATCH
        assert refused(Compression.LZ4, framed + b"x").fault is Fault.CORRUPT_BATCH
