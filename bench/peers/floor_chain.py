"""The bare loops of bench/floor/chain as peers: one server, and two in a row."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.chain.load import open_route
from bench.core.chain import Chain, Route
from bench.core.ports import free_port
from bench.core.process import ServerProcess
from treecast.middleware.load.connection import serves

from .treecast_chain import TOPIC


class FloorChain(Chain):
    """Loses order if UDP loses packets. Its ends have no more on the way than a socket holds."""

    is_floor = True

    def __init__(self, hosts: int, *, name: str, parent: Path | None = None) -> None:
        if hosts not in (1, 2):
            raise ValueError("one loop or two")
        self.name = name
        self._hosts, self._parent = hosts, parent
        self._folder: Path | None = None
        self._loops: list[tuple[ServerProcess, int]] = []  # near first, with their ports

    @property
    def route(self) -> Route:
        near, far = self._loops[0][1], self._loops[-1][1]
        return Route("kafka", ("127.0.0.1", near), ("127.0.0.1", far), TOPIC, TOPIC)

    def start(self) -> float:
        began = time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="floor-", dir=self._parent))
        try:
            if self._hosts == 1:
                self._start("near", [])
            else:
                udp = str(free_port())
                self._start("near", ["--to", udp])
                self._start("far", ["--udp", udp])
            came = open_route(self.route, 30)
        except BaseException:
            self.stop()
            raise
        return came - began

    def _start(self, end: str, flags: list[str]) -> None:
        assert self._folder is not None
        folder, port = self._folder / end, free_port()
        folder.mkdir()
        command = [sys.executable, "-m", "bench.floor.chain", "--port", str(port), "--directory", str(folder)]
        process = ServerProcess([*command, *flags], folder / "server.log")
        self._loops.append((process, port))
        process.wait_until(lambda: serves("127.0.0.1", port), 30)

    def stop(self) -> None:
        while self._loops:
            self._loops.pop()[0].stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def hosts(self) -> list[list[int]]:
        return [process.pids() for process, _ in self._loops]

    def settings(self) -> Mapping[str, str]:
        return {
            "what": "bare loops: receive, write to a file, send; no broker",
            "topology": "one loop" if self._hosts == 1 else "two loops, one UDP datagram for each batch",
            "durability": "no fsync, page cache",
        }
