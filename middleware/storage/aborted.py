"""The aborted transactions of one segment: `.txnindex`, Kafka's format (KIP-98), 34 bytes an entry.

  version int16 (0), producer id int64, first offset int64, last offset int64, last stable offset int64

An entry belongs to the segment that holds the abort marker; `last offset` is the marker's. The last stable
offset is the log's after the marker. A reader whose upper bound is not above it has seen every relevant entry
and stops there.
"""

from __future__ import annotations

import struct
from typing import Final

ENTRY_SIZE: Final = 34
_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedEntry:
    """An aborted transaction of `producer_id`, from its first offset to its marker's."""

    def __init__(self, producer_id: int, first_offset: int, last_offset: int, stable_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.stable_offset = stable_offset


def encode_entry(entry: AbortedEntry) -> bytes:
    return _ENTRY.pack(
        _VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.stable_offset
    )


def decode_entries(data: bytes) -> list[AbortedEntry]:
    """Returns the whole entries of a file, without a torn last one."""
    whole = len(data) - len(data) % ENTRY_SIZE
    entries: list[AbortedEntry] = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data[:whole]):
        if version != _VERSION or not first <= last:
            break
        entries.append(AbortedEntry(producer_id, first, last, stable))
    return entries
