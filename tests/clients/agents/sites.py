"""Sites for tests of agents: a RabbitMQ server each, an agent beside it, and one coordinator for all."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
from bench.core.process import free_port
from bench.peers.rabbitmq.node import Node, PortMapper
from tests.clients.agents.process import AgentProcess

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


class Agent(AgentProcess):
    """An agent process beside a RabbitMQ server."""

    def __init__(
        self, site: str, folder: Path, server: Server, join: str, token: Path, rabbit: str, agent: str = ""
    ) -> None:
        """`rabbit` and `agent`: more lines of the tables."""
        table = (
            f'[rabbitmq]\naddress = "127.0.0.1:{server.node.port}"\nuser = "{USER}"\npassword = "{USER}"\n'
            f'management = "http://127.0.0.1:{server.management}"\npoll_seconds = 0.5\n{rabbit}'
        )
        super().__init__("rabbitmq", site, folder, join, token, agent, table, PATIENCE)
