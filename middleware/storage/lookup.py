"""Search for records by time (KIP-79): ListOffsets with a timestamp, and with the largest timestamp."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.wire.record_batch import read_records

from .index import NO_TIMESTAMP
from .scan import BatchScanner
from .segment import Segment

Found = tuple[int, int, int]  # offset, timestamp (ms), leader epoch


def first_at_or_after(segments: Sequence[Segment], timestamp: int, start: int, limit: int) -> Found | None:
    """Returns the first record at or after offset `start`, before `limit`, whose timestamp is at least
    `timestamp`.
    """
    for segment in segments:
        if segment.base_offset >= limit:
            return None
        if segment.size and segment.next_offset > start and segment.max_timestamp >= timestamp:
            found = _in_segment(segment, timestamp, start)
            if found is not None:
                return found if found[0] < limit else None
    return None


def _in_segment(segment: Segment, timestamp: int, start: int) -> Found | None:
    """Scans from the last indexed point before which all timestamps are smaller."""
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
    """Returns the first record at or after `start` that has the largest timestamp."""
    best = NO_TIMESTAMP
    for segment in segments:
        if segment.size and segment.next_offset > start:
            whole = segment.base_offset >= start
            best = max(best, segment.max_timestamp if whole else _latest_in(segment, start))
    if best < 0:
        return None
    return first_at_or_after(segments, best, start, segments[-1].next_offset)


def _latest_in(segment: Segment, start: int) -> int:
    """Returns the largest timestamp of a segment's records from `start` on, for a log start inside the
    segment.
    """
    best = NO_TIMESTAMP
    descriptor = segment.shared.pool.descriptor(segment.file)
    scanner = BatchScanner(descriptor, segment.locate(start), segment.size, whole=True)
    header = scanner.next()
    while header is not None:
        if header.base_offset >= start:
            best = max(best, header.max_timestamp)
        else:
            for record in read_records(scanner.batch(header), 0, header):
                if record.offset >= start:
                    best = max(best, record.timestamp)
        header = scanner.next()
    return best
