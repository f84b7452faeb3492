"""The settings of a daemon's queues."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class QueueSettings(Struct, frozen=True):
    """Queue settings. Sizes in bytes.

    `transient_queues`: whether queues that are neither durable nor exclusive may be declared, which
    RabbitMQ 4.3 no longer permits by default. `quorum`: whether queues with `x-queue-type: quorum` are
    accepted, although the only copy of their messages is on this host. `handover_s`: how long, in seconds,
    a single active consumer waits for messages that the one before has not settled when it is cancelled.
    """

    resident_bytes: int = 1024 * 1024  # messages of one queue and priority in memory; more go to the store
    page_entries: int = 4096  # entries of a queue that leave memory together
    transient_queues: bool = False
    quorum: bool = True
    handover_s: float = 5.0


DEFAULTS: Final = QueueSettings()
