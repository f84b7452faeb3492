"""The settings of the Kafka face. Names and defaults follow Kafka's broker settings."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from treecast.shims.listening import TlsSettings


class KafkaSettings(Struct, frozen=True):
    """Sizes in bytes, times in ms.

    `advertised` is the (host, port) that clients are told, `tls_advertised` for those over TLS. With None,
    each client is told the address to which it connected. If `unix_path` is None, no Unix socket is opened; a
    stale socket file is replaced.
    """

    plain: bool = True  # whether to listen without TLS
    host: str = "127.0.0.1"
    port: int = 9092  # 0 picks a free port
    unix_path: Path | None = None
    tls_host: str = "127.0.0.1"
    tls_port: int = 9093
    tls: TlsSettings | None = None
    advertised: tuple[str, int] | None = None
    tls_advertised: tuple[str, int] | None = None

    max_request_bytes: int = 100 * 1024 * 1024  # Kafka: socket.request.max.bytes
    max_log_in_bytes: int = 512 * 1024  # Kafka: sasl.server.max.receive.size; of a request before the log-in
    fetch_max_bytes: int = 55 * 1024 * 1024  # Kafka: fetch.max.bytes
    max_in_flight: int = 64  # unanswered requests of one connection, above which it is not read
    send_buffer_bytes: int = 256 * 1024  # unsent bytes of one connection, above which it is not served
    unread_bytes: int = 256 * 1024 * 1024  # total of all such connections, above which fetches are cut short
    connections_max_idle_ms: int = 600_000  # Kafka: connections.max.idle.ms
    connect_seconds: float = 10.0  # time limit for a TLS handshake
    backlog: int = 1024
    refuse_after_ms: int = 1000  # until a client that sends what was never offered is disconnected
