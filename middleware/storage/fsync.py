"""The fsync policy: one choice for a daemon, and what each promises."""

from __future__ import annotations

import enum


class FsyncPolicy(enum.Enum):
    """When bytes that were acknowledged are forced to the disk.

    All three survive any kill of any process: what was written is in the kernel's page cache.
    They differ when power or the kernel fails.
    """

    NEVER = "never"  # the kernel decides: the last seconds may be gone
    INTERVAL = "interval"  # what is older than the interval (default 1 s) is safe
    BATCH = "batch"  # whatever was acknowledged is safe: the answer waits for fsync
