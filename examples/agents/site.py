"""One site of the demo: a host in a network namespace with a RabbitMQ server and an agent."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.evaluation.rabbitmq import LabServer

USER = "demo"
PATIENCE = 120.0  # seconds until the demo gives up
EXCHANGE, QUEUE = "telemetry", "readings"
_PLUGINS = ("rabbitmq_management", "rabbitmq_event_exchange")
_CONTROL, _FABRIC, _ADMIN = 7671, 7672, 7690
CENTER = "center"


class Amiss(Exception):
    """The demo cannot go on."""


def until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Waits. Raises Amiss."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise Amiss(what)
        time.sleep(0.2)


class Coordinator:
    """The coordinator at the center."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; returns when it serves. Raises Amiss."""
        address = f"{self._lab.ipv4(CENTER)}:{_CONTROL}"
        words = ("coordinator", "--data", str(self._folder / CENTER), "--control", address)
        self._process = _start_ready(self._lab, CENTER, self._folder / f"{CENTER}.log", words)

    def kill(self) -> None:
        """Kills it with SIGKILL."""
        _kill(self._process)


def _start_ready(lab: Lab, host: str, log: Path, words: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Starts a command of treecast; returns when it says that it is ready. Raises Amiss."""
    with log.open("ab") as sink:
        process = lab.start(host, sys.executable, "-m", "treecast.middleware.cli", *words, stderr=sink)
    assert process.stdout is not None
    if not process.stdout.readline().startswith(b"ready "):
        raise Amiss(log.read_text())
    return process


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    assert process is not None
    process.send_signal(signal.SIGKILL)
    process.wait()


class Site:
    """A site. `consumes`: an application consumes there."""

    def __init__(self, lab: Lab, name: str, folder: Path, *, consumes: bool) -> None:
        self.name = name
        self.consumes = consumes
        self._lab = lab
        self._folder = folder
        self._agent: subprocess.Popen[bytes] | None = None
        user = {"name": USER, "password": USER, "tags": "administrator"}
        rights = {"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        queues = [{"name": QUEUE, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}]
        exchange: dict[str, Any] = {"name": EXCHANGE, "vhost": "/", "type": "topic", "durable": True}
        exchange |= {"auto_delete": False, "internal": False, "arguments": {}}
        binding: dict[str, Any] = {
            "source": EXCHANGE,
            "vhost": "/",
            "destination": QUEUE,
            "destination_type": "queue",
        }
        binding |= {"routing_key": "sensor.*.heat", "arguments": {}}
        definitions: dict[str, Any] = {
            "users": [user],
            "vhosts": [{"name": "/"}],
            "permissions": [rights],
            "exchanges": [exchange],
            "queues": queues if consumes else [],
            "bindings": [binding] if consumes else [],
        }
        self._server = LabServer(lab, name, folder, definitions, _PLUGINS)

    # --- the server

    def start_mapper(self) -> None:
        try:
            self._server.start_mapper()
        except RuntimeError as error:
            raise Amiss(str(error)) from None

    def start_server(self) -> None:
        """Starts the server; does not wait."""
        self._server.start()

    def await_server(self) -> None:
        until(self._server.serves, f"the server of {self.name} does not start; see {self._server.log}")

    def kill_server(self) -> None:
        """Kills it with SIGKILL."""
        self._server.kill()

    # --- the agent

    def start_agent(self) -> None:
        """Starts the agent; returns when it is ready."""
        config = self._folder / f"{self.name}.toml"
        config.write_text(
            f'[agent]\nname = "{self.name}"\ndata = "{self._folder / self.name}"\n'
            f'join = "{self._lab.ipv4(CENTER)}:{_CONTROL}"\n'
            f'join_token = "@{self._folder / CENTER / "join-token"}"\n'
            f'fabric = "{self._lab.ipv4(self.name)}:{_FABRIC}"\n\n'
            f'[rabbitmq]\nuser = "{USER}"\npassword = "{USER}"\nexchanges = ["{EXCHANGE}"]\n'
        )
        words = ("agent", "rabbitmq", "--config", str(config))
        self._agent = _start_ready(self._lab, self.name, self._folder / f"agent-{self.name}.log", words)

    def kill_agent(self) -> None:
        """Kills it with SIGKILL."""
        _kill(self._agent)

    def status(self) -> dict[str, Any]:
        """Returns what the agent says of itself; {} if it does not answer."""
        program = (sys.executable, "-m", "treecast.middleware.cli", "agent", "status", "--json")
        answer = self._lab.run(self.name, *program, check=False).stdout
        found: dict[str, Any] = json.loads(answer) if answer.startswith("{") else {}
        return found

    # --- its link and its applications

    def cut_off(self) -> None:
        self._lab.run(self.name, "ip", "link", "set", "eth0", "down")

    def reconnect(self) -> None:
        self._lab.run(self.name, "ip", "link", "set", "eth0", "up")

    @property
    def consumed_file(self) -> Path:
        return self._folder / f"consumed-{self.name}"

    def consumed(self) -> list[int]:
        """Returns the numbers that its application has acknowledged so far, in order."""
        if not self.consumed_file.exists():
            return []
        return [int(line) for line in self.consumed_file.read_text().split()]

    def start_consumer(self) -> None:
        words = (QUEUE, str(self.consumed_file), USER)
        self._lab.start(self.name, sys.executable, "-m", "examples.agents.consume", *words)

    def start_publisher(self, rate: float, file: Path) -> subprocess.Popen[bytes]:
        words = (EXCHANGE, str(rate), str(file), USER)
        return self._lab.start(self.name, sys.executable, "-m", "examples.agents.publish", *words)
