"""Fixtures: two daemons that know nothing of each other, as two Kafka clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.clients.agents.kafka_bridge.clusters import BridgeAgent

from treecast.middleware.daemon.process import DaemonProcess

_FACES = [word for face in ("amqp", "mqtt", "stare", "admin") for word in (f"--{face}", "off")]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    daemons = {
        alias: DaemonProcess(tmp_path_factory.mktemp(alias) / "data", [*_FACES, "--kafka", "127.0.0.1:0"])
        for alias in ("lisbon", "oslo")
    }
    try:
        yield {alias: daemon.start().ready["kafka"] for alias, daemon in daemons.items()}
    finally:
        for daemon in daemons.values():
            if daemon.running:
                daemon.stop()
            print(daemon.clean_up())


@pytest.fixture
def start() -> Iterator[Callable[..., BridgeAgent]]:
    """Starts an agent, which ends with the test."""
    started: list[BridgeAgent] = []

    def begin(made: BridgeAgent, *, wait: bool = True) -> BridgeAgent:
        started.append(made)
        return made.start(wait=wait)

    yield begin
    for one in started:
        one.clean_up()
        said = one.log.read_text()
        print(said)
        assert "Traceback" not in said
