"""`FollowedPartition`: a replica of a partition that another host leads."""

from __future__ import annotations

from collections.abc import Sequence

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.wire.record_batch import BatchHeader

from .partition import LogPartition


class FollowedPartition(LogPartition):
    """Takes what the leader has, as it has it. Readers see no more than is here, and wait for the rest."""

    def append_replicated(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> None:
        """Appends a chunk of whole batches, and wakes who waits for them once.

        CORRUPT_BATCH, and nothing appended, where they cannot follow what is here. STORAGE where the disk
        refuses; what `log.end_offset` says is here then.
        """
        self._check_here()
        log = self.log
        before, end, stable = log.size, log.end_offset, log.stable_offset
        try:
            log.append_replicated(batches, headers, now_ms)
        finally:
            if log.end_offset > end:
                self._wake(max(log.size - before, 0), end, stable)

    def truncate(self, offset: int, now_ms: int) -> int:
        """Takes back all from `offset` on; answers where the replica ends now. STORAGE."""
        self._check_here()
        end = self.log.truncate_to(offset, now_ms)
        self.look_again()
        return end

    def restart(self, offset: int, now_ms: int) -> None:
        """Lets go of all there is and begins, empty, at `offset`. STORAGE."""
        self._check_here()
        self.log.restart_at(offset, now_ms)
        self.look_again()

    def advance_start(self, offset: int, now_ms: int) -> None:
        """The leader's log begins at `offset`. STORAGE."""
        self._check_here()
        self.log.advance_start(offset, now_ms)

    def _check_here(self) -> None:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is not here any more")
