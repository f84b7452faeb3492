"""The bare loop of bench/floor as a peer: what the machine allows, whatever a broker does."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.core.peer import Server
from bench.core.process import ServerProcess, free_port
from treecast.middleware.load.connection import serves


class FloorPeer(Server):
    """Serves raw produce and raw fetch only, for records of one size."""

    is_floor = True

    def __init__(self, *, read: str = "sendfile", parent: Path | None = None) -> None:
        self.name = "floor"
        self._read = read
        self._parent = parent
        self._folder: Path | None = None
        self._process: ServerProcess | None = None
        self._port = 0

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def start(self) -> float:
        self._folder = Path(tempfile.mkdtemp(prefix="floor-", dir=self._parent))
        self._port = free_port()
        command = [sys.executable, "-m", "bench.floor.server", "--port", str(self._port)]
        command += ["--directory", str(self._folder), "--read", self._read]
        self._process = ServerProcess(command, self._folder / "server.log")
        return self._process.wait_until(lambda: serves(*self.address), 30)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def pids(self) -> list[int]:
        return [] if self._process is None else self._process.pids()

    def settings(self) -> Mapping[str, str]:
        return {
            "what": "a bare loop: one receive, one write and one send per chunk; no broker",
            "reading": self._read,
            "durability": "no fsync, page cache",
        }
