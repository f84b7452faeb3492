"""What a daemon may choose about its AMQP face."""

from __future__ import annotations

from msgspec import Struct

from treecast.middleware.broker.queues import QueueSettings


class AmqpSettings(Struct, frozen=True):
    """Sizes in bytes, times in seconds. The defaults are RabbitMQ's where it has one."""

    max_message_bytes: int = 16 * 1024 * 1024
    frame_max: int = 131_072
    channel_max: int = 2047  # at most 32,767
    heartbeat: int = 60  # 0: none is asked for
    max_consumers: int = 1 << 30  # of one channel
    connect_seconds: float = 10.0  # until the connection has to be open
    queues: QueueSettings = QueueSettings()
    version: str = "4.3.0"  # of RabbitMQ, whose behaviour clients may ask for by it
