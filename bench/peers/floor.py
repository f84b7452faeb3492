"""The bare loop of bench/floor as a peer: the machine's limit for any broker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.core.peer import LocalServer
from bench.core.process import ServerProcess
from treecast.middleware.load.connection import serves


class FloorPeer(LocalServer):
    """Serves raw produce and raw fetch only, for records of one size."""

    is_floor = True

    def __init__(self, *, read: str = "sendfile", parent: Path | None = None) -> None:
        super().__init__("floor-", parent)
        self.name = "floor"
        self._read = read

    def launch(self, folder: Path) -> float:
        command = [sys.executable, "-m", "bench.floor.server", "--port", str(self._port)]
        command += ["--directory", str(folder), "--read", self._read]
        self._process = ServerProcess(command, folder / "server.log")
        return self._process.wait_until(lambda: serves(*self.address), 30)

    def settings(self) -> Mapping[str, str]:
        return {
            "what": "a bare loop: one receive, one write and one send per chunk; no broker",
            "reading": self._read,
            "durability": "no fsync, page cache",
        }
