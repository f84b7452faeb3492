"""The compressions of a record batch: gzip, snappy, lz4 and zstd, as Kafka's clients write them.

| codec  | form                                                                                  |
| ------ | ------------------------------------------------------------------------------------- |
| gzip   | RFC 1952, one or more members                                                         |
| snappy | the framing of xerial's snappy-java (written), or one raw block (also read)           |
| lz4    | the LZ4 frame format, independent blocks of 64 KiB, no checksums (KIP-57)             |
| zstd   | RFC 8878, one or more frames, whether or not they tell their content's size (KIP-110) |

The framing of snappy-java: 0x82 "SNAPPY" 0x00, version (int32) 1, compatible version (int32) 1, then blocks,
each a length (int32, big-endian) and a raw snappy block.

`decompress` never holds more than `limit` bytes of output plus one step, whatever the input claims.
"""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame
import zstandard

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Compression

Input = bytes | bytearray | memoryview

MAX_UNCOMPRESSED_BYTES = 64 * 1024 * 1024  # of one batch; a bomb is larger
GZIP_LEVEL = 6
ZSTD_LEVEL = 3
SNAPPY_BLOCK = 32 * 1024  # snappy-java's default
_GZIP_WINDOW = 31  # zlib: 15 bits of window, 16 for the gzip wrapper
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_INT32 = struct.Struct(">i")
_ZSTD_START = struct.Struct("<IB")
_ZSTD_SKIPPABLE = 0x184D2A50
_STEP = 256 * 1024


def compress(codec: Compression, data: Input) -> bytes:
    """`data` in `codec`'s form; NONE gives the bytes themselves."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        return compressor.compress(data) + compressor.flush()
    if codec is Compression.SNAPPY:
        return _compress_snappy(data)
    if codec is Compression.LZ4:
        framed: bytes = lz4.frame.compress(
            data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
        )
        return framed
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)


def decompress(codec: Compression, data: Input, limit: int) -> bytes:
    """What `data` holds: at most `limit` bytes, or BATCH_TOO_LARGE. CORRUPT_BATCH where it is broken."""
    if codec is Compression.NONE:
        return _bounded(bytes(data), limit)
    try:
        if codec is Compression.GZIP:
            return _decompress_gzip(data, limit)
        if codec is Compression.SNAPPY:
            return _decompress_snappy(data, limit)
        if codec is Compression.LZ4:
            return _decompress_lz4(data, limit)
        return _decompress_zstd(data, limit)
    except (zlib.error, cramjam.DecompressionError, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise TreecastError(
            Fault.CORRUPT_BATCH, f"the batch's {codec.name.lower()} data is broken: {error}"
        ) from error


def _too_large(limit: int) -> TreecastError:
    return TreecastError(Fault.BATCH_TOO_LARGE, f"the batch decompresses to more than {limit} bytes")


def _bounded(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _decompress_gzip(data: Input, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Input = data
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW)
        part = member.decompress(rest, limit - size + 1)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if not member.eof:
            raise EOFError("it ends too soon")
        parts.append(part)
        rest = member.unused_data
        if not rest:
            return b"".join(parts)


def _compress_snappy(data: Input) -> bytes:
    view = memoryview(data)
    parts = [_SNAPPY_HEADER]
    for start in range(0, len(view), SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + SNAPPY_BLOCK]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Input, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_SNAPPY_MAGIC)]) != _SNAPPY_MAGIC:
        return _decompress_snappy_block(view, limit)
    parts: list[bytes] = []
    size = 0
    position = len(_SNAPPY_HEADER)
    while position < len(view):
        if position + 4 > len(view):
            raise EOFError("a block has no length")
        length: int = _INT32.unpack_from(view, position)[0]
        position += 4
        if not 0 <= length <= len(view) - position:
            raise EOFError("a block is longer than the data")
        part = _decompress_snappy_block(view[position : position + length], limit - size)
        size += len(part)
        parts.append(part)
        position += length
    if position > len(view):
        raise EOFError("the header is cut off")
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    if not block:
        raise EOFError("an empty block")
    if cramjam.snappy.decompress_raw_len(block) > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_lz4(data: Input, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Input | None = data
    while rest:
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            part: bytes = frame.decompress(rest, min(_STEP, limit - size + 1))
            if not part and not frame.eof and frame.needs_input:
                raise EOFError("it ends too soon")
            rest = b""
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
        rest = frame.unused_data
    if not parts:
        raise EOFError("there is no frame")
    return b"".join(parts)


def _decompress_zstd(data: Input, limit: int) -> bytes:
    view = memoryview(data)
    position = 0
    while position < len(view):
        position = _end_of_zstd_frame(view, position)
    if position != len(view) or not position:
        raise EOFError("it ends too soon")
    if zstandard.frame_content_size(data) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while part := reader.read(min(_STEP, limit - size + 1)):
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
    return b"".join(parts)


def _end_of_zstd_frame(data: memoryview, position: int) -> int:
    """Where the frame at `position` ends, by RFC 8878 section 3.1; beyond `data` where it is cut off.

    zstandard's reader takes a frame that is cut off for a short one, so this looks before it.
    """
    if position + 9 > len(data):
        return len(data) + 1
    magic, descriptor = _ZSTD_START.unpack_from(data, position)
    if magic & 0xFFFF_FFF0 == _ZSTD_SKIPPABLE:
        return position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    single_segment = descriptor >> 5 & 1
    position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    position += (single_segment, 2, 4, 8)[descriptor >> 6]
    last = False
    while not last:
        if position + 3 > len(data):
            return len(data) + 1
        header = int.from_bytes(data[position : position + 3], "little")
        last, run = bool(header & 1), header >> 1 & 3 == 1
        position += 3 + (1 if run else header >> 3)
    return position + (4 if descriptor & 4 else 0)
