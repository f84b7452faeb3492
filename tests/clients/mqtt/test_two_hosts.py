"""Mosquitto's own clients at two daemons of one cluster: one subscribes at one daemon, the other publishes at
the other."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

PATIENCE_S = 60


def at(daemon: DaemonProcess) -> list[str]:
    host, port = daemon.address("mqtt")
    return ["-h", host, "-p", str(port), "-V", "mqttv5"]


class Subscribed:
    """A mosquitto_sub whose SUBACK has arrived."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            ["stdbuf", "-oL", *command, "-W", str(PATIENCE_S), "-d", "-F", "%t %q %p"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("Subscribed"):
                return
        raise AssertionError("no SUBACK came")

    def rest(self, prefix: str) -> list[str]:
        shown, _ = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0
        return [line for line in shown.splitlines() if line.startswith(prefix)]


@pytest.mark.parametrize("publisher", [0, 1])
def test_subscribed_at_one_host_and_published_at_the_other(
    hosts: list[DaemonProcess], require_tool: Callable[[str], str], publisher: int
) -> None:
    pub, sub = require_tool("mosquitto_pub"), require_tool("mosquitto_sub")
    topic = f"two/{publisher}"
    subscriber = Subscribed([sub, *at(hosts[1 - publisher]), "-t", f"{topic}/#", "-q", "2", "-C", "4"])
    where = at(hosts[publisher])
    for qos in (0, 1, 2):
        subprocess.run([pub, *where, "-t", f"{topic}/{qos}", "-q", str(qos), "-m", "hello"], check=True)
    big = b"y" * 300_000
    subprocess.run([pub, *where, "-t", f"{topic}/big", "-q", "1", "-s"], input=big, check=True)
    expected = [f"{topic}/{qos} {qos} hello" for qos in (0, 1, 2)]
    assert subscriber.rest(topic) == [*expected, f"{topic}/big 1 {big.decode()}"]


def test_a_session_that_lasts_gets_what_was_published_while_its_daemon_was_killed(
    hosts: list[DaemonProcess], require_tool: Callable[[str], str], tmp_path: Path
) -> None:
    pub, sub = require_tool("mosquitto_pub"), require_tool("mosquitto_sub")
    session = ["-i", "lasting", "-c", "-x", "3600", "-t", "kept/#", "-q", "2"]
    subprocess.run([sub, *at(hosts[1]), *session, "-E"], check=True, timeout=PATIENCE_S)
    hosts[1].pin_ports()
    hosts[1].kill()
    for number in range(5):
        subprocess.run([pub, *at(hosts[0]), "-t", f"kept/{number}", "-q", "2", "-m", str(number)], check=True)
    hosts[1].start()
    done = subprocess.run(
        [sub, *at(hosts[1]), *session, "-C", "5", "-W", str(PATIENCE_S), "-F", "%t %p"],
        capture_output=True,
        text=True,
        check=True,
        timeout=2 * PATIENCE_S,
    )
    assert done.stdout.splitlines() == [f"kept/{number} {number}" for number in range(5)]
