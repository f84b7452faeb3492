"""Files with secrets: mode 0600, and there whole, as before or as written, also after a power loss. And
whether a file that people change is another one than before.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file durably, readable by its owner only. Raises OSError."""
    new = path.with_name(path.name + ".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)  # a file that a kill has left may be open to others
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


Stamp = tuple[int, int, int, int]


def stamp_of(path: Path) -> Stamp | None:
    """Returns what changes when a file is written or replaced; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    # st_ctime: a tool that sets st_mtime, as `cp -p` or `touch -d`, cannot set it
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
