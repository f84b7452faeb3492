"""Answers as a consumer of committed records sees them: no markers, no records of aborted transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treecast.middleware.load.frames import BATCH_PREFIX
from treecast.middleware.wire.record_batch import ABORT, read_control_type, read_header

_SMALLEST = 61  # bytes of a record batch without records


def committed(
    data: bytes | bytearray, position: int, end: int, aborted: Sequence[tuple[int, int]] = ()
) -> Iterator[tuple[int, int, int]]:
    """Yields (position, size, records) of the batches in `data[position:end]` that have committed records.

    `aborted`: (producer id, first offset) of the answer's aborted transactions. A torn batch at the end is
    left out.
    """
    waiting = sorted(aborted, key=lambda one: one[1], reverse=True)
    gone: set[int] = set()  # producers whose open transaction was aborted
    while position + _SMALLEST <= end:
        size = BATCH_PREFIX + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > end:
            return
        header = read_header(data, position)
        while waiting and waiting[-1][1] <= header.last_offset:
            gone.add(waiting.pop()[0])
        if header.control:
            if read_control_type(data, position, header) == ABORT:
                gone.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in gone):
            yield position, size, header.count
        position += size
