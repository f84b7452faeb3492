"""The committed records in what a partition returns, for readers that get records instead of batches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import (
    ABORT,
    AT_ONCE,
    MAX_UNCOMPRESSED_BYTES,
    BatchHeader,
    Unfinished,
    read_control_type,
    read_header,
    read_records,
)

from .values import PartitionRead


class CommittedRecords:
    """Reads one partition with `Isolation.READ_COMMITTED`. `offset`: of the next record; -1 while unknown."""

    def __init__(self) -> None:
        self.offset = -1
        self._aborted: dict[int, list[int]] = {}  # producer -> first offsets of its aborted transactions

    async def read(self, found: PartitionRead) -> list[Record]:
        """As `of`; on a thread if that takes long. The caller waits before it reads on."""
        try:
            return self.of(found, AT_ONCE)
        except Unfinished:
            return await asyncio.to_thread(self.of, found)

    def of(self, found: PartitionRead, at_once: int = MAX_UNCOMPRESSED_BYTES) -> list[Record]:
        """Returns the records from `offset` on, without those of aborted transactions, and moves on.

        Raises Unfinished, and changes nothing, if a batch decompresses to more than `at_once` bytes.
        """
        data = b"".join(map(in_memory, found.chunks))
        batches = list(_decoded(data, at_once))
        for aborted in found.aborted:
            firsts = self._aborted.setdefault(aborted.producer_id, [])
            if aborted.first_offset not in firsts:
                firsts.append(aborted.first_offset)
        records: list[Record] = []
        for header, position, batch in batches:
            if header.control:
                self._marker(data, position)
            elif not (header.transactional and self._is_aborted(header.producer_id, header.base_offset)):
                records += [record for record in batch if record.offset >= self.offset]
            self.offset = max(self.offset, header.next_offset)
        return records

    def _marker(self, data: bytes, position: int) -> None:
        header = read_header(data, position)
        firsts = self._aborted.get(header.producer_id)
        if firsts and read_control_type(data, position, header) == ABORT:
            firsts.remove(min(firsts))

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        return any(first <= offset for first in self._aborted.get(producer_id, ()))


def _decoded(data: bytes, at_once: int) -> Iterator[tuple[BatchHeader, int, list[Record]]]:
    """Yields (header, position, records) of each batch; without the records of control batches."""
    position = 0
    while position < len(data):
        header = read_header(data, position)
        yield (
            header,
            position,
            [] if header.control else read_records(data, position, header, at_once=at_once),
        )
        position += header.size
