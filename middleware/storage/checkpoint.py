"""`treecast-checkpoint` of a partition's directory: the part of the log that recovery may trust.

JSON, replaced atomically. Everything before (`segment`, `position`), at offset `recovery`, was forced to the
disk. That segment's indexes up to there have the given CRC-32C, and `<recovery>.snapshot`, which has its own
CRC, holds the producers. Indexes and snapshot need no fsync: a loss at power failure is detected and
repaired. The checkpoint itself is forced only where the log starts inside a segment, which nothing else says.
A clean shutdown writes a checkpoint that covers the whole log. `start` is the log's start offset, `cleaned`
the first offset that compaction has not seen. If the file is missing or damaged, recovery checks everything.
"""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict

FILE_NAME: Final = "treecast-checkpoint"
_VERSION: Final = 1


class Checkpoint(Struct, frozen=True):
    start: int = 0
    cleaned: int = 0
    recovery: int = 0
    segment: int = 0
    position: int = 0
    index_crc: int = 0  # of that segment's indexes up to `position`, see `SegmentIndexes.crc`

    def encode(self) -> bytes:
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint | None:
        try:
            values = json.loads(data)
            if values.pop("version") != _VERSION or not all(type(v) is int for v in values.values()):
                return None
            return cls(**values)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
