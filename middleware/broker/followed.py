"""`FollowedPartition`: a replica of a partition that another host leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.storage.file_range import SENDFILE_BYTES
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.writing import check_order
from treecast.middleware.wire.record_batch import BatchHeader

from .partition import LogPartition
from .values import Isolation, PartitionRead

NO_OFFSET: Final = -1
_UNCOMMITTED: Final = Isolation.READ_UNCOMMITTED


class FollowedPartition(LogPartition):
    """A byte-identical copy of the leader's log. Readers see only what is stored here, and wait for the rest.

    A chunk is shown to waiting readers before it is appended, and kept in memory until `forget_fresh`.
    Waiting readers thus get it before the disk does, without reading the file. This is safe because the
    leader has the chunk already. After a kill, a reader may have seen more than the replica holds; the leader
    answers it.
    """

    def __init__(self, name: TopicPartition, log: PartitionLog) -> None:
        super().__init__(name, log)
        self._fresh = b""
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
        self._fresh, self._fresh_offset = batches, log.end_offset
        self._fresh_end = headers[-1].next_offset
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
            if len(batches) < SENDFILE_BYTES:  # larger chunks are read from the file just as fast
                self._fresh, self._fresh_offset = batches, end
        finally:
            if log.end_offset > end:
                self._wake(max(log.size - before, 0), end, stable)

    def forget_fresh(self) -> None:
        """Drops the chunk in memory: all waiters for the last append have been answered."""
        self._fresh, self._fresh_offset, self._fresh_end = b"", NO_OFFSET, NO_OFFSET

    def read(self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool) -> PartitionRead:
        size = len(self._fresh)
        if offset != self._fresh_offset or size > max_bytes or isolation is not _UNCOMMITTED:
            return super().read(offset, max_bytes, isolation, at_least_one=at_least_one)
        self._check_here()
        log = self.log
        log.read_elsewhere(size)
        return PartitionRead([self._fresh], size, self.readable_end, log.stable_offset, log.start_offset)

    def truncate(self, offset: int, now_ms: int) -> int:
        """Removes everything from `offset` on; returns the new end of the replica. Raises STORAGE."""
        self._check_here()
        end = self.log.truncate_to(offset, now_ms)
        self.look_again()
        return end

    def restart(self, offset: int, now_ms: int) -> None:
        """Discards the whole log and restarts it, empty, at `offset`. Raises STORAGE."""
        self._check_here()
        self.log.restart_at(offset, now_ms)
        self.look_again()

    def advance_start(self, offset: int, now_ms: int) -> None:
        """Advances the log start to `offset`, where the leader's log begins. Raises STORAGE."""
        self._check_here()
        self.log.advance_start(offset, now_ms)

    def _check_here(self) -> None:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
