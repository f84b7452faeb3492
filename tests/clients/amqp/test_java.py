"""RabbitMQ's Java client and its load generator, PerfTest, unmodified."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from bench.peers.rabbitmq.jars import class_path, missing_tools, perf_test

from treecast.middleware.daemon.process import DaemonProcess

pytestmark = pytest.mark.clients

SOURCE = Path(__file__).resolve().parent / "java" / "Scenarios.java"
SHORT_LIVED = ("-Xmx128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SCENARIOS = 15
PATIENCE_S = 300


@pytest.fixture(scope="session")
def jars(require: Callable[[object, str], None]) -> str:
    """The class path of the client, without its log."""
    missing = missing_tools()
    require(not missing, f"{', '.join(missing)} missing, which RabbitMQ's Java client takes")
    return class_path(logging=False)


@pytest.fixture(scope="session")
def scenarios(
    jars: str, require_tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """The command that runs the compiled Scenarios.java."""
    folder = tmp_path_factory.mktemp("java")
    compiler = [require_tool("javac"), "-encoding", "UTF-8", "-cp", jars, "-d", str(folder), str(SOURCE)]
    done = subprocess.run(compiler, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ["java", *SHORT_LIVED, "-cp", f"{folder}:{jars}", "Scenarios"]


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stderr[-10000:])
    return done.stdout


def test_what_the_client_can_do(url: str, scenarios: list[str], name: Callable[[str], str]) -> None:
    lines = run([*scenarios, url, name("java")]).splitlines()
    assert [line for line in lines if not line.startswith("ok ")] == []
    assert len(lines) == SCENARIOS


def test_a_connection_recovers_after_a_kill(
    start_daemon: Callable[..., DaemonProcess], scenarios: list[str]
) -> None:
    daemon = start_daemon("--kafka", "off", "--mqtt", "off")
    url = f"amqp://guest:guest@{daemon.ready['amqp']}/%2F"
    client = subprocess.Popen(
        [*scenarios, url, "java", "recover"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        daemon.kill()
        daemon.restart()
        found, _ = client.communicate("\n", timeout=PATIENCE_S)
        assert found.splitlines() == ["to the durable queue", "to the exclusive queue"]
        assert client.returncode == 0
    finally:
        client.kill()
        client.wait()


def test_perf_test(url: str, jars: str, name: Callable[[str], str]) -> None:
    """Several queues, producers and consumers, with persistent messages, confirms and acknowledgements."""
    count = 2000
    pattern = [f"--queue-pattern={name('perf')}-%d", "--queue-pattern-from=1", "--queue-pattern-to=4"]
    sides = ["--producers=4", "--consumers=4", f"--pmessages={count}", f"--cmessages={count}"]
    safe = ["--flag=persistent", "--auto-delete=false", "--confirm=100", "--qos=50", "--multi-ack-every=10"]
    said = run(perf_test([f"--uri={url}", *pattern, *sides, *safe, "--size=100", "--id=queues"]))
    assert rates(said, "sending") > 0
    assert rates(said, "receiving") > 0


def test_perf_test_with_a_quorum_queue(url: str, jars: str, name: Callable[[str], str]) -> None:
    count = 2000
    sides = [f"--pmessages={count}", f"--cmessages={count}", f"--queue={name('perf')}", "--quorum-queue"]
    said = run(perf_test([f"--uri={url}", *sides, "--confirm=100", "--qos=100", "--multi-ack-every=10"]))
    assert rates(said, "receiving") > 0


def rates(said: str, what: str) -> int:
    """The average of PerfTest's summary."""
    found = re.search(rf"{what} rate avg: ([\d,]+) msg/s", said)
    assert found is not None, said
    return int(found[1].replace(",", ""))
