"""How a daemon's logs behave, whatever their topic."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .fsync import FsyncPolicy

DAY_MS: Final = 24 * 60 * 60 * 1000


class LogSettings(Struct, frozen=True):
    """Times in ms, sizes in bytes.

    `checkpoint_bytes`: after so much was flushed, the recovery point is written, so that a start after a
    kill checks no more than that per partition. `compaction_keys`: how many keys one round of compaction
    remembers (about 150 bytes each).
    """

    fsync: FsyncPolicy = FsyncPolicy.INTERVAL
    fsync_interval_ms: int = 1000
    producer_expiration_ms: int = DAY_MS
    checkpoint_bytes: int = 64 * 1024 * 1024
    compaction_keys: int = 250_000
