"""Settings of a daemon's logs, whatever their topic, and the promise of each fsync policy."""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct


class FsyncPolicy(enum.Enum):
    """The time at which acknowledged bytes are forced to the disk.

    All three policies survive a kill of any process: the kernel's page cache holds what was written. They
    differ at a failure of power or of the kernel.
    """

    NEVER = "never"  # the kernel decides: the last seconds may be lost
    INTERVAL = "interval"  # everything older than the interval (default 1 s) is safe
    BATCH = "batch"  # everything acknowledged is safe: the response waits for fsync


DAY_MS: Final = 24 * 60 * 60 * 1000
LOOK_MS: Final = 1000  # the longest time between two looks for logs that are due to be flushed


class LogSettings(Struct, frozen=True):
    """Times in ms, sizes in bytes.

    `checkpoint_bytes`: number of flushed bytes after which the recovery point is written. It bounds what a
    start after a kill checks per partition. `compaction_keys`: number of keys that one round of compaction
    remembers (about 150 bytes each).
    """

    fsync: FsyncPolicy = FsyncPolicy.INTERVAL
    fsync_interval_ms: int = 1000
    producer_expiration_ms: int = DAY_MS
    checkpoint_bytes: int = 64 * 1024 * 1024
    compaction_keys: int = 250_000

    @property
    def flush_age_ms(self) -> int:
        """The age at which unflushed data is due, for a look at it every `min(fsync_interval_ms, 1000)` ms:
        with the time until the next look it is the interval."""
        return self.fsync_interval_ms - min(self.fsync_interval_ms, LOOK_MS)
