"""Group settings of a daemon. Names and defaults follow Kafka's broker settings."""

from __future__ import annotations

from msgspec import Struct

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class GroupSettings(Struct, frozen=True):
    """Times in ms."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    # for groups of type consumer (KIP-848); the bounds limit a group's own settings
    consumer_session_timeout_ms: int = 45_000
    consumer_min_session_timeout_ms: int = 45_000
    consumer_max_session_timeout_ms: int = MINUTE_MS
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_min_heartbeat_interval_ms: int = 5_000
    consumer_max_heartbeat_interval_ms: int = 15_000
    new_member_timeout_ms: int = 5 * MINUTE_MS  # longest wait of a new member's first join
    offset_metadata_max: int = 4096  # characters, as Kafka counts
    offsets_retention_ms: int = 7 * DAY_MS
    producer_id_expiration_ms: int = DAY_MS
