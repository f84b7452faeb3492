"""Ports for servers that have to be told one: of loopback, and nobody else's until this process ends."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_FIRST = 16_384
_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")  # (first, last) of those that the kernel picks
_TRIES = 1000
_locks: list[int] = []  # files of the claimed ports, which stay open


def free_port() -> int:
    """Returns a port on which nothing listens. Raises OSError if there is none.

    It is below the ports that the kernel hands out: until the server binds it, one of these may go to any
    socket of another process. A lock keeps it from other callers.
    """
    try:
        end = int(_HANDED_OUT.read_text().split()[0])
    except OSError:
        end = 32_768
    for _ in range(_TRIES if end > _FIRST else 0):
        port = random.SystemRandom().randrange(_FIRST, end)
        if _claimed(port) and _unused(port):
            return port
    raise OSError(f"none of the ports {_FIRST} to {end - 1} of 127.0.0.1 is free")


def _claimed(port: int) -> bool:
    folder = Path(tempfile.gettempdir(), f"treecast-ports-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    file = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return False
    _locks.append(file)
    return True


def _unused(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
