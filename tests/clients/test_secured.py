"""A secured cluster of real daemons: made, joined, seen on the wire, a host expelled, keys changed."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

from treecast.middleware.control.membership import add_arguments, certified
from treecast.middleware.control.trees.publishers import Daemons
from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess
from treecast.middleware.model.errors import TreecastError

pytestmark = [pytest.mark.clients, pytest.mark.slow]

FLAGS = ("--fabric", "127.0.0.1:0", "--amqp", "off", "--mqtt", "off", "--stare", "off")
PASSWORD = "a password of the administrator"  # nosec B105
LONG = 20.0  # seconds that something may take on a busy machine


class Cluster:
    """Three daemons on loopback, made by one command each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, DaemonProcess] = {}
        (folder / "password").write_text(PASSWORD + "\n")
        self.data = folder / "h1"
        self.run("init", "--secure", "--name", "h1", "--password-file", str(folder / "password"))
        self.start("h1")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return treecast(*words, "--data", str(self.data))

    def run(self, *words: str) -> str:
        done = self.command(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self, name: str, *flags: str) -> DaemonProcess:
        daemon = DaemonProcess(self.folder / name, ["--name", name, *FLAGS, *flags])
        self.daemons[name] = daemon
        return daemon.start()

    def join(self, name: str, token: str, *flags: str) -> DaemonProcess:
        file = self.folder / f"token-of-{name}"
        file.write_text(token)
        return self.start(name, "--join", self.daemons["h1"].control, "--join-token", f"@{file}", *flags)

    def close(self) -> None:
        for daemon in reversed(self.daemons.values()):
            if daemon.running:
                daemon.stop()
            daemon.clean_up()


def treecast(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "treecast.middleware.cli", *words]
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.close()


