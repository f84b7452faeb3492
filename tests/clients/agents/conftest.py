"""Fixtures of the agents' tests: two RabbitMQ servers and a coordinator for a module, agents for each
test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.peers.rabbitmq import missing
from bench.peers.rabbitmq.node import PortMapper
from tests.clients.agents.authority import Authority
from tests.clients.agents.sites import Agent, Server

from treecast.middleware.daemon.process import DaemonProcess

ONE, OTHER = "lisbon", "oslo"
LARGEST = 500_000  # bytes of a message that the second server takes


class Site:
    """A server, and the agent beside it. `rabbit`, `agent`: more lines of its tables."""

    def __init__(self, name: str, folder: Path, server: Server, hub: DaemonProcess) -> None:
        self.name = name
        self.folder = folder
        self.server = server
        self._hub = hub

    def agent(self, rabbit: str, *, site: str = "", agent: str = "") -> Agent:
        token = self._hub.data / "join-token"
        name = site or self.name
        return Agent(name, self.folder, self.server, self._hub.control, token, rabbit, agent)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory, require_tool: Callable[[str], str]) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), require_tool("openssl"))


@pytest.fixture(scope="module")
def rabbits(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, require: Callable[[object, str], None]
) -> Iterator[list[Server]]:
    """Two servers, the second one without the event exchange, and with a bound on messages."""
    reason = missing()
    require(not reason, reason or "")
    folder = tmp_path_factory.mktemp("rabbitmq")
    mapper = PortMapper(folder)
    servers = [
        Server(ONE, folder / ONE, mapper, authority),
        Server(
            OTHER,
            folder / OTHER,
            mapper,
            authority,
            events=False,
            more=f"max_message_size = {LARGEST}\n",
        ),
    ]
    try:
        for server in servers:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.node.process.stop()
        mapper.process.stop()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon without faces, whose coordinator the agents join."""
    faces = [word for face in ("kafka", "amqp", "mqtt", "stare", "admin") for word in (f"--{face}", "off")]
    daemon = DaemonProcess(tmp_path_factory.mktemp("hub") / "data", [*faces, "--fabric", "127.0.0.1:0"])
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the agents' data. Agents of later tests are the same hosts: nothing is owed to hosts that
    never come back."""
    return tmp_path_factory.mktemp("agents")


@pytest.fixture
def sites(rabbits: list[Server], hub: DaemonProcess, data: Path) -> Iterator[list[Site]]:
    yield [Site(name, data, server, hub) for name, server in zip((ONE, OTHER), rabbits, strict=True)]
    for server in rabbits:
        server.disconnect()


@pytest.fixture
def start() -> Iterator[Callable[..., Agent]]:
    """Starts an agent, which ends with the test."""
    started: list[Agent] = []

    def begin(made: Agent, *, wait: bool = True) -> Agent:
        started.append(made)
        return made.start(wait=wait)

    yield begin
    for one in started:
        one.clean_up()
        print(one.log.read_text())
