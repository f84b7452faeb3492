"""The bare loop of bench/floor/amqp as a peer: the machine's limit for any broker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from bench.core.peer import LocalServer
from bench.core.process import ServerProcess

from .mosquitto import listens


class FloorAmqp(LocalServer):
    """Serves the loads of publishes with a consumer only. Its log lies where a broker's data would."""

    is_floor = True
    name = "floor"

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__("floor-", parent)

    def launch(self, folder: Path) -> float:
        command = [sys.executable, "-m", "bench.floor.amqp", "--port", str(self._port)]
        self._process = ServerProcess([*command, "--data", str(folder)], folder / "server.log")
        return self._process.wait_until(lambda: listens(self._port), 30)

    def settings(self) -> Mapping[str, str]:
        return {
            "what": "a bare loop: one receive per chunk, one send; for persistent messages one write, one "
            "fdatasync and one confirm; no broker"
        }
