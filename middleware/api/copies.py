"""How often a stream's payload was sent, the figure that streams, metrics and `bench fanout` show alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# Heartbeats, announcements and skips cost a fixed number of bytes per second: beside a quiet stream they
# are many times its payload, and no sign of anything.
PAYLOAD_PURPOSES: Final = frozenset({"data", "repair", "replay"})


def copies_per_payload(sent: Iterable[tuple[str, int]], payload: int) -> float:
    """Returns the bytes sent with payload, per byte of payload. 0 before the first.

    `sent`: (purpose, bytes of segments). `payload`: bytes, each counted once for all receivers.
    """
    return sum([size for purpose, size in sent if purpose in PAYLOAD_PURPOSES]) / payload if payload else 0.0
