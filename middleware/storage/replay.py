"""Applying stored batches to what is known of producers: at append and when a log is opened."""

from __future__ import annotations

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.wire.record_batch import BatchHeader

from .aborted import AbortedEntry
from .control import ABORT, Marker, read_marker
from .producers import NO_OFFSET, ProducerStates


def apply_marker(
    states: ProducerStates, header: BatchHeader, marker: Marker, now_ms: int
) -> AbortedEntry | None:
    """Ends the producer's transaction: what the index of aborted transactions has to say of it."""
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
    """Remembers a batch of a producer, whichever kind it is of. A marker that cannot be read says nothing
    (appending refuses it)."""
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
