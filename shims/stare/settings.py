"""What operators may set of the STARE face. Sizes in bytes, times in seconds."""

from __future__ import annotations

from msgspec import Struct


class FaceSettings(Struct, frozen=True):
    """A VNF with more than `unread_bytes` unread is closed."""

    send_buffer: int = 1 << 20  # what a slow VNF's socket may hold; then newer updates replace older ones
    unread_bytes: int = 64 << 20
    most_connections: int = 4096
    hello_seconds: float = 30.0  # a connection that says nothing is closed
