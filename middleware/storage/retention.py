"""Choice of segments that are too old, too many, or before the log's start. Kafka's rules.

By time: a segment is deleted when its largest timestamp (without one, its file's modification time) is older
than retention.ms. By size: as long as the rest still has retention.bytes. Both apply only if cleanup.policy
has `delete`. By start: when the next segment begins at or before the log's start offset. Segments are deleted
from the oldest on, without gaps. If the last one is among them, its owner rolls it first.
"""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.model.topic_config import TopicConfig

from .segment import Segment


def expired_segments(
    segments: Sequence[Segment], config: TopicConfig, start_offset: int, end_offset: int, now_ms: int
) -> int:
    """Returns how many segments, from the oldest on, are to be deleted."""
    count = _behind(segments, start_offset, end_offset)
    if config.cleanup_delete:
        count = max(count, _too_old(segments, config.retention_ms, now_ms))
        count = max(count, _too_many(segments, config.retention_bytes))
    return count


def _behind(segments: Sequence[Segment], start_offset: int, end_offset: int) -> int:
    count = 0
    for segment in segments:
        end = segment.next_offset if segment.sealed else end_offset
        if segment.size == 0 or end > start_offset:
            break
        count += 1
    return count


def _too_old(segments: Sequence[Segment], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if segment.size == 0 and not segment.sealed:
            break
        newest = segment.max_timestamp
        if now_ms - (newest if newest >= 0 else segment.modified_ms()) <= retention_ms:
            break
        count += 1
    return count


def _too_many(segments: Sequence[Segment], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    surplus = sum(segment.size for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        if surplus < segment.size or (segment.size == 0 and not segment.sealed):
            break
        surplus -= segment.size
        count += 1
    return count
