"""The sizes of batches as a topic stores them: its limits, and its compression, which may enlarge a batch.

A batch is compared with `max.message.bytes` as it was sent and, if the topic's `compression.type` is another,
as it will be stored (Kafka's `UnifiedLog` checks again after `LogValidator`). What this host's other faces
record is divided and refused by the same limits before it is acknowledged.
"""

from __future__ import annotations

from typing import Final

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Compression
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    most_added,
    most_uncompressed,
    read_header,
    recompress_batch,
)

_COMPRESSIONS: Final = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def stored_codec(config: TopicConfig) -> Compression | None:
    """Returns the codec that a topic stores; None if it keeps the producer's."""
    return _COMPRESSIONS.get(config.compression_type)


def most_of(config: TopicConfig) -> int:
    """Returns the size of the largest batch that a topic takes."""
    return min(config.max_message_bytes, config.segment_bytes)


def surely_most_of(config: TopicConfig) -> int:
    """Returns the size of an uncompressed batch that a topic takes, whatever its records are."""
    most = most_of(config)
    return most - most_added(stored_codec(config) or Compression.NONE, most)


def grows_too_large(header: BatchHeader, config: TopicConfig) -> bool:
    """Whether a deeply checked batch may exceed `max.message.bytes` in the topic's compression."""
    codec = stored_codec(config)
    if codec is None or codec == header.compression:
        return False
    body = header.record_bytes
    return HEADER_SIZE + body + most_added(codec, body) > config.max_message_bytes


def recompressed(
    batches: memoryview, headers: list[BatchHeader], codec: Compression, max_bytes: int
) -> tuple[memoryview, list[BatchHeader]]:
    """Returns the same records in batches of `codec`. The headers keep what a deep check found.

    Raises BATCH_TOO_LARGE if a batch has more than `max_bytes` then.
    """
    if all(header.compression == codec for header in headers):
        return batches, headers
    out = bytearray()
    fresh: list[BatchHeader] = []
    position = 0
    for header in headers:
        if header.compression == codec:
            one = bytes(batches[position : position + header.size])
        else:
            one = _recompressed(batches, position, header, codec, max_bytes)
        fresh.append(_with_facts(read_header(one, 0), header))
        out += one
        position += header.size
    return memoryview(out), fresh


def _recompressed(
    batches: memoryview, position: int, header: BatchHeader, codec: Compression, max_bytes: int
) -> bytes:
    size = HEADER_SIZE + header.record_bytes
    if codec is not Compression.NONE or size <= max_bytes:  # otherwise its size is known already
        one = recompress_batch(batches, position, header, codec, most_uncompressed(max_bytes))
        size = len(one)
        if size <= max_bytes:
            return one
    raise TreecastError(
        Fault.BATCH_TOO_LARGE,
        f"the batch has {size} bytes in the topic's compression.type, {max_bytes} are allowed",
    )


def _with_facts(fresh: BatchHeader, header: BatchHeader) -> BatchHeader:
    fresh.first_keyless = header.first_keyless
    fresh.min_timestamp = header.min_timestamp
    fresh.record_bytes = header.record_bytes
    return fresh
