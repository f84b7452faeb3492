"""Reading the control batches that end transactions (KIP-98)."""

from __future__ import annotations

import struct
from typing import Final

from treecast.middleware.wire.record_batch import BatchHeader, read_records

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class Marker:
    """`kind` is ABORT, COMMIT, or what later versions of Kafka write (to be left alone)."""

    def __init__(self, kind: int, coordinator_epoch: int) -> None:
        self.kind = kind
        self.coordinator_epoch = coordinator_epoch

    @property
    def ends_transaction(self) -> bool:
        return self.kind in (ABORT, COMMIT)


def read_marker(data: memoryview | bytes | bytearray, position: int, header: BatchHeader) -> Marker:
    """The marker in the control batch at `position`; kind -1 where it is empty. CORRUPT_BATCH."""
    records = read_records(data, position, header)
    if not records or records[0].key is None or len(records[0].key) < _KEY.size:
        return Marker(-1, -1)
    kind: int = _KEY.unpack_from(records[0].key, 0)[1]
    value = records[0].value
    epoch: int = _VALUE.unpack_from(value, 0)[1] if value is not None and len(value) >= _VALUE.size else -1
    return Marker(kind, epoch)
