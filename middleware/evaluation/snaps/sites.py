"""A network of SRv6 routers on this machine with a RabbitMQ server at each host, and an agent beside it.

Hosts and routers are network namespaces (`dataplane.lab`); the routers run p4/srv6_replication.p4. One more
host, `center`, has the coordinator and the network controller. It reaches the other hosts by a bridge of its
own, so that links between routers carry nothing but what brokers, agents and applications send.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.impairment import Impairment
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside
from treecast.middleware.routing.network import Network

from ..figure import NotMeasured
from ..processes import cpu_seconds, descendants
from ..rabbitmq import AMQP, MANAGEMENT, LabServer
from ..stare.programs import FOLDER
from .scenarios import Wires

USER: Final = "snaps"
CENTER: Final = "center"
BLOCK: Final = "fcbb:bb00::"
EXCHANGE: Final = "readings"  # of agents
PLUGINS: Final = ("rabbitmq_management", "rabbitmq_event_exchange", "rabbitmq_federation")
# Schedulers that spin while they have nothing to do would take the cores from other servers of this machine.
MACHINE: Final = "+sbwt none +sbwtdcpu none +sbwtdio none"
_BRIDGE, _CONTROL, _FABRIC = "beside", 7671, 7672
_READY_SECONDS: Final = 600.0  # many servers start at once on few cores
_LOOK: Final = 0.5  # seconds between the controller's looks at receivers


class Failed(NotMeasured):
    """A part of the network does not come up. The text says which, and where its log is."""


def described(network: Network, wires: Wires) -> Description:
    """Returns the lab for a network; pure."""
    names, rate = network.names, round(wires.rate)
    links = []
    for a, b in network.ends:
        between_routers = not network.is_host[a] and not network.is_host[b]
        impairment = Impairment(delay=wires.delay if between_routers else 0.0)
        links.append(Link((names[a], names[b]), rate=rate, impairment=impairment))
    hosts = [names[node] for node in network.hosts]
    links += [Link((host, _BRIDGE)) for host in (*hosts, CENTER)]
    program = Switch(str(FOLDER / "srv6_replication.p4"))
    return Description(
        hosts=dict.fromkeys((*hosts, CENTER), Host()),
        switches={names[node]: program for node in network.switches},
        bridges={_BRIDGE: Bridge()},
        links=tuple(links),
        source="the lab of SNAPS",
    )


class Sites:
    """A lab that is up, with its network controller. Servers, the coordinator and agents are started at need.

    All is called by one thread, as what it starts ends with that thread.
    """

    def __init__(self, lab: Lab, network: Network, folder: Path) -> None:
        self.lab = lab
        self.network = network
        self.hosts = [network.names[node] for node in network.hosts]
        self._folder = folder
        self._servers: dict[str, LabServer] = {}
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    # --- the network

    def start_controller(self, agents: Iterable[str] = ()) -> None:
        """Starts the network controller; returns when routers bring packets to each other. `agents`: hosts
        that it asks for receivers."""
        for host in self.hosts:
            other = next(one for one in self.hosts if one != host)
            via = ("via", self.lab.ipv6(other), "dev", "eth0")  # by any neighbour: a router takes every frame
            self.lab.run(host, "ip", "-6", "route", "add", f"{BLOCK}/32", *via)
        file = self._folder / "segments.toml"
        file.write_text(self._controlled(set(agents)))
        program = (sys.executable, "-m", "treecast.middleware.control.segments", str(file))
        token = ("--token", f"@{self._folder / CENTER / 'join-token'}")
        self._start_ready(CENTER, "controller", *program, *token)

    def _controlled(self, agents: set[str]) -> str:
        names, lab = self.network.names, self.lab
        links = [[names[a], names[b]] for a, b in self.network.ends]
        lines = [
            f"links = {json.dumps(links)}",
            f'block = "{BLOCK}"',
            f"look = {_LOOK}",
            "probe = 0",
            "[routers]",
        ]
        lines += [f'{names[node]} = "{lab.p4runtime(names[node])}"' for node in self.network.switches]
        for host in self.hosts:
            lines += [
                f"[hosts.{host}]",
                f'address = "{lab.ipv6(host)}"',
                f'mac = "{lab.interface(host).mac}"',
            ]
            lines += [f'control = "{self._control_of(host)}"'] if host in agents else []
        return "\n".join(lines)

    def _control_of(self, host: str) -> str:
        return f"unix:{self._folder / host}.sock"

    def _start_ready(self, host: str, what: str, *command: str) -> subprocess.Popen[bytes]:
        """Starts a program at a host; returns when it says that it is ready. Raises Failed."""
        process = self._start(host, what, *command)
        self._await_ready(what, process)
        return process

    def _start(self, host: str, what: str, *command: str) -> subprocess.Popen[bytes]:
        with (self._folder / f"{what}.log").open("ab") as sink:
            return self.lab.start(host, *command, stderr=sink)

    def _await_ready(self, what: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        if not process.stdout.readline().startswith(b"ready "):
            said = (self._folder / f"{what}.log").read_text()
            raise Failed(f"the {what} does not start:\n{said[-2000:]}")

    # --- servers

    def start_servers(self, hosts: Sequence[str], more: Mapping[str, Any]) -> None:
        """Starts RabbitMQ at these hosts, and waits until all serve. `more`: their definitions, beside a
        user. Raises Failed."""
        user = {"name": USER, "password": USER, "tags": "administrator"}
        rights = {"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        definitions = {"users": [user], "vhosts": [{"name": "/"}], "permissions": [rights], **more}
        for host in hosts:
            address = self.lab.ipv6(host)
            server = LabServer(self.lab, host, self._folder, definitions, PLUGINS, address, MACHINE)
            self._servers[host] = server
            try:
                server.start_mapper()
            except RuntimeError as error:
                raise Failed(str(error)) from None
            server.start()
        for host in hosts:
            server = self._servers[host]
            wait_until(server.serves, f"the server of {host} does not start; see {server.log}")

    def manage(self, host: str, method: str, path: str, body: object = None) -> int:
        """Calls a server's management plugin. Returns the status."""

        def call() -> int:
            connection = http.client.HTTPConnection("127.0.0.1", MANAGEMENT, timeout=30)
            key = b64encode(f"{USER}:{USER}".encode()).decode()
            headers = {"Authorization": f"Basic {key}", "Content-Type": "application/json"}
            connection.request(
                method, f"/api/{path}", json.dumps(body) if body is not None else None, headers
            )
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status

        return inside(self.lab.namespace(host), call)

    def address(self, host: str, seen_from: str) -> tuple[str, int]:
        """Returns where an application at a host reaches the server of a host."""
        return ("127.0.0.1" if host == seen_from else self.lab.ipv6(host)), AMQP

    # --- agents

    def start_coordinator(self) -> None:
        data, address = str(self._folder / CENTER), f"{self.lab.ipv4(CENTER)}:{_CONTROL}"
        program = (sys.executable, "-m", "treecast.middleware.cli", "coordinator")
        self._start_ready(CENTER, "coordinator", *program, "--data", data, "--control", address)

    def start_agents(self, hosts: Sequence[str]) -> None:
        """Starts agents that use trees; returns when all serve. Raises Failed."""
        for host in hosts:
            config = self._folder / f"{host}.toml"
            config.write_text(
                f'[agent]\nname = "{host}"\ndata = "{self._folder / host}"\n'
                f'join = "{self.lab.ipv4(CENTER)}:{_CONTROL}"\n'
                f'join_token = "@{self._folder / CENTER / "join-token"}"\n'
                f'fabric = "[{self.lab.ipv6(host)}]:{_FABRIC}"\ncarrier = "srv6"\n'
                f'control = "{self._control_of(host)}"\n\n'
                f'[rabbitmq]\nuser = "{USER}"\npassword = "{USER}"\n'
                f'declare = [{{ name = "{EXCHANGE}", type = "fanout" }}]\n'
            )
            program = (sys.executable, "-m", "treecast.middleware.cli", "agent", "rabbitmq")
            self._agents[host] = self._start(host, f"agent-{host}", *program, "--config", str(config))
        for host in hosts:
            self._await_ready(f"agent-{host}", self._agents[host])
        for host in hosts:
            wait_until(partial(self._serves, host), f"the agent of {host} does not serve")

    def _serves(self, host: str) -> bool:
        return bool(self.status(host).get("serving"))

    def status(self, host: str) -> dict[str, Any]:
        """Returns what an agent says of itself; {} if it does not answer."""

        def ask() -> dict[str, Any]:
            connection = http.client.HTTPConnection("127.0.0.1", 7690, timeout=10)
            connection.request("GET", "/status")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
            connection.close()
            return found

        try:
            return inside(self.lab.namespace(host), ask)
        except (OSError, ValueError, http.client.HTTPException):
            return {}

    def by_tree(self, host: str, receivers: Iterable[str]) -> int:
        """Returns how many packets the agent of a host has sent by the tree to exactly these hosts."""
        with DaemonClient(self._control_of(host)) as client:
            sets = {frozenset(one.hosts): one.packets for one in client.list_receiver_sets()}
        return sets.get(frozenset(receivers), 0)

    # --- what is measured

    def cpu(self, hosts: Iterable[str]) -> float:
        """Returns the CPU seconds that servers and agents of these hosts have taken so far."""
        hosts = list(hosts)
        servers = [self._servers[host].process for host in hosts if host in self._servers]
        found = sum(cpu_seconds(descendants(one.pid)) for one in servers if one is not None)
        return found + self.cpu_of_agents(hosts)

    def cpu_of_agents(self, hosts: Iterable[str]) -> float:
        """The same of the agents alone."""
        agents = [self._agents[host] for host in hosts if host in self._agents]
        return sum(cpu_seconds(descendants(one.pid)) for one in agents)

    def received(self) -> dict[tuple[str, str], int]:
        """Returns the bytes that have arrived over each link, by its direction and the counter of its end."""
        names, found = self.network.names, {}
        for a, b in self.network.ends:
            pair = (names[a], names[b])
            for tail, head in (pair, pair[::-1]):
                end = self.lab.end(*pair, at=head)
                found[tail, head] = self.lab.counters(head, end.interface)["rx_bytes"]
        return found


def wait_until(done: Callable[[], object], what: str, seconds: float = _READY_SECONDS) -> None:
    """Raises Failed."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise Failed(what)
        time.sleep(0.3)
