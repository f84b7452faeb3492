"""What a daemon may choose about its Kafka face. Names and defaults follow Kafka's broker settings."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class KafkaSettings(Struct, frozen=True):
    """Sizes in bytes, times in ms.

    `advertised` is the (host, port) that clients are told; None tells each client the address that it
    reached. `unix_path` None opens no unix socket; a stale socket file there is replaced.
    """

    host: str = "127.0.0.1"
    port: int = 9092  # 0 picks a free one
    unix_path: Path | None = None
    advertised: tuple[str, int] | None = None

    max_request_bytes: int = 100 * 1024 * 1024  # Kafka: socket.request.max.bytes
    fetch_max_bytes: int = 55 * 1024 * 1024  # Kafka: fetch.max.bytes
    max_in_flight: int = 64  # unanswered requests of one connection; then it is not read
    send_buffer_bytes: int = 256 * 1024  # unsent bytes of one connection; then it is not served
    unread_bytes: int = 256 * 1024 * 1024  # unsent bytes of all such connections; then fetches are cut short
    connections_max_idle_ms: int = 600_000  # Kafka: connections.max.idle.ms
    backlog: int = 1024
