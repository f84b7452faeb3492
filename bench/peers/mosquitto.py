"""Mosquitto as the system packages it, and Treecast's MQTT face, as peers of one comparison."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.core.peer import LocalServer
from bench.core.ports import free_port
from bench.core.process import ServerProcess
from bench.peers.treecast import TreecastPeer

INSTALL = "Mosquitto is not installed: `apt-get install mosquitto` (the service need not run)"
# No limits on waiting or in-flight messages, so that Mosquitto neither drops nor waits when Treecast does
# not.
CONFIG = {
    "allow_anonymous": "true",
    "persistence": "false",
    "max_inflight_messages": "0",
    "max_queued_messages": "0",
    "set_tcp_nodelay": "true",
    "log_type": "error",
}


def program() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


class MosquittoPeer(LocalServer):
    """One Mosquitto on loopback."""

    name = "Mosquitto"

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__("mosquitto-", parent)

    def launch(self, folder: Path) -> float:
        found = program()
        if found is None:
            raise RuntimeError(INSTALL)
        config = folder / "mosquitto.conf"
        config.write_text("\n".join(self.lines()) + "\n")
        self._process = ServerProcess([found, "-c", str(config)], folder / "server.log")
        return self._process.wait_until(lambda: listens(self._port), 30)

    def lines(self) -> list[str]:
        """Returns the lines of its configuration."""
        return [f"listener {self._port} 127.0.0.1", *(f"{key} {value}" for key, value in CONFIG.items())]

    def settings(self) -> Mapping[str, str]:
        done = subprocess.run([program() or "", "-h"], capture_output=True, text=True, check=False)
        version = next((line for line in done.stdout.splitlines() if "version" in line), "unknown")
        return {"version": version, **CONFIG}


class TreecastMqttPeer(TreecastPeer):
    """`treecast up` with the MQTT face."""

    def __init__(self, *, python: str, parent: Path | None = None, name: str = "Treecast") -> None:
        self._mqtt_port = free_port()
        flags = ("--mqtt", f"127.0.0.1:{self._mqtt_port}")
        super().__init__(python=python, flags=flags, fsync="never", parent=parent, name=name)

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._mqtt_port if self.ready() else self._port


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
