"""Batches as one cluster gives them and as the other one takes them. Pure.

A batch crosses as it is: keys, values, headers, times and compression stay as bytes, and only fields of its
header change (`sign_batch`). Batches with gaps, and those whose time is that of the append, are built again
from their records, because a broker takes neither from a producer.

The loop guard: a batch with the producer id of the way back has come from the other cluster, and stays. It
costs no bytes, and compaction and replication keep it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from treecast.middleware.model.records import Compression, Record
from treecast.middleware.wire.record_batch import (
    ABORT,
    BatchHeader,
    build_batch,
    read_control_type,
    read_header,
    read_records,
)


class Run(Struct, frozen=True):
    """Records that follow one another at the source: `first` is the offset of the first one."""

    first: int
    count: int


class Batch(Struct):
    """A batch to produce, and the records of the source that it has. `data` may be changed."""

    data: bytearray
    header: BatchHeader
    runs: list[Run]

    @property
    def count(self) -> int:
        return self.header.count


class Taken(Struct):
    """The use of an answer: batches to produce; records that are back from the target, or of a
    transaction that was aborted."""

    batches: list[Batch]
    looped: int = 0
    aborted: int = 0


class Sieve:
    """The transactions that an answer says were aborted, and the producers of the way back."""

    def __init__(self, aborted: Sequence[tuple[int, int]], guarded: Collection[int]) -> None:
        """`aborted`: (producer id, first offset)."""
        self._aborted = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._guarded = guarded
        self._open: set[int] = set()

    def take(self, data: bytes, headers: Sequence[BatchHeader], position: int) -> Taken:
        """Sorts the batches of an answer. `position`: the offset from which on they were asked for."""
        taken, at = Taken([]), 0
        for header in headers:
            self._begin(header.last_offset)
            if header.control:
                self._ends(data, at, header)
            elif self._is_aborted(header):
                taken.aborted += header.count
            elif header.producer_id in self._guarded:
                taken.looped += header.count
            elif header.count:
                made = taken_over(data, at, header, position)
                if made is not None:
                    taken.batches.append(made)
            at += header.size
        return taken

    def _begin(self, offset: int) -> None:
        while self._aborted and self._aborted[-1][1] <= offset:
            self._open.add(self._aborted.pop()[0])

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.transactional and header.producer_id in self._open

    def _ends(self, data: bytes, at: int, header: BatchHeader) -> None:
        if header.producer_id in self._open and read_control_type(data, at, header) == ABORT:
            self._open.discard(header.producer_id)


def taken_over(data: bytes, at: int, header: BatchHeader, position: int) -> Batch | None:
    """Returns the batch to produce for one of the source; None if it has no record from `position` on.
    Raises CORRUPT_BATCH or UNSUPPORTED_COMPRESSION."""
    dense = header.count == header.last_offset_delta + 1 and header.base_offset >= position
    if dense and not header.log_append_time and not header.delete_horizon:
        return Batch(bytearray(data[at : at + header.size]), header, [Run(header.base_offset, header.count)])
    records = [one for one in read_records(data, at, header) if one.offset >= position]
    return _built(records, Compression(header.compression)) if records else None


def halves(batch: Batch) -> list[Batch]:
    """Returns two batches for one that is too large for the target; none for one with a single record."""
    if batch.count < 2:
        return []
    records = read_records(bytes(batch.data), 0, batch.header)
    offsets = [run.first + number for run in batch.runs for number in range(run.count)]
    placed = [
        Record(one.key, one.value, one.headers, one.timestamp, offset)
        for one, offset in zip(records, offsets, strict=True)
    ]
    middle, compression = len(placed) // 2, Compression(batch.header.compression)
    return [_built(placed[:middle], compression), _built(placed[middle:], compression)]


def _built(records: Sequence[Record], compression: Compression) -> Batch:
    """Returns the batch of records that have the source's offsets."""
    dense = [Record(one.key, one.value, one.headers, one.timestamp) for one in records]
    data = bytearray(build_batch(dense, compression=compression))
    return Batch(data, read_header(data, 0), list(_runs(records)))


def _runs(records: Sequence[Record]) -> Iterator[Run]:
    first = count = 0
    for one in records:
        if count and one.offset == first + count:
            count += 1
            continue
        if count:
            yield Run(first, count)
        first, count = one.offset, 1
    if count:
        yield Run(first, count)
