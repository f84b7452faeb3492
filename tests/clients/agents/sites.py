"""Sites for tests of agents: a RabbitMQ server each, an agent beside it, and one coordinator for all."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
from bench.core.process import free_port
from bench.peers.rabbitmq.node import Node, PortMapper

PATIENCE = 240.0  # seconds until a test gives up; nothing is asserted about it
USER = "treecast"
DEFINITIONS: dict[str, Any] = {
    "users": [{"name": USER, "password": USER, "tags": "administrator"}],
    "vhosts": [{"name": "/"}],
    "permissions": [{"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Server:
    """A RabbitMQ server on loopback. `events`: with the event exchange plugin."""

    def __init__(
        self, name: str, folder: Path, mapper: PortMapper, *, events: bool = True, more: str = ""
    ) -> None:
        """`more`: lines of its configuration."""
        self.management = free_port()
        plugins = ("rabbitmq_management", *(("rabbitmq_event_exchange",) if events else ()))
        more += f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.management}\n"
        self.node = Node(name, folder, mapper, DEFINITIONS, plugins, more)
        self._connections: list[pika.BlockingConnection] = []

    def wait(self) -> None:
        self.node.wait(120)
        until(lambda: self.api("overview"), "the management plugin does not answer")

    def api(self, path: str) -> Any:
        """Returns an answer of the management API; None if there is none."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.management}/api/{path}")
        manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        manager.add_password(None, request.full_url, USER, USER)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        try:
            with opener.open(request, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def connect(self) -> pika.BlockingConnection:
        """Returns a connection, which `disconnect` closes."""
        login = pika.PlainCredentials(USER, USER)
        parameters = pika.ConnectionParameters("127.0.0.1", self.node.port, credentials=login, heartbeat=60)
        self._connections.append(pika.BlockingConnection(parameters))
        return self._connections[-1]

    def disconnect(self) -> None:
        while self._connections:
            with contextlib.suppress(pika.exceptions.AMQPError):
                self._connections.pop().close()


class Agent:
    """An agent process beside a server."""

    def __init__(
        self, site: str, folder: Path, server: Server, join: str, token: Path, rabbit: str, agent: str = ""
    ) -> None:
        """`rabbit` and `agent`: more lines of the tables."""
        folder.mkdir(parents=True, exist_ok=True)
        self.site = site
        self.admin = free_port()
        self.log = folder / f"{site}.log"
        self.config = folder / f"{site}.toml"
        self.config.write_text(
            f'[agent]\nname = "{site}"\ndata = "{folder / site}"\njoin = "{join}"\njoin_token = "@{token}"\n'
            f'admin = "127.0.0.1:{self.admin}"\n{agent}\n'
            f'[rabbitmq]\naddress = "127.0.0.1:{server.node.port}"\nuser = "{USER}"\npassword = "{USER}"\n'
            f'management = "http://127.0.0.1:{server.management}"\npoll_seconds = 0.5\n{rabbit}\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> Agent:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TREECAST_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdout=subprocess.PIPE, stderr=log, env=environment
            )
        if wait:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line.startswith(b"ready "), self.log.read_text()
        return self

    def command(self) -> list[str]:
        module = [sys.executable, "-m", "treecast.middleware.cli", "agent", "rabbitmq"]
        return [*module, "--config", str(self.config)]

    def status(self) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/status", timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    def until(self, condition: Callable[[dict[str, Any]], object], what: str) -> dict[str, Any]:
        """Returns the first status for which the condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not ((found := self.status()) and condition(found)):
            assert time.monotonic() < deadline, f"{what}: {found}\n{self.log.read_text()[-4000:]}"
            time.sleep(0.1)
        return found

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self._gone()

    def stop(self) -> int:
        """Returns the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._gone()

    def _gone(self) -> int:
        assert self.process is not None
        code = self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def clean_up(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
