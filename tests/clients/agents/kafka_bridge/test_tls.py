"""The bridge over TLS: one cluster asks for a client's certificate, and the other one has none."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.agents.authority import Authority
from tests.clients.agents.kafka_bridge.clusters import BridgeAgent, records, way, write

from treecast.middleware.daemon.process import DaemonProcess

_FACES = [word for face in ("amqp", "mqtt", "stare", "admin") for word in (f"--{face}", "off")]
COUNT = 200


@pytest.fixture
def secured(tmp_path: Path, authority: Authority) -> Iterator[DaemonProcess]:
    """A daemon whose Kafka face is there in the clear, for the test, and over TLS, for the agent."""
    flags = [*_FACES, "--kafka", "127.0.0.1:0", "--kafka-tls", "127.0.0.1:0"]
    flags += ["--kafka-tls-certificate", str(authority.server), "--kafka-tls-authority", str(authority.ca)]
    daemon = DaemonProcess(tmp_path / "secured", flags)
    try:
        yield daemon.start()
    finally:
        if daemon.running:
            daemon.stop()
        print(daemon.clean_up())


def test_topics_cross_both_ways_over_tls(
    secured: DaemonProcess,
    clusters: dict[str, str],
    authority: Authority,
    start: Callable[..., BridgeAgent],
    tmp_path: Path,
) -> None:
    both = {"inside": secured.ready["kafka-tls"], "outside": clusters["oslo"]}
    log_in = f'tls = true\ntls_ca = "{authority.ca}"\ntls_certificate = "{authority.client}"\n'
    ways = way("inside", "outside", "orders*") + way("outside", "inside", "bills*")
    write(secured.ready["kafka"], "orders", [b"%d" % number for number in range(COUNT)])
    write(clusters["oslo"], "bills", [b"%d" % number for number in range(COUNT)])
    agent = start(BridgeAgent("tls", tmp_path, both, ways, inside=log_in))
    for bootstrap, topic in ((clusters["oslo"], "inside.orders"), (secured.ready["kafka"], "outside.bills")):
        found = [one.value for one in records(bootstrap, topic, COUNT)]
        assert found == [b"%d" % number for number in range(COUNT)]
    doctor = [*agent.command()[:3], "agent", "doctor", "--config", str(agent.config)]
    done = subprocess.run(doctor, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    agent.config.write_text(agent.config.read_text().replace("tls = true", "tls = false"))
    done = subprocess.run(doctor, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    assert "inside" in done.stdout
