"""The settings of publish/subscribe on a host."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.model.policies import QueuePolicy


class PubSubSettings(Struct, frozen=True):
    """Publish/subscribe settings. Sizes in bytes."""

    queue_policy: QueuePolicy = QueuePolicy.DROP_NEW
    queue_messages: int = 100_000  # per client
    queue_bytes: int = 64 * 1024 * 1024
    max_retained: int = 1_000_000
    tombstone_seconds: float = 7 * 24 * 3600.0  # joined hosts: lifetime of tombstones
    route_cache: int = 65_536  # topics whose targets are cached
    segment_bytes: int = 16 * 1024 * 1024  # of the journal's segments
