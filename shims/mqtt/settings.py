"""What a daemon may choose about its MQTT face."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from treecast.shims.listening import TlsSettings
from treecast.shims.passwords import Passwords


class MqttSettings(Struct, frozen=True):
    """Sizes in bytes, times in seconds.

    WebSocket connections come to the same listeners: their first bytes tell them apart.
    """

    plain: bool = True  # whether it listens without TLS
    host: str = "127.0.0.1"
    port: int = 1883  # 0 picks a free one
    unix_path: Path | None = None
    tls_host: str = "127.0.0.1"
    tls_port: int = 8883
    tls: TlsSettings | None = None

    max_packet_bytes: int = 16 * 1024 * 1024  # of packets from clients
    receive_maximum: int = 1024  # publishes of QoS 2 that a client may have unfinished
    send_maximum: int = 1024  # publishes of QoS 1 and 2 unacknowledged by a client that states no maximum
    topic_alias_maximum: int = 100  # aliases that a client may use
    max_connections: int = 100_000
    max_sessions: int = 100_000  # of clients that are connected or will be back
    max_subscriptions: int = 10_000  # of one client
    max_levels: int = 200  # of a topic filter
    max_session_expiry: int = 0xFFFFFFFF  # 0xFFFFFFFF: sessions may last for ever
    max_keep_alive: int = 0xFFFF  # of a client of version 5, which is told
    passwords: Passwords | None = None  # None: whoever comes is taken
    refused_filters: tuple[str, ...] = ()  # topic filters that may not be subscribed to, shared or not
    connect_seconds: float = 10.0  # until CONNECT has to be here
    send_buffer_bytes: int = 256 * 1024  # unsent bytes of one connection; then its queue fills
    sys_interval: float = 10.0
    backlog: int = 1024
