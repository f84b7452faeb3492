"""What operators may set of the STARE face. Sizes in bytes, times in seconds."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class FaceSettings(Struct, frozen=True):
    """`unix_path` None opens no Unix socket. A VNF with more than `unread_bytes` unread is closed."""

    host: str = "127.0.0.1"
    port: int = 65431
    unix_path: Path | None = None
    backlog: int = 256
    send_buffer: int = 1 << 20  # what a slow VNF's socket may hold; then newer updates replace older ones
    unread_bytes: int = 64 << 20
    most_connections: int = 4096
    hello_seconds: float = 30.0  # a connection that says nothing is closed
