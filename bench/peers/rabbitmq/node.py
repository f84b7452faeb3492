"""One RabbitMQ broker, started manually rather than as a service, with its own name, ports and
directories.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.core.ports import free_port
from bench.core.process import ServerProcess
from treecast.middleware.evaluation.rabbitmq import environment, missing, prepare, version

__all__ = ["Node", "PortMapper", "environment", "missing", "prepare", "version"]


class PortMapper:
    """Erlang's port mapper, one of our own on loopback: the machine's own RabbitMQ nodes stay strangers."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = ["epmd", "-port", str(self.port), "-address", "127.0.0.1"]
        self.process = ServerProcess(command, folder / "epmd.log", environment=self.environment())
        self.process.wait_until(lambda: _listens(self.port), 10)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "ERL_EPMD_PORT": str(self.port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }


class Node:
    """A broker on loopback, all of it under `folder`, that begins with `definitions` (users, exchanges)."""

    def __init__(
        self,
        name: str,
        folder: Path,
        mapper: PortMapper,
        definitions: Mapping[str, Any],
        plugins: tuple[str, ...],
        configuration: str = "",
    ) -> None:
        """`configuration`: more lines of rabbitmq.conf."""
        self.port = free_port()
        self.log = folder / "server.log"
        self._folder = folder
        self._command = prepare(folder, self.port, definitions, plugins, configuration)
        self._environment = environment(name, folder, mapper.environment(), free_port())
        self.process = self._start()

    def _start(self) -> ServerProcess:
        return ServerProcess(self._command, self.log, cwd=self._folder, environment=self._environment)

    def restart(self, timeout: float) -> None:
        """Kills the server with SIGKILL, and starts it on what it has on disk."""
        self.process.kill()
        self.process = self._start()
        self.wait(timeout)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def wait(self, timeout: float) -> float:
        """Returns the seconds until it takes connections. Raises RuntimeError with the end of its log."""
        return self.process.wait_until(lambda: _listens(self.port), timeout, interval=0.02)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False
