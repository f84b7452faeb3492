"""What may be chosen about publish/subscribe on a host."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.model.policies import QueuePolicy


class PubSubSettings(Struct, frozen=True):
    """Sizes in bytes."""

    queue_policy: QueuePolicy = QueuePolicy.DROP_NEW
    queue_messages: int = 100_000  # of one client
    queue_bytes: int = 64 * 1024 * 1024
    max_retained: int = 1_000_000
    tombstone_seconds: float = 7 * 24 * 3600.0  # where hosts are joined, of a topic that was emptied
    route_cache: int = 65_536  # topics whose targets are remembered
    segment_bytes: int = 16 * 1024 * 1024  # of the journal
