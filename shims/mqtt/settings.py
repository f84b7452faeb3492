"""Settings of the MQTT face."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from treecast.middleware.model.web_callers import WebCallers
from treecast.shims.listening import TlsSettings
from treecast.shims.passwords import Passwords


class MqttSettings(Struct, frozen=True):
    """Settings of the MQTT face. Sizes are in bytes, times in seconds.

    WebSocket connections use the same listeners and are recognised by their first bytes.
    """

    plain: bool = True  # whether to listen without TLS
    host: str = "127.0.0.1"
    port: int = 1883  # 0 picks a free one
    unix_path: Path | None = None
    tls_host: str = "127.0.0.1"
    tls_port: int = 8883
    tls: TlsSettings | None = None

    max_packet_bytes: int = 16 * 1024 * 1024  # limit for packets from clients
    max_connect_bytes: int = 512 * 1024  # limit for CONNECT: all its fields but properties fit into 320 KiB
    receive_maximum: int = 1024  # unfinished QoS 2 publishes per client
    send_maximum: int = 1024  # unacknowledged QoS 1 and 2 publishes if the client sets no maximum
    topic_alias_maximum: int = 100  # topic aliases per client
    max_connections: int = 100_000
    max_sessions: int = 100_000  # connected or disconnected
    max_subscriptions: int = 10_000  # per client
    max_levels: int = 200  # per topic filter and topic name
    max_session_expiry: int = 0xFFFFFFFF  # 0xFFFFFFFF: unlimited
    max_keep_alive: int = 0xFFFF  # for version 5 clients, sent to them as Server Keep Alive
    passwords: Passwords | None = None  # None: no authentication
    refused_filters: tuple[str, ...] = ()  # topic filters whose subscription is refused, shared or not
    callers: WebCallers = WebCallers()  # who may use WebSocket
    connect_seconds: float = 10.0  # time limit for CONNECT
    send_buffer_bytes: int = 256 * 1024  # unsent bytes per connection before messages are queued
    sys_interval: float = 10.0
    backlog: int = 1024
