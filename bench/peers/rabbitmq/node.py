"""One RabbitMQ broker, started manually rather than as a service, with its own name, ports and
directories.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.core.ports import free_port
from bench.core.process import ServerProcess

# The real script on Debian; the one on the PATH changes user and directory first.
DEBIAN = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
INSTALL = "RabbitMQ is not installed: `apt-get install rabbitmq-server` (the service need not run)"


def server() -> Path | None:
    """Returns the script that starts a node, or None."""
    if DEBIAN.exists():
        return DEBIAN
    found = shutil.which("rabbitmq-server")
    return Path(found) if found else None


def missing() -> str:
    """Returns what to install, or an empty string."""
    if server() is None:
        return INSTALL
    if shutil.which("epmd") is None:
        return "Erlang's epmd is not on the PATH: `apt-get install erlang-base`"
    return ""


def version() -> str:
    """Returns the version in the rabbit application's folder beside the script; otherwise `unknown`."""
    script = server()
    if script is None:
        return "not installed"
    for folder in (script.resolve().parent.parent, Path("/usr/lib/rabbitmq/lib")):
        for application in sorted(folder.rglob("plugins/rabbit-*")):
            return application.name.removeprefix("rabbit-").removesuffix(".ez")
    return "unknown"


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


def prepare(
    folder: Path,
    port: int,
    definitions: Mapping[str, Any],
    plugins: tuple[str, ...],
    configuration: str = "",
) -> list[str]:
    """Writes the files of a server into a new folder. Returns its command.

    `configuration`: more lines of rabbitmq.conf. Raises RuntimeError if RabbitMQ is not installed.
    """
    folder.mkdir(parents=True)
    found = server()
    if found is None:
        raise RuntimeError(INSTALL)
    (folder / "definitions.json").write_text(json.dumps(definitions))
    (folder / "plugins").write_text(f"[{','.join(plugins)}].\n")
    first = f"listeners.tcp.1 = 127.0.0.1:{port}\nload_definitions = {folder / 'definitions.json'}\n"
    (folder / "rabbitmq.conf").write_text(first + configuration)
    return [str(found)]


def environment(name: str, folder: Path, mapper: Mapping[str, str], port: int) -> dict[str, str]:
    """Returns a complete environment: neither the operator's environment nor /etc/rabbitmq applies.

    `mapper`: the environment of its port mapper. `port`: for other nodes and tools.
    """
    return {
        **mapper,
        "HOME": str(folder),  # of the Erlang cookie
        "LANG": "C.UTF-8",
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_DIST_PORT": str(port),
        # The script then becomes the server instead of its parent, so that both end together.
        "RABBITMQ_ALLOW_INPUT": "true",
        "RABBITMQ_SERVER_START_ARGS": "-noinput",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False
