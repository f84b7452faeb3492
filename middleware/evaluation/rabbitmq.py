"""RabbitMQ servers of this machine, started by hand: each has its own name, ports and directories."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treecast.middleware.dataplane.lab.namespaces import inside

if TYPE_CHECKING:
    from treecast.middleware.dataplane.lab.lab import Lab

AMQP, MANAGEMENT = 5672, 15672  # ports of a server in a lab
_MAPPER, _NODES = 4369, 25672
_MAPPER_SECONDS = 30.0
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

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


def environment(
    name: str, folder: Path, mapper: Mapping[str, str], port: int, machine: str = ""
) -> dict[str, str]:
    """Returns a complete environment: neither the operator's environment nor /etc/rabbitmq applies.

    `mapper`: the environment of its port mapper. `port`: for other nodes and tools. `machine`: more arguments
    of Erlang's virtual machine.
    """
    arguments = f"-kernel inet_dist_use_interface {{127,0,0,1}} {machine}".rstrip()
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
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": arguments,
    }


class LabServer:
    """A server at a host of a lab, with its port mapper. It listens on loopback, and at `address`."""

    def __init__(
        self,
        lab: Lab,
        host: str,
        folder: Path,
        definitions: Mapping[str, Any],
        plugins: tuple[str, ...],
        address: str = "",
        machine: str = "",
    ) -> None:
        """`folder`: for all servers of the lab. `machine`: as of `environment`. Raises RuntimeError if
        RabbitMQ is not installed."""
        self.host = host
        self.process: subprocess.Popen[bytes] | None = None
        self._lab = lab
        self._folder = folder
        self._own = folder / f"rabbitmq-{host}"
        more = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {MANAGEMENT}\n"
        if address:
            more += f"listeners.tcp.2 = {address}:{AMQP}\n"
        self._command = prepare(self._own, AMQP, definitions, plugins, more)
        self._machine = machine

    @property
    def log(self) -> Path:
        return self._folder / f"server-{self.host}.log"

    def start_mapper(self) -> None:
        """Starts the port mapper, once for all runs of the server, which ends where it does not answer.
        Returns when it does. Raises RuntimeError."""
        output = self._folder / f"epmd-{self.host}.log"
        with output.open("ab") as log:
            self._lab.start(self.host, "epmd", "-address", "127.0.0.1", stdout=log, stderr=log)
        end = time.monotonic() + _MAPPER_SECONDS
        while not inside(self._lab.namespace(self.host), lambda: _takes(_MAPPER)):
            if time.monotonic() > end:
                raise RuntimeError(f"the port mapper of {self.host} does not answer; see {output}")
            time.sleep(0.02)

    def start(self) -> None:
        """Starts the server; does not wait."""
        mapper = {"PATH": _PATH, "ERL_EPMD_PORT": str(_MAPPER)}
        given = environment(f"rabbit-{self.host}", self._own, mapper, _NODES, self._machine)
        words = [f"{name}={value}" for name, value in given.items()]
        with self.log.open("ab") as log:
            program = ("setsid", "env", "-i", *words, *self._command)
            self.process = self._lab.start(self.host, *program, stdout=log, stderr=log)

    def serves(self) -> bool:
        """Whether AMQP and the management plugin take connections."""
        return inside(self._lab.namespace(self.host), lambda: all(map(_takes, (AMQP, MANAGEMENT))))

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def _takes(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
