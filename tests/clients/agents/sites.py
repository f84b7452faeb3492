"""Sites for tests of agents: a RabbitMQ server each, an agent beside it, and one coordinator for all."""

from __future__ import annotations

import base64
import contextlib
import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
from bench.core.ports import free_port
from bench.peers.rabbitmq.node import Node, PortMapper
from tests.clients.agents.authority import Authority
from tests.clients.agents.process import AgentProcess

from treecast.middleware.daemon.process import DaemonProcess

PATIENCE = 240.0  # seconds until a test gives up; nothing is asserted about it
USER = "treecast"
CERTIFIED = "localhost"  # the common name of the certificate, and a user without a password
DEFINITIONS: dict[str, Any] = {
    "users": [
        {"name": USER, "password": USER, "tags": "administrator"},
        {"name": CERTIFIED, "password_hash": "", "tags": ""},
    ],
    "vhosts": [{"name": "/"}],
    "permissions": [
        {"user": user, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        for user in (USER, CERTIFIED)
    ],
}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Server:
    """A RabbitMQ server on loopback. `tls_port`: of a listener that asks for a certificate."""

    def __init__(
        self,
        name: str,
        folder: Path,
        mapper: PortMapper,
        authority: Authority,
        *,
        events: bool = True,
        more: str = "",
    ) -> None:
        """`authority`: whose certificates both ends have. `events`: with the event exchange plugin. `more`:
        lines of its configuration."""
        self.user = USER  # and its password
        self.management, self.tls_port = free_port(), free_port()
        plugins = ("rabbitmq_management", "rabbitmq_auth_mechanism_ssl")
        plugins += ("rabbitmq_event_exchange",) if events else ()
        more += f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\nssl_cert_login_from = common_name\n"
        files = {"cacertfile": authority.ca, "certfile": authority.server, "keyfile": authority.server}
        more += "".join(f"ssl_options.{option} = {file}\n" for option, file in files.items())
        more += "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
        names = ("PLAIN", "AMQPLAIN", "EXTERNAL")
        more += "".join(f"auth_mechanisms.{number} = {name}\n" for number, name in enumerate(names, 1))
        more += f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.management}\n"
        self.node = Node(name, folder, mapper, DEFINITIONS, plugins, more)
        self.port = self.node.port
        self._connections: list[pika.BlockingConnection] = []

    def wait(self) -> None:
        self.node.wait(120)
        until(lambda: self.api("overview"), "the management plugin does not answer")

    def api(self, path: str) -> Any:
        """Returns an answer of the management API; None if there is none."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.management}/api/{path}")
        manager = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        manager.add_password(None, request.full_url, self.user, self.user)
        opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(manager))
        try:
            with opener.open(request, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def put(self, path: str, body: dict[str, Any]) -> None:
        """Makes a change by the management API."""
        self._change("PUT", path, json.dumps(body).encode())

    def delete(self, path: str) -> None:
        self._change("DELETE", path, None)

    def _change(self, method: str, path: str, body: bytes | None) -> None:
        url = f"http://127.0.0.1:{self.management}/api/{path}"
        log_in = base64.b64encode(f"{self.user}:{self.user}".encode()).decode()
        headers = {"Authorization": f"Basic {log_in}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=30):
            pass

    def connect(self) -> pika.BlockingConnection:
        """Returns a connection, which `disconnect` closes."""
        login = pika.PlainCredentials(self.user, self.user)
        parameters = pika.ConnectionParameters("127.0.0.1", self.port, credentials=login, heartbeat=60)
        self._connections.append(pika.BlockingConnection(parameters))
        return self._connections[-1]

    def disconnect(self) -> None:
        while self._connections:
            with contextlib.suppress(pika.exceptions.AMQPError):
                self._connections.pop().close()


class FaceServer(Server):
    """A daemon's AMQP face and its management calls, in the place of a RabbitMQ server."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.management = daemon.address("admin")[1]
        self.port = daemon.address("amqp")[1]
        self.user = "guest"
        self._connections = []


class Agent(AgentProcess):
    """An agent process beside a RabbitMQ server."""

    def __init__(
        self, site: str, folder: Path, server: Server, join: str, token: Path, rabbit: str, agent: str = ""
    ) -> None:
        """`rabbit` and `agent`: more lines of the tables; `rabbit` may have the log-in."""
        log_in = f'address = "127.0.0.1:{server.port}"\nuser = "{server.user}"\n'
        log_in += f'password = "{server.user}"\n'
        table = (
            f"[rabbitmq]\n{'' if 'user =' in rabbit else log_in}"
            f'management = "http://127.0.0.1:{server.management}"\npoll_seconds = 0.5\n{rabbit}'
        )
        super().__init__("rabbitmq", site, folder, join, token, agent, table, PATIENCE)
