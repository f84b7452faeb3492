"""RabbitMQ federation: a downstream exchange that is fed from the upstream broker's exchange."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.chain.amqp import PASSWORD, PREFETCH, USER, WINDOW
from bench.chain.load import open_route
from bench.core.chain import Chain, Route

from .node import Node, PortMapper, missing, version

EXCHANGE, QUEUE, UPSTREAM = "bench", "bench", "up"
# The plugin's defaults, stated explicitly: RabbitMQ's federation reference recommends them for safe
# forwarding.
LINK = {"ack-mode": "on-confirm", "prefetch-count": 1000}
PLUGINS = ("rabbitmq_federation",)


def base_definitions() -> dict[str, Any]:
    """Returns a user, the virtual host `/`, and a durable fanout exchange."""
    allowed = {"configure": ".*", "write": ".*", "read": ".*"}
    exchange = {"name": EXCHANGE, "vhost": "/", "type": "fanout", "durable": True}
    return {
        "users": [{"name": USER, "password": PASSWORD, "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": USER, "vhost": "/", **allowed}],
        "exchanges": [{**exchange, "auto_delete": False, "internal": False, "arguments": {}}],
        "queues": [],
        "bindings": [],
        "parameters": [],
        "policies": [],
    }


def downstream_definitions(port: int) -> dict[str, Any]:
    """Returns the same and a durable classic queue behind the exchange, which is federated from `port`."""
    uri = f"amqp://{USER}:{PASSWORD}@127.0.0.1:{port}"
    queue = {"name": QUEUE, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    binding = {"source": EXCHANGE, "vhost": "/", "destination": QUEUE, "destination_type": "queue"}
    upstream = {"component": "federation-upstream", "vhost": "/", "name": UPSTREAM}
    policy = {"vhost": "/", "name": "federate", "pattern": f"^{EXCHANGE}$", "apply-to": "exchanges"}
    return {
        **base_definitions(),
        "queues": [queue],
        "bindings": [{**binding, "routing_key": "", "arguments": {}}],
        "parameters": [{**upstream, "value": {"uri": uri, **LINK}}],
        "policies": [{**policy, "definition": {"federation-upstream": UPSTREAM}, "priority": 0}],
    }


class Federation(Chain):
    """Publisher at the upstream broker, consumer at the downstream one."""

    def __init__(self, *, parent: Path | None = None, start_timeout: float = 120) -> None:
        self.name = "RabbitMQ federation"
        self._parent = parent
        self._timeout = start_timeout
        self._folder: Path | None = None
        self._mapper: PortMapper | None = None
        self._nodes: list[Node] = []

    def missing(self) -> str:
        return missing()

    @property
    def route(self) -> Route:
        near, far = self._nodes
        return Route("amqp", near.address, far.address, EXCHANGE, QUEUE)

    def start(self) -> float:
        began = time.monotonic()
        self._folder = folder = Path(tempfile.mkdtemp(prefix="rabbitmq-", dir=self._parent))
        try:
            self._mapper = mapper = PortMapper(folder)
            near = Node("bench-upstream", folder / "upstream", mapper, base_definitions(), PLUGINS)
            self._nodes = [near]
            definitions = downstream_definitions(near.port)
            self._nodes.append(Node("bench-downstream", folder / "downstream", mapper, definitions, PLUGINS))
            for node in self._nodes:
                node.wait(self._timeout)
            came = open_route(self.route, self._timeout)
        except BaseException:
            self.stop()
            raise
        return came - began

    def stop(self) -> None:
        for node in reversed(self._nodes):
            node.process.stop()
        self._nodes = []
        if self._mapper is not None:
            self._mapper.process.stop()
            self._mapper = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def hosts(self) -> list[list[int]]:
        """Returns each broker's processes; the port mapper, idle by then, counts with the first."""
        hosts = [node.process.pids() for node in self._nodes]
        if self._mapper is not None and hosts:
            hosts[0] += self._mapper.process.pids()
        return hosts

    def settings(self) -> Mapping[str, str]:
        return {
            "version": version(),
            "servers": "two brokers, not clustered, started by hand on loopback; their own defaults",
            "exchange": f"durable fanout, federated: {', '.join(f'{k}={v}' for k, v in LINK.items())}",
            "queue": "durable classic queue, not a quorum queue: one broker a side has nobody to vote with",
            "publisher": f"persistent messages, confirms, {WINDOW} unconfirmed at most",
            "consumer": f"manual acknowledgements, prefetch {PREFETCH}",
            "durability": "confirmed, to the publisher and to the link, once on disk: it calls fsync",
        }
