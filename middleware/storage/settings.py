"""How a daemon's logs behave, whatever their topic, and what each fsync policy promises."""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct


class FsyncPolicy(enum.Enum):
    """When bytes that were acknowledged are forced to the disk.

    All three survive any kill of any process: what was written is in the kernel's page cache.
    They differ when power or the kernel fails.
    """

    NEVER = "never"  # the kernel decides: the last seconds may be gone
    INTERVAL = "interval"  # what is older than the interval (default 1 s) is safe
    BATCH = "batch"  # whatever was acknowledged is safe: the answer waits for fsync


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
