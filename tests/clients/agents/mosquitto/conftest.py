"""Fixtures of the Mosquitto agent's tests: two brokers and a daemon for a module, agents for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.peers.mosquitto import INSTALL, program
from tests.clients.agents.mosquitto.site import Broker, agent
from tests.clients.agents.process import AgentProcess
from tests.clients.mqtt.paho_client import Client

from treecast.middleware.daemon.process import DaemonProcess

ONE, OTHER = "lisbon", "oslo"
_FACES_OFF = [word for face in ("kafka", "amqp", "stare", "admin") for word in (f"--{face}", "off")]

Start = Callable[..., AgentProcess]


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, require: Callable[[object, str], None]
) -> Iterator[dict[str, Broker]]:
    require(program() is not None, INSTALL)
    folder = tmp_path_factory.mktemp("mosquitto")
    both = {name: Broker(folder / name) for name in (ONE, OTHER)}
    try:
        for broker in both.values():
            broker.start()
        yield both
    finally:
        for broker in both.values():
            broker.stop()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with the MQTT face, whose coordinator the agents join: a third site."""
    flags = [*_FACES_OFF, "--mqtt", "127.0.0.1:0", "--fabric", "127.0.0.1:0"]
    daemon = DaemonProcess(tmp_path_factory.mktemp("hub") / "data", flags)
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


@pytest.fixture
def start(brokers: dict[str, Broker], hub: DaemonProcess, data: Path) -> Iterator[Start]:
    """Starts the agent of a site, which ends with the test."""
    started: list[AgentProcess] = []

    def begin(
        site: str, topics: list[str], *, broker: Broker | None = None, wait: bool = True, **lines: str
    ) -> AgentProcess:
        token = hub.data / "join-token"
        made = agent(site, data, broker or brokers[site], hub.ready["control"], token, topics, **lines)
        started.append(made.start(wait=wait))
        if wait:
            made.until(lambda found: found["serving"], "the agent does not serve")
        return made

    yield begin
    for one in started:
        if one.process is not None and one.process.poll() is None:
            one.stop()
        one.clean_up()
        print(one.log.read_text())


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    """Clients that are closed with the test."""
    made: list[Client] = []
    yield made
    for one in made:
        one.close()
