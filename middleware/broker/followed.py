"""`FollowedPartition`: a replica of a partition that another host leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage import replicate
from treecast.middleware.storage.file_range import SENDFILE_BYTES
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.writing import check_order
from treecast.middleware.wire.record_batch import BatchHeader

from .partition import LogPartition
from .values import LATEST_TIMESTAMP, Isolation, OffsetAtTime, PartitionRead

NO_OFFSET: Final = -1
_UNCOMMITTED: Final = Isolation.READ_UNCOMMITTED


class FollowedPartition(LogPartition):
    """A byte-identical copy of the leader's log. Readers see only what is stored here, and wait for the rest.

    A chunk is shown to waiting readers before it is appended, and kept in memory until `forget_fresh`.
    Waiting readers thus get it before the disk does, without reading the file. Nothing is lost by that: the
    leader has the chunk already. After a kill, a reader may have seen more than the replica holds, and the
    leader answers it (`tests/unit/relay/test_partition_ahead.py`).

    Readers may ask for any offset of the chunk, not only for its first: whom the leader served before the
    replica caught up is ahead of it. Readers of committed records get a chunk only from the log, because the
    log alone knows the last stable offset and the aborted transactions.
    """

    def __init__(self, name: TopicPartition, log: PartitionLog) -> None:
        super().__init__(name, log)
        self._fresh = b""
        self._fresh_headers: Sequence[BatchHeader] = ()
        self._fresh_offset = NO_OFFSET
        self._fresh_end = NO_OFFSET

    @property
    def readable_end(self) -> int:
        """The end offset of what can be read: the end of the log or of the shown chunk."""
        return max(self.log.end_offset, self._fresh_end)

    def show(self, batches: bytes, headers: Sequence[BatchHeader]) -> None:
        """Wakes the waiters that a chunk about to be appended satisfies.

        Their reads have to come before the append. Raises CORRUPT_BATCH if the chunk does not fit the log's
        end.
        """
        size, log = len(batches), self.log
        if not self._waiters or size >= SENDFILE_BYTES or self._gone is not None or log.durability.failed:
            return
        check_order(memoryview(batches), headers, log.end_offset)
        self._keep(batches, headers, log.end_offset)
        for waiter in tuple(self._waiters):
            waiter.foreseen(size)

    def append_replicated(self, batches: bytes, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Appends a chunk of whole batches, and wakes the waiters once.

        Raises CORRUPT_BATCH, and appends nothing, if the chunk does not fit the log's end. Raises STORAGE on
        a disk error; the log then holds everything up to `log.end_offset`.
        """
        self._check_here()
        log = self.log
        before, end, stable = log.size, log.end_offset, log.stable_offset
        try:
            log.append_replicated(memoryview(batches), headers, now_ms)
            self.forget_fresh()
            if len(batches) < SENDFILE_BYTES:  # larger chunks are read from the file just as fast
                self._keep(batches, headers, end)
        finally:
            if log.end_offset > end:
                self._wake(max(log.size - before, 0), end, stable)

    def _keep(self, batches: bytes, headers: Sequence[BatchHeader], offset: int) -> None:
        self._fresh, self._fresh_headers, self._fresh_offset = batches, headers, offset
        self._fresh_end = headers[-1].next_offset

    def forget_fresh(self) -> None:
        """Drops the chunk in memory: all waiters for the last append have been answered."""
        self._fresh, self._fresh_headers = b"", ()
        self._fresh_offset = self._fresh_end = NO_OFFSET

    def read(self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool) -> PartitionRead:
        """As `LogPartition.read`, for all offsets from the log's start to `readable_end`.

        The chunk in memory gives what is at or beyond its first offset. Raises OFFSET_OUT_OF_RANGE outside
        these bounds, which only the leader may tell a client.
        """
        if self._fresh_offset <= offset < self._fresh_end and isolation is _UNCOMMITTED:
            return self._read_fresh(offset, max_bytes, at_least_one=at_least_one)
        if self.log.end_offset < offset <= self._fresh_end:
            return self._read_later()
        return super().read(offset, max_bytes, isolation, at_least_one=at_least_one)

    def _read_fresh(self, offset: int, max_bytes: int, *, at_least_one: bool) -> PartitionRead:
        """Returns batches of the chunk in memory, from the one that holds `offset` on."""
        self._check_here()
        chunk, size = self._fresh, len(self._fresh)
        if offset != self._fresh_offset or size > max_bytes:
            start, end = extent(self._fresh_headers, offset, max_bytes, at_least_one=at_least_one)
            chunk, size = chunk[start:end], end - start
        log = self.log
        log.read_elsewhere(size)
        chunks = [chunk] if size else []
        return PartitionRead(chunks, size, self.readable_end, log.stable_offset, log.start_offset)

    def _read_later(self) -> PartitionRead:
        """Returns the empty answer for a reader to whom the log will have something once it is appended."""
        self._check_here()
        log = self.log
        return PartitionRead([], 0, self.readable_end, log.stable_offset, log.start_offset)

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime:
        found = super().offset_for_time(timestamp, isolation)
        if timestamp == LATEST_TIMESTAMP and isolation is _UNCOMMITTED:
            return OffsetAtTime(self.readable_end, found.timestamp, found.leader_epoch)
        return found

    def truncate(self, offset: int, now_ms: int) -> int:
        """Removes everything from `offset` on; returns the new end of the replica. Raises STORAGE."""
        self._check_here()
        self.forget_fresh()
        end = replicate.truncate_to(self.log, offset, now_ms)
        self.look_again()
        return end

    def restart(self, offset: int, now_ms: int) -> None:
        """Discards the whole log and restarts it, empty, at `offset`. Raises STORAGE."""
        self._check_here()
        self.forget_fresh()
        replicate.restart_at(self.log, offset, now_ms)
        self.look_again()

    def advance_start(self, offset: int, now_ms: int) -> None:
        """Advances the log start to `offset`, where the leader's log begins. Raises STORAGE."""
        self._check_here()
        self.forget_fresh()
        replicate.advance_start(self.log, offset, now_ms)

    def _check_here(self) -> None:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")


def extent(
    headers: Sequence[BatchHeader], offset: int, max_bytes: int, *, at_least_one: bool
) -> tuple[int, int]:
    """Returns (start, end) of the bytes of whole batches, from the one that holds or follows `offset` on.

    `headers`: those of the bytes, in order. At most `max_bytes`, unless the first batch alone is larger and
    `at_least_one`.
    """
    start, index = 0, 0
    while index < len(headers) and headers[index].next_offset <= offset:
        start += headers[index].size
        index += 1
    end = start
    for header in headers[index:]:
        size = header.size
        if end + size - start > max_bytes and (end > start or not at_least_one):
            break
        end += size
    return start, end
