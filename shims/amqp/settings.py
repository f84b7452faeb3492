"""What a daemon may choose about its AMQP face."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from treecast.middleware.broker.queues import QueueSettings
from treecast.shims.listening import TlsSettings


class AmqpSettings(Struct, frozen=True):
    """Sizes in bytes, times in seconds. The defaults are RabbitMQ's where it has one."""

    plain: bool = True  # whether it listens without TLS
    host: str = "127.0.0.1"
    port: int = 5672  # 0 picks a free one
    unix_path: Path | None = None
    tls_host: str = "127.0.0.1"
    tls_port: int = 5671
    tls: TlsSettings | None = None

    max_message_bytes: int = 16 * 1024 * 1024
    frame_max: int = 131_072
    channel_max: int = 2047  # at most 32,767
    heartbeat: int = 60  # 0: none is asked for
    max_consumers: int = 1 << 30  # of one channel
    connect_seconds: float = 10.0  # until the connection has to be open
    send_buffer_bytes: int = 256 * 1024  # unsent bytes of one connection; then its queues keep the rest
    backlog: int = 1024
    queues: QueueSettings = QueueSettings()
    version: str = "4.3.0"  # of RabbitMQ, whose behaviour clients may ask for by it