def eventually(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def log_in(daemon: DaemonProcess) -> dict[str, object]:
    return {
        "bootstrap_servers": daemon.kafka,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "admin",
        "sasl_plain_password": PASSWORD,
    }


def produce(daemon: DaemonProcess, values: list[bytes]) -> None:
    producer = KafkaProducer(**log_in(daemon))
    sent = [producer.send("orders", value) for value in values]
    for one in sent:
        one.get(LONG)
    producer.close()


def consume(daemon: DaemonProcess, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        "orders", **log_in(daemon), auto_offset_reset="earliest", consumer_timeout_ms=int(LONG * 1000)
    )
    found = [next(consumer).value for _ in range(count)]
    consumer.close()
    return found


def test_three_hosts_by_one_command_each(cluster: Cluster) -> None:
    """The second and third host also have the administrator, and all faces ask for a log-in."""
    first = cluster.daemons["h1"]
    second = cluster.join("h2", cluster.run("token", "create"))
    third = cluster.join("h3", cluster.run("token", "create", "--name", "h3", "--expires", "5m"))
    values = [b"%d" % number for number in range(50)]
    produce(first, values)
    assert consume(second, 50) == values == consume(third, 50)
    cluster.run("keys", "rotate")
    produce(third, values)
    assert consume(first, 100) == values * 2 == consume(second, 100)
    second.restart()
    assert consume(second, 100) == values * 2
    assert not (cluster.folder / "h2" / "join-token").exists()


def test_wrong_and_used_tokens_stay_out(cluster: Cluster) -> None:
    token = cluster.run("token", "create")
    cluster.join("h2", token)
    with pytest.raises(DaemonFailed, match="was used by host h2"):
        cluster.join("h3", token)
    wrong = token[:-8] + ("AAAAAAAA" if not token.endswith("AAAAAAAA") else "BBBBBBBB")
    with pytest.raises(DaemonFailed, match="damaged"):
        cluster.join("h3", wrong)
    with pytest.raises(DaemonFailed, match="join-token"):
        cluster.start("h4", "--join", cluster.daemons["h1"].control)
    refused = cluster.command("hosts", "expel", "h3")
    assert refused.returncode == 1
    assert "no host h3 holds a certificate" in refused.stderr


def test_an_expelled_host_stays_out(cluster: Cluster) -> None:
    """At the coordinator's host, at another host, after restarts of all of them."""
    second = cluster.join("h2", cluster.run("token", "create"))
    third = cluster.join("h3", cluster.run("token", "create"))
    produce(cluster.daemons["h1"], [b"before"])
    assert consume(second, 1) == [b"before"] == consume(third, 1)
    cluster.run("hosts", "expel", "h2")
    eventually(lambda: "host h2 was expelled" in second.log())
    eventually(lambda: "host h2 was expelled" in third.log())
    cluster.daemons["h1"].restart()
    second.restart()
    eventually(lambda: second.log().count("was expelled from this cluster") > 2)
    third.restart()
    produce(cluster.daemons["h1"], [b"after"])
    assert consume(third, 2) == [b"before", b"after"]
    assert consume(second, 1) == [b"before"]
    assert b"after" not in everything_below(cluster.folder / "h2")


def test_the_control_address_asks_for_a_certificate(cluster: Cluster) -> None:
    """Looking as well: by TCP, also on loopback. The Unix socket is for the host's own user."""
    second = cluster.join("h2", cluster.run("token", "create"))
    for address in (cluster.daemons["h1"].control, second.control):
        assert treecast("topics", "list", "--control", address).returncode == 1
        for host in ("h1", "h2"):
            trust = str(cluster.folder / host / "trust")
            named = treecast("topics", "create", f"by-{host}", "--control", address, TREECAST_TRUST=trust)
            assert named.returncode == 0 or "exists already" in named.stderr, named.stderr
    own = treecast("topics", "list", TREECAST_RUNTIME_DIR=str(second.runtime_dir))
    assert "by-h2" in own.stdout, own.stderr
    cluster.run("hosts", "expel", "h2")
    trust = str(cluster.folder / "h2" / "trust")
    after = treecast("topics", "list", "--control", cluster.daemons["h1"].control, TREECAST_TRUST=trust)
    assert after.returncode == 1


def test_plain_faces_for_other_machines_are_refused(cluster: Cluster) -> None:
    cluster.daemons["h1"].stop()
    with pytest.raises(DaemonFailed, match="over TLS only; use --kafka-tls"):
        cluster.start("h1", "--kafka", "0.0.0.0:0")  # refused before anything listens there


def test_a_secured_host_without_users_serves_nobody(cluster: Cluster) -> None:
    """Its file was lost: it says what to do. With a user, or without faces, it starts."""
    first = cluster.daemons["h1"]
    first.stop()
    users = cluster.data / "users.toml"
    users.rename(cluster.folder / "kept.toml")
    with pytest.raises(DaemonFailed, match=r"serves kafka to users only, and .*users\.toml has none"):
        first.start()
    first.flags += ["--kafka", "off"]
    first.start().stop()
    first.flags = first.flags[:-2]
    (cluster.folder / "kept.toml").rename(users)
    produce(first.start(), [b"one"])


def test_new_hosts_get_the_file_of_users_that_the_coordinator_uses(cluster: Cluster) -> None:
    """`--access-file` at either host, or none."""
    first = cluster.daemons["h1"]
    first.stop()
    first.clean_up()
    shared = cluster.folder / "shared.toml"
    (cluster.data / "users.toml").rename(shared)
    first = cluster.start("h1", "--access-file", str(shared))
    own = cluster.folder / "own.toml"
    second = cluster.join("h2", cluster.run("token", "create"), "--access-file", str(own))
    third = cluster.join("h3", cluster.run("token", "create"))
    assert own.read_text() == shared.read_text() == (cluster.folder / "h3" / "users.toml").read_text()
    produce(first, [b"one"])
    assert consume(second, 1) == [b"one"] == consume(third, 1)


def test_status_and_doctor_say_what_is_wrong_with_the_trust(cluster: Cluster) -> None:
    """At the host that is refused: why; everywhere: when certificates end."""
    second = cluster.join("h2", cluster.run("token", "create"))
    environment = {"TREECAST_RUNTIME_DIR": str(second.runtime_dir)}
    fine = treecast("doctor", **environment)
    assert "the certificate of this host ends on" in fine.stdout, fine.stdout
    assert "refuses" not in fine.stdout
    cluster.run("hosts", "expel", "h2")
    eventually(lambda: "the authority refuses this host" in treecast("status", **environment).stdout)
    doctor = treecast("doctor", **environment)
    assert doctor.returncode == 1
    assert "was expelled from this cluster" in doctor.stdout


def test_a_cluster_that_exists_becomes_a_secured_one(tmp_path: Path) -> None:
    """Its topics stay. Where it cannot be done, words say why and where; nothing is changed."""
    (tmp_path / "password").write_text(PASSWORD + "\n")
    daemons = {name: DaemonProcess(tmp_path / name, ["--name", name, *FLAGS]) for name in ("h1", "h2")}
    first, second = daemons.values()

    def init(name: str, *words: str) -> subprocess.CompletedProcess[str]:
        flags = ("--secure", "--name", name, "--password-file", str(tmp_path / "password"))
        return treecast("init", *flags, "--data", str(tmp_path / words[0] if words else tmp_path / name))

    try:
        first.start()
        joined = ("--join", first.control, "--join-token", f"@{first.data / 'join-token'}")
        second.flags += joined
        second.start()
        producer = KafkaProducer(bootstrap_servers=first.kafka)
        producer.send("orders", b"before").get(LONG)
        producer.close()
        running = init("h1")
        assert running.returncode == 1
        assert "is in use by another daemon" in running.stderr
        second.stop()
        first.stop()
        other = init("h2")
        assert other.returncode == 1
        assert "run `treecast init --secure` in the data directory of the daemon there" in other.stderr
        named = init("h9", "h1")
        assert "give --name h1" in named.stderr
        assert not (first.data / "trust").exists()
        made = init("h1")
        assert made.returncode == 0, made.stderr
        assert "is of a secured host already" in init("h1").stderr
        first.start()
        token = treecast("token", "create", "--data", str(first.data)).stdout.strip()
        (tmp_path / "once").write_text(token)
        second.flags = [*second.flags[: -len(joined)], "--join", first.control]
        second.flags += ["--join-token", f"@{tmp_path / 'once'}"]
        second.start()
        produce(first, [b"after"])
        assert consume(second, 2) == [b"before", b"after"]
    finally:
        for daemon in (second, first):
            if daemon.running:
                daemon.stop()
            daemon.clean_up()


AGENT = """
[agent]
name = "site"
data = "{data}"
join = "{join}"
join_token = "@{token}"
fabric = "127.0.0.1:0"
admin = "127.0.0.1:0"

[mosquitto]
address = "127.0.0.1:1"
topics = ["sensors/# both 1"]
"""


class AgentProcess:
    """`treecast agent mosquitto`, whose broker is away."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        words = ["-m", "treecast.middleware.cli", "agent", "mosquitto", "--config", str(self._config)]
        with self._config.with_suffix(".log").open("a") as log:
            self._process = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, text=True)

    def log(self) -> str:
        return self._config.with_suffix(".log").read_text()

    def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(LONG)


def test_an_agent_is_a_member(cluster: Cluster) -> None:
    """By a one-time token at its first start, and by its certificate from then on, until it is expelled."""
    first = cluster.daemons["h1"]
    token, config = cluster.folder / "once", cluster.folder / "agent.toml"
    token.write_text(cluster.run("token", "create", "--name", "site"))
    data = cluster.folder / "agent"
    config.write_text(AGENT.format(data=data, join=first.control, token=token))
    agent = AgentProcess(config)

    def connected() -> bool:
        found = treecast("status", "--json", TREECAST_RUNTIME_DIR=str(first.runtime_dir))
        hosts = json.loads(found.stdout)["hosts"]
        return any(one["name"] == "site" and one.get("channel", {}).get("connected") for one in hosts)

    agent.start()
    try:
        eventually(connected)
        assert "site" in cluster.run("hosts", "list")
        agent.stop()
        eventually(lambda: not connected())
        token.unlink()  # it has served
        agent.start()
        eventually(connected)
        cluster.run("hosts", "expel", "site")
        eventually(lambda: not connected())
        eventually(lambda: "was expelled from this cluster" in agent.log())
    finally:
        agent.stop()


def test_a_controller_is_a_member(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Daemons answer its certificate; without one it is refused, and after it was expelled."""
    first = cluster.daemons["h1"]
    token = cluster.folder / "once"
    token.write_text(cluster.run("token", "create", "--name", "trees"))
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    where = ["--data", str(cluster.folder / "trees"), "--join", first.control]

    async def asked(*words: str) -> str:
        """Returns what a daemon answers whose switches have no trees."""
        caplog.clear()
        async with certified(parser.parse_args(words)) as trust:
            assert await Daemons({"h1": first.control}, 10.0, trust=trust).observed() == {}
        return caplog.text

    answered, refused = "no trees are laid for this host", "no daemon answers"
    assert refused in asyncio.run(asked())
    joining = [*where, "--name", "trees", "--join-token", f"@{token}"]
    assert answered in asyncio.run(asked(*joining))
    assert answered in asyncio.run(asked(*where))
    cluster.run("hosts", "expel", "trees")
    assert refused in asyncio.run(asked(*where))
    with pytest.raises(TreecastError, match="needs --join, --name and --join-token"):
        asyncio.run(asked("--data", str(cluster.folder / "other")))


def everything_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
