"""Settings of the AMQP face."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from treecast.shims.listening import TlsSettings

from .certificates import CertificateLogin


class AmqpSettings(Struct, frozen=True):
    """Settings of the AMQP face. Sizes are in bytes, times in seconds.

    Defaults are those of RabbitMQ, if it has one.
    """

    plain: bool = True  # whether to listen without TLS
    host: str = "127.0.0.1"
    port: int = 5672  # 0 picks a free one
    unix_path: Path | None = None
    tls_host: str = "127.0.0.1"
    tls_port: int = 5671
    tls: TlsSettings | None = None
    certificate_login: CertificateLogin = CertificateLogin.DISTINGUISHED_NAME

    max_message_bytes: int = 16 * 1024 * 1024
    max_transaction_bytes: int = 128 * 1024 * 1024  # published and not committed, per connection
    frame_max: int = 131_072
    channel_max: int = 2047  # at most 32,767
    heartbeat: int = 60  # interval proposed to clients, 0 for none
    max_consumers: int = 1 << 30  # per channel
    connect_seconds: float = 10.0  # time limit for opening a connection
    send_buffer_bytes: int = 256 * 1024  # unsent bytes per connection before messages wait in queues
    backlog: int = 1024
    version: str = "4.3.0"  # RabbitMQ version reported to clients, which may adapt to it
