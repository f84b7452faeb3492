"""Application of stored batches to producer states, on append and when a log is opened.

Transactions end with a marker, which is a control batch (KIP-98).
"""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.wire.record_batch import BatchHeader, read_records

from .aborted import AbortedEntry
from .producers import NO_OFFSET, ProducerStates

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class Marker:
    """A marker. `kind` is ABORT, COMMIT, or one of later Kafka versions (to be ignored)."""

    def __init__(self, kind: int, coordinator_epoch: int) -> None:
        self.kind = kind
        self.coordinator_epoch = coordinator_epoch

    @property
    def ends_transaction(self) -> bool:
        return self.kind in (ABORT, COMMIT)


def read_marker(data: memoryview | bytes | bytearray, position: int, header: BatchHeader) -> Marker:
    """Returns the marker in the control batch at `position`, with kind -1 if it is empty. Raises
    CORRUPT_BATCH.
    """
    records = read_records(data, position, header)
    if not records or records[0].key is None or len(records[0].key) < _KEY.size:
        return Marker(-1, -1)
    kind: int = _KEY.unpack_from(records[0].key, 0)[1]
    value = records[0].value
    epoch: int = _VALUE.unpack_from(value, 0)[1] if value is not None and len(value) >= _VALUE.size else -1
    return Marker(kind, epoch)


def apply_marker(
    states: ProducerStates, header: BatchHeader, marker: Marker, now_ms: int
) -> AbortedEntry | None:
    """Ends the producer's transaction. Returns the entry for the index of aborted transactions, if any."""
    if not marker.ends_transaction:
        return None
    first = states.end_transaction(
        header.producer_id, header.producer_epoch, marker.coordinator_epoch, now_ms
    )
    if first == NO_OFFSET or marker.kind != ABORT:
        return None
    still_open = states.first_open_offset
    stable = header.next_offset if still_open == NO_OFFSET else still_open
    return AbortedEntry(header.producer_id, first, header.last_offset, stable)


def apply_batch(
    states: ProducerStates,
    header: BatchHeader,
    data: memoryview | bytes | bytearray,
    position: int,
    now_ms: int,
) -> AbortedEntry | None:
    """Records a producer's batch of any kind. Ignores a marker that cannot be read (appending refuses it)."""
    if header.producer_id < 0:
        return None
    if header.control:
        try:
            marker = read_marker(data, position, header)
        except TreecastError:
            return None
        return apply_marker(states, header, marker, now_ms)
    states.update(header, now_ms)
    return None
