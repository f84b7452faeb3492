"""Operators' settings of the STARE face. Sizes in bytes, times in seconds."""

from __future__ import annotations

from msgspec import Struct


class FaceSettings(Struct, frozen=True):
    """A VNF with more than `unread_bytes` unread is closed."""

    send_buffer: int = 1 << 20  # limit of a slow VNF's socket; beyond it newer updates replace older ones
    unread_bytes: int = 64 << 20
    most_connections: int = 4096
    hello_seconds: float = 30.0  # time after which a silent connection is closed
