"""Small files that are there whole, as before or as written, also after a power loss."""

from __future__ import annotations

import os
from pathlib import Path

from .disk import Disk


def write_whole(path: Path, content: bytes) -> None:
    """Replaces the file, and forces its content and its name to the disk."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    Disk().sync_directory(str(path.parent))
