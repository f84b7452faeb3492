"""A bridge of a real Mosquitto to the daemon, with Mosquitto's defaults: notifications and `try_private`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from bench.core.ports import free_port
from tests.clients.mqtt.paho_client import PATIENCE_S, Client

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients


@contextmanager
def mosquitto(program: str, config: Path, remote: str, version: str) -> Iterator[int]:
    """Runs a broker whose `l/#` is the `VERSION/#` of the remote one. Returns its port."""
    port = free_port()
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\n"
        f"connection tree\naddress {remote}\nremote_clientid {version}\nbridge_protocol_version {version}\n"
        f"topic # both 1 l/ {version}/\n"
    )
    broker = subprocess.Popen([program, "-c", str(config)])
    try:
        yield port
    finally:
        broker.terminate()
        broker.wait(PATIENCE_S)


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
def test_a_bridge_with_mosquittos_defaults(
    mqtt: DaemonProcess, require_tool: Callable[[str], str], tmp_path: Path, version: str
) -> None:
    remote = ":".join(map(str, mqtt.address("mqtt")))
    here, there = Client(f"here {version}", paho.MQTTv5), Client(f"there {version}", paho.MQTTv5)
    here.open(*mqtt.address("mqtt"))
    here.subscribe(f"$SYS/broker/connection/{version}/state")
    with mosquitto(require_tool("mosquitto"), tmp_path / "conf", remote, version) as port:
        assert here.next().payload == b"1"
        there.open("127.0.0.1", port)
        here.subscribe(f"{version}/#", 1)
        there.subscribe("l/#", 1)
        there.publish("l/t", b"out", 1)
        assert here.take(1) == [(f"{version}/t", b"out", 1)]
        here.publish(f"{version}/t", b"in", 1, retain=True)
        assert there.take(2) == [("l/t", b"out", 1), ("l/t", b"in", 1)]  # no third
        late = Client(f"late {version}", paho.MQTTv5)
        late.open("127.0.0.1", port)
        late.subscribe("l/t")
        assert late.next().retain
        late.close()
        there.close()
    assert [one.payload for one in (here.next(), here.next())] == [
        b"in",
        b"0",
    ]  # its own, and the bridge's will
    here.close()
