"""Filtered reads: records that do not pass a filter are removed before anything is sent.

The result is still whole batches at their own offsets, with fewer records in them, as after compaction. A
reader therefore advances even if no record passed. Transaction markers are kept.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache

from treecast.middleware.filters.content import StatelessFilter
from treecast.middleware.filters.errors import FilterError
from treecast.middleware.filters.evaluate import StatefulFilterError, check_stateless
from treecast.middleware.filters.parse import parse
from treecast.middleware.filters.records import RecordFilter
from treecast.middleware.filters.schemas.check import check_filter
from treecast.middleware.filters.schemas.reader import SchemaReader
from treecast.middleware.filters.tree import Filter, Or
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

from .schemas import TopicSchemas
from .values import PartitionRead

_EXAMINED = 500  # records examined before the loop gets its turn; a batch that is known counts as one
KEPT_BYTES = 32 * 2**20  # of the batches of all views of a host, with what keeping them takes
_KEEPING = 500  # bytes that keeping a batch takes beside its own
BatchKey = tuple[str, int, int, int, str, SchemaReader | None]
"""(topic, partition, base offset, checksum, filter, schema)"""
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


@lru_cache(maxsize=256)
def any_content(texts: tuple[str, ...]) -> ContentFilter | None:
    """Returns a filter that passes what one of several passes; None if one of them cannot be read here."""
    try:
        trees = [parsed(text) for text in texts]
    except TreecastError:  # of a later version of the language
        return None
    return StatelessFilter(trees[0] if len(trees) == 1 else Or(tuple(trees)))


class KeptBatches:
    """Batches as filters have left them, for the next reader of a view: at most `room` bytes, the ones used
    last."""

    def __init__(self, room: int = KEPT_BYTES) -> None:
        self._room = room
        self._kept: OrderedDict[BatchKey, bytes] = OrderedDict()

    def get(self, key: BatchKey) -> bytes | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: BatchKey, batch: bytes) -> None:
        before = self._kept.pop(key, None)
        if before is not None:
            self._room += len(before) + _KEEPING
        self._kept[key] = batch
        self._room -= len(batch) + _KEEPING
        while self._room < 0:
            _, oldest = self._kept.popitem(last=False)
            self._room += len(oldest) + _KEEPING


class FilteredReads:
    """One filter over the partitions of a reader. The constructor raises INVALID_REQUEST for a bad filter.

    `kept`: batches that the filter, or another one, has seen before."""

    def __init__(
        self, text: str, counters: FaceCounters, schemas: TopicSchemas, kept: KeptBatches | None = None
    ) -> None:
        self._text = text
        self._tree = parsed(text)
        self._counters = counters
        self._schemas = schemas
        self._kept = kept
        self._filters: dict[tuple[str, int], RecordFilter] = {}

    async def filtered(self, topic: str, partition: int, found: PartitionRead) -> PartitionRead:
        """Returns `found` without the records that do not pass. Yields to the event loop in between. Raises
        INVALID_REQUEST if the filter does not fit the topic's schema."""
        chunks: list[bytes] = []
        passes, looked_at = self._filter(topic, partition), 0
        data = b"".join(map(in_memory, found.chunks))
        position = 0
        while position < len(data):
            header = read_header(data, position)
            batch = data[position : position + header.size]
            position += header.size
            if not header.control:
                key = (topic, partition, header.base_offset, header.crc, self._text, passes.schema)
                known = None if self._kept is None else self._kept.get(key)
                if known is not None:
                    looked_at += 1
                    batch = self._known(header, known)
                else:
                    looked_at += header.count
                    batch = self._rebuilt(batch, header, await _passing(passes, batch, header))
                    if self._kept is not None:
                        self._kept.put(key, batch)
            if looked_at >= _EXAMINED:
                looked_at = 0
                await asyncio.sleep(0)
            chunks.append(batch)
        if passes.unmet:
            self._schemas.unmet(topic, passes.unmet)
            passes.unmet = 0
        return PartitionRead(
            chunks,
            sum(map(len, chunks)),
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            found.aborted,
        )

    def _known(self, header: BatchHeader, batch: bytes) -> bytes:
        """Returns a batch that was filtered before. Where it is in the log now, its epoch may differ."""
        self._counters.filtered_records += header.count - read_header(batch, 0).count
        return batch

    def _rebuilt(self, batch: bytes, header: BatchHeader, records: list[Record]) -> bytes:
        if len(records) == header.count:
            return batch
        self._counters.filtered_records += header.count - len(records)
        return rebuild_batch(header, records, header.base_timestamp if header.delete_horizon else None)

    def _filter(self, topic: str, partition: int) -> RecordFilter:
        schema = self._schemas.of_kafka(topic)
        found = self._filters.get((topic, partition))
        if found is None or found.schema is not schema:
            if schema is not None:
                check_filter(self._tree, schema.schema)
            found = self._filters[topic, partition] = RecordFilter(self._tree, topic, partition, schema)
        return found


async def _records_of(batch: bytes, header: BatchHeader) -> list[Record]:
    """Returns a batch's records, read on a thread if they are many bytes."""
    try:
        return read_records(batch, 0, header, at_once=AT_ONCE)
    except Unfinished:
        return await asyncio.to_thread(read_records, batch, 0, header)


async def _passing(passes: RecordFilter, batch: bytes, header: BatchHeader) -> list[Record]:
    """Returns the records of a batch that pass. Yields to the event loop in between."""
    found: list[Record] = []
    for number, some in enumerate(_parts(await _records_of(batch, header))):
        if number:
            await asyncio.sleep(0)
        found += passes.select(some)
    return found


def _parts(records: list[Record]) -> Iterator[list[Record]]:
    for first in range(0, len(records), _EXAMINED):
        yield records[first : first + _EXAMINED]
