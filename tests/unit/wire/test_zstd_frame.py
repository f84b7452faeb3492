"""Frame ends: zstandard's frames of every shape, whole and cut at every byte."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.wire.zstd_frame import are_whole_frames

SHAPES = [
    pytest.param({"write_content_size": size, "write_checksum": checksum}, id=f"size={size} sum={checksum}")
    for size in (False, True)
    for checksum in (False, True)
]
SIZES = [0, 1, 255, 256, 65_535, 65_792, 300_000]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_frames_of_every_shape(shape: dict[str, bool], size: int) -> None:
    frame = zstandard.ZstdCompressor(**shape).compress(bytes(range(256)) * (size // 256) + bytes(size % 256))
    assert are_whole_frames(frame)
    assert are_whole_frames(frame + frame)
    for length in [*range(min(len(frame), 40)), len(frame) - 4, len(frame) - 1]:
        assert not are_whole_frames(frame[:length])
    assert not are_whole_frames(frame + b"\x28")


def test_runs_and_raw_blocks() -> None:
    """A run of 131,072 bytes takes one byte; a raw block has the size that it states (RFC 8878, 3.1.1.2)."""
    head = bytes.fromhex("28b52ffd 00 50")
    run, raw = (131_072 << 3 | 1 << 1).to_bytes(3, "little"), (5 << 3 | 1).to_bytes(3, "little")
    frame = head + run + b"x" + raw + b"abcde"
    assert zstandard.ZstdDecompressor().decompressobj().decompress(frame) == b"x" * 131_072 + b"abcde"
    assert are_whole_frames(frame)
    assert not are_whole_frames(frame[:-1])


def test_dictionary_id() -> None:
    dictionary = zstandard.ZstdCompressionDict(b"some words that come often " * 20)
    frame = zstandard.ZstdCompressor(dict_data=dictionary, write_dict_id=True).compress(b"some words")
    assert are_whole_frames(frame)
    assert not are_whole_frames(frame[:-1])


@given(st.binary(max_size=100))
def test_arbitrary_bytes_give_an_answer(data: bytes) -> None:
    assert are_whole_frames(data) in (False, True)
