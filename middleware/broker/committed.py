"""The committed records in what a partition returns, for readers that get records instead of batches."""

from __future__ import annotations

from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import ABORT, read_control_type, read_header, read_records

from .values import PartitionRead


class CommittedRecords:
    """Reads one partition with `Isolation.READ_COMMITTED`. `offset`: of the next record; -1 while unknown."""

    def __init__(self) -> None:
        self.offset = -1
        self._aborted: dict[int, list[int]] = {}  # producer -> first offsets of its aborted transactions

    def of(self, found: PartitionRead) -> list[Record]:
        """Returns the records from `offset` on, without those of aborted transactions, and moves on."""
        for aborted in found.aborted:
            firsts = self._aborted.setdefault(aborted.producer_id, [])
            if aborted.first_offset not in firsts:
                firsts.append(aborted.first_offset)
        data = b"".join(map(in_memory, found.chunks))
        records: list[Record] = []
        position = 0
        while position < len(data):
            header = read_header(data, position)
            if header.control:
                self._marker(data, position)
            elif not (header.transactional and self._is_aborted(header.producer_id, header.base_offset)):
                batch = read_records(data, position, header)
                records += [record for record in batch if record.offset >= self.offset]
            self.offset = max(self.offset, header.next_offset)
            position += header.size
        return records

    def _marker(self, data: bytes, position: int) -> None:
        header = read_header(data, position)
        firsts = self._aborted.get(header.producer_id)
        if firsts and read_control_type(data, position, header) == ABORT:
            firsts.remove(min(firsts))

    def _is_aborted(self, producer_id: int, offset: int) -> bool:
        return any(first <= offset for first in self._aborted.get(producer_id, ()))
