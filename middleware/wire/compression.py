"""The compressions of a record batch: gzip, snappy, lz4 and zstd, as Kafka's clients write them.

| codec  | form                                                                                  |
| ------ | ------------------------------------------------------------------------------------- |
| gzip   | RFC 1952, one or more members                                                         |
| snappy | the framing of xerial's snappy-java (written), or one raw block (also read)           |
| lz4    | the LZ4 frame format, independent blocks of 64 KiB, no checksums (KIP-57)             |
| zstd   | RFC 8878, one or more frames, with or without their content size (KIP-110)            |

The framing of snappy-java: 0x82 "SNAPPY" 0x00, version (int32) 1, compatible version (int32) 1, then blocks,
each a length (int32, big-endian) and a raw snappy block.

`decompress` never holds more than `limit` bytes of output plus one step, whatever the input claims. The limit
of a batch follows from what its topic allows (`most_uncompressed`); a caller on the event loop stops earlier
(`at_once`) and continues on a thread.
"""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame
import zstandard

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Compression

from .zstd_frame import are_whole_frames

Input = bytes | bytearray | memoryview

MAX_UNCOMPRESSED_BYTES = 256 << 20  # of one batch, whatever its topic allows: readers hold it in memory
MIN_UNCOMPRESSED_BYTES = 64 << 20  # that every topic allows
UNCOMPRESSED_TIMES = 128  # the topic's limit of a batch as stored, up to the maximum above
RECORD_BYTES = 128  # the least that a record of a compressed batch counts: as an object it takes more
AT_ONCE = 8 << 20  # bytes that the event loop may decompress before others get their turn
GZIP_LEVEL = 6
ZSTD_LEVEL = 3
SNAPPY_BLOCK = 32 * 1024  # snappy-java's default
_GZIP_WINDOW = 31  # zlib: 15 bits of window, 16 for the gzip wrapper
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_INT32 = struct.Struct(">i")
_STEP = 256 * 1024
_PIECE = 64 * 1024  # of input given at a time, because zlib and lz4 copy what they have not used at each step
_MOST_FRAMES = 64  # each frame costs a copy of the rest; clients write one
_SMALL_BLOCK = 64  # smallest average size of snappy blocks that is accepted; clients write 32 KiB


class Unfinished(Exception):
    """The data are larger than the caller wants to decompress at once, and not too large."""


class _Broken(Exception):
    """The compressed data violates its codec's format."""


def compress(codec: Compression, data: Input) -> bytes:
    """Returns `data` in `codec`'s form; for NONE the bytes themselves."""
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


def most_uncompressed(max_batch_bytes: int) -> int:
    """Returns how many bytes a compressed batch may have when decompressed, in a topic that stores batches of
    up to `max_batch_bytes`.
    """
    return min(max(UNCOMPRESSED_TIMES * max_batch_bytes, MIN_UNCOMPRESSED_BYTES), MAX_UNCOMPRESSED_BYTES)


def most_added(codec: Compression, size: int) -> int:
    """Returns how many bytes `compress` may add to `size` bytes that cannot be made smaller."""
    if codec is Compression.NONE:
        return 0
    if codec is Compression.SNAPPY:  # per block its length, and snappy's MaxCompressedLength
        return len(_SNAPPY_HEADER) + size // 6 + (4 + 32) * (size // SNAPPY_BLOCK + 1)
    return 64 + size // 1024  # stored blocks: gzip 5 bytes per 16 KiB, lz4 4 per 64 KiB, zstd 3 per 128 KiB


def decompress(codec: Compression, data: Input, limit: int, at_once: int = MAX_UNCOMPRESSED_BYTES) -> bytes:
    """Returns the decompressed `data`. Raises BATCH_TOO_LARGE beyond `limit` bytes, CORRUPT_BATCH if it is
    broken, and Unfinished beyond `at_once` bytes if these are fewer.
    """
    try:
        return _decompressed(codec, data, min(limit, at_once))
    except TreecastError as error:
        if error.fault is Fault.BATCH_TOO_LARGE and at_once < limit:
            raise Unfinished from None
        raise


def _decompressed(codec: Compression, data: Input, limit: int) -> bytes:
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
    except (zlib.error, cramjam.DecompressionError, zstandard.ZstdError, RuntimeError, _Broken) as error:
        raise TreecastError(
            Fault.CORRUPT_BATCH, f"the batch's {codec.name.lower()} data is broken: {error}"
        ) from error


def _too_large(limit: int) -> TreecastError:
    return TreecastError(
        Fault.BATCH_TOO_LARGE, f"the batch decompresses to more than {limit} bytes: send smaller batches"
    )


def _bounded(data: bytes, limit: int) -> bytes:
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _decompress_gzip(data: Input, limit: int) -> bytes:
    parts: list[bytes] = []
    size = position = 0
    view = memoryview(data)
    for _ in range(_MOST_FRAMES):
        member = zlib.decompressobj(_GZIP_WINDOW)
        more = False  # the last step was full: zlib may hold output without any input
        while not member.eof:
            given: Input = member.unconsumed_tail
            if not given and not more:
                given = view[position : position + _PIECE]
                position += len(given)
                if not given:
                    raise _Broken("it ends too soon")
            most = min(_STEP, limit - size + 1)
            part = member.decompress(given, most)
            more = len(part) == most
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
        position -= len(member.unused_data)
        if position == len(view):
            return b"".join(parts)
    raise _Broken(f"it has more than {_MOST_FRAMES} members")


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
        return _decompress_snappy_block(view, limit, limit)
    parts: list[bytes] = []
    size = 0
    position = len(_SNAPPY_HEADER)
    most = 1 + len(view) // _SMALL_BLOCK
    while position < len(view):
        if len(parts) > most:
            raise _Broken("its blocks are too small")
        if position + 4 > len(view):
            raise _Broken("a block has no length")
        length: int = _INT32.unpack_from(view, position)[0]
        position += 4
        if not 0 <= length <= len(view) - position:
            raise _Broken("a block is longer than the data")
        part = _decompress_snappy_block(view[position : position + length], limit - size, limit)
        size += len(part)
        parts.append(part)
        position += length
    if position > len(view):
        raise _Broken("the header is cut off")
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, room: int, limit: int) -> bytes:
    if not block:
        raise _Broken("an empty block")
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_lz4(data: Input, limit: int) -> bytes:
    parts: list[bytes] = []
    size = position = 0
    view = memoryview(data)
    for _ in range(_MOST_FRAMES):
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            given = view[position : position + _PIECE] if frame.needs_input else b""
            if frame.needs_input and not given:
                raise _Broken("it ends too soon")
            position += len(given)
            part: bytes = frame.decompress(given, min(_STEP, limit - size + 1))
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            parts.append(part)
        position -= len(frame.unused_data or b"")
        if position == len(view):
            return b"".join(parts)
    raise _Broken(f"it has more than {_MOST_FRAMES} frames")


def _decompress_zstd(data: Input, limit: int) -> bytes:
    if not are_whole_frames(bytes(data)):
        raise _Broken("it ends too soon")
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
