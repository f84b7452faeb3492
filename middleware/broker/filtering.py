"""Filtered reads: records that do not pass a filter are removed before anything is sent.

The result is still whole batches at their own offsets, with fewer records in them, as after compaction. A
reader therefore advances even if no record passed. Transaction markers are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import lru_cache

from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.evaluate import StatefulFilterError, check_stateless
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.filters.tree import Filter
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.records import Record
from treecast.middleware.model.wishes import ContentFilter
from treecast.middleware.wire.record_batch import (
    AT_ONCE,
    BatchHeader,
    Unfinished,
    read_header,
    read_records,
    rebuild_batch,
)

from .values import PartitionRead

_EXAMINED = 500  # records examined before the loop gets its turn
LONGEST_OF_SUBSCRIPTION = 4096  # characters: each message of the topics is evaluated, and each is kept


@lru_cache(maxsize=256)
def parsed(text: str) -> Filter:
    """Returns the parsed filter. Raises INVALID_REQUEST if it cannot be parsed or would need state."""
    try:
        tree = parse(text)
        check_stateless(tree)
    except (FilterError, StatefulFilterError) as error:
        raise TreecastError(Fault.INVALID_REQUEST, str(error)) from error
    return tree


@lru_cache(maxsize=256)
def content_filter(text: str) -> ContentFilter:
    """Returns the filter of a subscription. Raises INVALID_REQUEST as `parsed`, and if it is too long."""
    if len(text) > LONGEST_OF_SUBSCRIPTION:
        most = f"{LONGEST_OF_SUBSCRIPTION:,}"
        raise TreecastError(
            Fault.INVALID_REQUEST, f"a filter of a subscription has at most {most} characters: shorten it"
        )
    return StatelessFilter(parsed(text))


class FilteredReads:
    """One filter over the partitions of a reader. The constructor raises INVALID_REQUEST for a bad filter."""

    def __init__(self, text: str, counters: FaceCounters) -> None:
        self._tree = parsed(text)
        self._counters = counters
        self._filters: dict[tuple[str, int], RecordFilter] = {}

    async def filtered(self, topic: str, partition: int, found: PartitionRead) -> PartitionRead:
        """Returns `found` without the records that do not pass. Yields to the event loop in between."""
        chunks: list[bytes] = []
        passes, looked_at = self._filter(topic, partition), 0
        data = b"".join(map(in_memory, found.chunks))
        position = 0
        while position < len(data):
            header = read_header(data, position)
            batch = data[position : position + header.size]
            position += header.size
            if not header.control:
                records: list[Record] = []
                for some in _parts(await _records_of(batch, header)):
                    records += passes.select(some)
                    looked_at += len(some)
                    if looked_at >= _EXAMINED:
                        looked_at = 0
                        await asyncio.sleep(0)
                batch = self._rebuilt(batch, header, records)
            chunks.append(batch)
        return PartitionRead(
            chunks,
            sum(map(len, chunks)),
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            found.aborted,
        )

    def _rebuilt(self, batch: bytes, header: BatchHeader, records: list[Record]) -> bytes:
        if len(records) == header.count:
            return batch
        self._counters.filtered_records += header.count - len(records)
        return rebuild_batch(header, records, header.base_timestamp if header.delete_horizon else None)

    def _filter(self, topic: str, partition: int) -> RecordFilter:
        found = self._filters.get((topic, partition))
        if found is None:
            found = self._filters[topic, partition] = RecordFilter(self._tree, topic, partition)
        return found


async def _records_of(batch: bytes, header: BatchHeader) -> list[Record]:
    """Returns a batch's records, read on a thread if they are many bytes."""
    try:
        return read_records(batch, 0, header, at_once=AT_ONCE)
    except Unfinished:
        return await asyncio.to_thread(read_records, batch, 0, header)


def _parts(records: list[Record]) -> Iterator[list[Record]]:
    for first in range(0, len(records), _EXAMINED):
        yield records[first : first + _EXAMINED]
