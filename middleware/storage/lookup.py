"""Finding records by time (KIP-79): ListOffsets with a timestamp, and with the largest timestamp."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.wire.record_batch import read_records

from .scan import BatchScanner
from .segment import Segment

Found = tuple[int, int, int]  # offset, timestamp (ms), leader epoch


def first_at_or_after(segments: Sequence[Segment], timestamp: int, start: int, limit: int) -> Found | None:
    """The first record from `start` on, before `limit`, whose timestamp is at least `timestamp`."""
    for segment in segments:
        if segment.base_offset >= limit:
            return None
        if segment.size and segment.next_offset > start and segment.max_timestamp >= timestamp:
            found = _in_segment(segment, timestamp, start)
            if found is not None:
                return found if found[0] < limit else None
    return None


def _in_segment(segment: Segment, timestamp: int, start: int) -> Found | None:
    """Walks from the last indexed point before which nothing is as late."""
    offset = max(segment.indexes.times.offset_before(timestamp - 1), start)
    descriptor = segment.shared.pool.descriptor(segment.file)
    scanner = BatchScanner(descriptor, segment.locate(offset), segment.size, whole=True)
    header = scanner.next()
    while header is not None:
        if header.max_timestamp >= timestamp and header.last_offset >= start:
            for record in read_records(scanner.batch(header), 0, header):
                if record.timestamp >= timestamp and record.offset >= start:
                    return record.offset, record.timestamp, header.leader_epoch
        header = scanner.next()
    return None


def latest_timestamp(segments: Sequence[Segment], start: int) -> Found | None:
    """The first record that has the largest timestamp of all from `start` on."""
    best: Segment | None = None
    for segment in segments:
        if segment.size == 0 or segment.next_offset <= start:
            continue
        if best is None or segment.max_timestamp > best.max_timestamp:
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    return first_at_or_after(segments, best.max_timestamp, start, segments[-1].next_offset)
