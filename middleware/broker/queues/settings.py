"""What a daemon may choose about its queues."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class QueueSettings(Struct, frozen=True):
    """Sizes in bytes.

    `transient_queues`: whether queues that are neither durable nor exclusive may be declared, which
    RabbitMQ 4.3 no longer permits by itself. `quorum`: whether queues that ask for `x-queue-type: quorum`
    are taken, though the only copy of what they hold is here.
    """

    resident_bytes: int = (
        1024 * 1024
    )  # of messages of one queue and priority, beyond which the store has them
    page_entries: int = 4096  # of a queue's entries that leave memory together
    transient_queues: bool = False
    quorum: bool = True


DEFAULTS: Final = QueueSettings()
