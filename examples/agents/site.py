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

from bench.peers.rabbitmq.node import environment, prepare

from treecast.middleware.dataplane.lab.lab import Lab

USER = "demo"
PATIENCE = 120.0  # seconds until the demo gives up
EXCHANGE, QUEUE = "telemetry", "readings"
_AMQP, _MANAGEMENT, _MAPPER, _NODES = 5672, 15672, 4369, 25672
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


def start_coordinator(lab: Lab, folder: Path) -> None:
    """Starts a coordinator at the center; returns when it serves."""
    words = ("--data", str(folder / CENTER), "--control", f"{lab.ipv4(CENTER)}:{_CONTROL}")
    program = (sys.executable, "-m", "treecast.middleware.cli", "coordinator", *words)
    with (folder / f"{CENTER}.log").open("ab") as log:
        process = lab.start(CENTER, *program, stderr=log)
    assert process.stdout is not None
    if not process.stdout.readline().startswith(b"ready "):
        raise Amiss((folder / f"{CENTER}.log").read_text())


class Site:
    """A site. `consumes`: an application consumes there."""

    def __init__(self, lab: Lab, name: str, folder: Path, *, consumes: bool) -> None:
        self.name = name
        self.consumes = consumes
        self._lab = lab
        self._folder = folder
        self._server: subprocess.Popen[bytes] | None = None
        self._prepared = folder / f"rabbitmq-{name}"
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
        more = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {_MANAGEMENT}\n"
        self._command = prepare(self._prepared, _AMQP, definitions, _PLUGINS, more)

    # --- the server

    def start_mapper(self) -> None:
        with (self._folder / f"epmd-{self.name}.log").open("ab") as log:
            self._lab.start(self.name, "epmd", "-address", "127.0.0.1", stdout=log, stderr=log)

    def start_server(self) -> None:
        """Starts the server; does not wait."""
        mapper = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "ERL_EPMD_PORT": str(_MAPPER)}
        given = environment(f"rabbit-{self.name}", self._prepared, mapper, _NODES)
        words = [f"{name}={value}" for name, value in given.items()]
        with (self._folder / f"server-{self.name}.log").open("ab") as log:
            program = ("setsid", "env", "-i", *words, *self._command)
            self._server = self._lab.start(self.name, *program, stdout=log, stderr=log)

    def await_server(self) -> None:
        probe = "import socket, sys; [socket.create_connection(('127.0.0.1', int(p))) for p in sys.argv[1:]]"
        program = (sys.executable, "-c", probe, str(_AMQP), str(_MANAGEMENT))
        log = f"{self._folder}/server-{self.name}.log"
        until(
            lambda: self._lab.run(self.name, *program, check=False).returncode == 0,
            f"the server of {self.name} does not start; see {log}",
        )

    def kill_server(self) -> None:
        """Kills it with SIGKILL."""
        assert self._server is not None
        self._server.send_signal(signal.SIGKILL)
        self._server.wait()

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
        program = (
            sys.executable,
            "-m",
            "treecast.middleware.cli",
            "agent",
            "rabbitmq",
            "--config",
            str(config),
        )
        with (self._folder / f"agent-{self.name}.log").open("ab") as log:
            process = self._lab.start(self.name, *program, stderr=log)
        assert process.stdout is not None
        if not process.stdout.readline().startswith(b"ready "):
            raise Amiss((self._folder / f"agent-{self.name}.log").read_text())

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
