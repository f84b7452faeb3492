"""Transactional batches that compaction may drop (Kafka's CleanedTransactionMetadata).

The records of an aborted transaction are dropped. Its marker, like a commit marker, stays as long as a pass
still saw records of the transaction, and then until its delete horizon. Batches must be passed in the order
of offsets.
"""

from __future__ import annotations

from collections.abc import Iterable

from treecast.middleware.wire.record_batch import BatchHeader

from .aborted import AbortedEntry
from .replay import ABORT, COMMIT, Marker


class CleanedTransactions:
    """Tracks the transactions during one pass over the log."""

    def __init__(self, aborted: Iterable[AbortedEntry]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, tuple[AbortedEntry, bool]] = {}  # with a flag: records of it were seen
        self._committed: set[int] = set()
        self.kept: list[AbortedEntry] = []  # for the new index: entries whose markers stay

    def drops_data(self, header: BatchHeader) -> bool:
        """Returns whether a data batch belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if not header.transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (known[0], True)
        return True

    def drops_marker(self, header: BatchHeader, marker: Marker) -> bool:
        """Returns whether no record of the marker's transaction is left before it."""
        self._reach(header.last_offset)
        if marker.kind == ABORT:
            known = self._aborted.pop(header.producer_id, None)
            if known is not None and known[1]:
                self.kept.append(known[0])
                return False
            return True
        if marker.kind == COMMIT:
            if header.producer_id in self._committed:
                self._committed.discard(header.producer_id)
                return False
            return True
        return False

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted.setdefault(entry.producer_id, (entry, False))
