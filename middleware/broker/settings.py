"""The settings of a daemon's broker. Names and defaults follow Kafka's broker settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from treecast.middleware.storage.settings import FsyncPolicy

from .pubsub import PubSubSettings
from .queues.settings import QueueSettings

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class BrokerSettings(Struct, frozen=True):
    """Broker settings. Times in ms, sizes in bytes. A topic's own overrides override `topic_defaults`."""

    data: Path
    fsync: FsyncPolicy = FsyncPolicy.INTERVAL
    fsync_interval_ms: int = 1000

    default_partitions: int = 1
    max_partitions: int = 200_000  # of all topics together
    auto_create_topics: bool = True
    accept_replication_factor: bool = True
    topic_defaults: Mapping[str, str] = {}

    pubsub: PubSubSettings = PubSubSettings()
    queues: QueueSettings = QueueSettings()

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * MINUTE_MS
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    group_consumer_session_timeout_ms: int = 45_000  # for the new protocol (KIP-848)
    group_consumer_min_session_timeout_ms: int = 45_000  # bounds of a group's own setting
    group_consumer_max_session_timeout_ms: int = MINUTE_MS
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * DAY_MS

    transaction_max_timeout_ms: int = 15 * MINUTE_MS
    transactional_id_expiration_ms: int = 7 * DAY_MS
    producer_id_expiration_ms: int = DAY_MS

    transaction_check_interval_ms: int = 1_000
    retention_check_interval_ms: int = 10_000
    compaction_check_interval_ms: int = 15_000
    expiry_check_interval_ms: int = MINUTE_MS
