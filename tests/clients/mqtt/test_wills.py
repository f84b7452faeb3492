"""Wills of lasting sessions, with mosquitto's own clients: they survive disconnects and kills of the
daemon.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.clients.mqtt.test_two_hosts import PATIENCE_S, Subscribed, at

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients


class Willing:
    """A client with a will and a persistent session."""

    def __init__(self, program: str, daemon: DaemonProcess, topic: str, delay: int = 0) -> None:
        will = ["--will-topic", topic, "--will-payload", "gone", "--will-qos", "1", "--will-retain"]
        if delay:
            will += ["-D", "will", "will-delay-interval", str(delay)]
        session = ["-i", f"willing-{topic}", "-c", "-x", "3600", "-t", "nothing", "-q", "1"]
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", program, *at(daemon), *session, *will, "-d"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("Subscribed"):
                return
        raise AssertionError("no SUBACK came")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def willing(require_tool: Callable[[str], str]) -> Iterator[Callable[..., Willing]]:
    made: list[Willing] = []

    def make(*arguments: Any) -> Willing:
        made.append(Willing(require_tool("mosquitto_sub"), *arguments))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def shown(program: str, daemon: DaemonProcess, topic: str) -> str:
    """Returns the messages published to the topic, or retained there."""
    command = [program, *at(daemon), "-t", topic, "-q", "1", "-C", "1", "-W", str(PATIENCE_S)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("killed", [False, True])
def test_a_will_outlives_its_daemon(
    start_daemon: Any,
    willing: Callable[..., Willing],
    require_tool: Callable[[str], str],
    killed: bool,
    delay: int,
) -> None:
    """The will of an absent client whose delay was running, and that of a connected client, are both
    published."""
    daemon = start_daemon("--kafka", "off", "--admin", "off", "--mqtt", "127.0.0.1:0")
    gone, here = willing(daemon, "will/gone", 2), willing(daemon, "will/here", delay)
    gone.kill()
    if killed:
        daemon.kill()
    else:
        daemon.stop()
    here.kill()
    daemon.start()
    for topic in ("will/gone", "will/here"):
        assert shown(require_tool("mosquitto_sub"), daemon, topic) == "gone\n"


def test_a_will_that_outlives_its_daemon_reaches_other_hosts(
    hosts: list[DaemonProcess], willing: Callable[..., Willing], require_tool: Callable[[str], str]
) -> None:
    subscriber = Subscribed(
        [require_tool("mosquitto_sub"), *at(hosts[0]), "-t", "will/far", "-q", "1", "-C", "1"]
    )
    client = willing(hosts[1], "will/far")
    hosts[1].pin_ports()
    hosts[1].kill()
    client.kill()
    hosts[1].start()
    assert subscriber.rest("will/far") == ["will/far 1 gone"]
