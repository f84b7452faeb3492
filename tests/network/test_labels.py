"""Two daemons on five label switches: Kafka topics travel by label stacks over trees installed by P4Runtime.
Their operator, and the traffic itself, change the trees while records are in flight."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.dataplane.lab.description import Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside

kafka = pytest.importorskip("kafka")

PROGRAM = Path(__file__).resolve().parents[2] / "p4" / "virtual_trees.p4"
HOSTS = ("alpha", "beta")
SWITCHES = ("s1", "s2", "s3", "s4", "s5")
# A ring of five with a chord: alpha is at s1, beta at s3, and there are three paths between them.
LINKS = (
    *(("alpha", "s1"), ("beta", "s3")),
    *(("s1", "s2"), ("s2", "s3"), ("s3", "s4"), ("s4", "s5"), ("s5", "s1"), ("s1", "s4")),
)
TOPIC = "readings"
RECORD = b"x" * 1000
BATCH = 200
PATIENCE = 90.0  # seconds until a test gives up; nothing is asserted about it


def built(lab: StartLab) -> Lab:
    return lab(
        Description(
            hosts=dict.fromkeys(HOSTS, Host()),
            switches=dict.fromkeys(SWITCHES, Switch(str(PROGRAM))),
            links=tuple(Link(pair) for pair in LINKS),
        )
    )


def described(made: Lab, strategy: str, seed: int, adapt: float = 0.0) -> str:
    """Returns the tree manager's configuration; JSON's lists, strings and numbers are valid TOML."""
    lines = [f"links = {json.dumps(LINKS)}", f'strategy = "{strategy}"', f"seed = {seed}", "limit = 6"]
    lines += ["packet_life = 0.1", f"adapt = {adapt}", "[switches]"]
    lines += [f'{name} = "{made.p4runtime(name)}"' for name in SWITCHES]
    for host in HOSTS:
        lines += [f"[hosts.{host}]", f'control = "{made.ipv4(host)}:7671"']
        lines += [f'mac = "{made.interface(host).mac}"']
    return "\n".join(lines)


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE)[0], "nothing was printed"
    return process.stdout.readline().decode()


def start_daemon(made: Lab, folder: Path, host: str, *more: str) -> None:
    ip = made.ipv4(host)
    command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host]
    command += [
        "--data",
        str(folder / host),
        "--kafka",
        f"{ip}:9092",
        "--admin",
        "off",
        "--stare",
        "off",
        "--amqp",
        "off",
    ]
    command += ["--control", f"{ip}:7671", "--fabric", f"{ip}:7672", "--carrier", "labels", *more]
    assert line(made.start(host, *command)).startswith("ready ")


def control(made: Lab, host: str) -> DaemonClient:
    """Connects by the daemon's Unix socket, which has no network namespace."""
    return DaemonClient(f"unix:{made.folder / host / 'run' / 'control.sock'}")


def produce(made: Lab, host: str, count: int, first: int) -> None:
    def run() -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=f"{made.ipv4(host)}:9092")
        for number in range(first, first + count):
            producer.send(TOPIC, b"%d:" % number + RECORD)
        producer.flush(PATIENCE)
        producer.close()

    inside(made.namespace(host), run)


def consume(made: Lab, host: str, count: int) -> list[int]:
    def run() -> list[int]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=f"{made.ipv4(host)}:9092", auto_offset_reset="earliest", group_id=None
        )
        consumer.assign([kafka.TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        found: list[int] = []
        end = time.monotonic() + PATIENCE
        while len(found) < count and time.monotonic() < end:
            for records in consumer.poll(500).values():
                found += [int(record.value.partition(b":")[0]) for record in records]
        consumer.close()
        return found

    return inside(made.namespace(host), run)


def by_labels(made: Lab) -> int:
    """Returns the live packets that alpha's stream has sent by labels."""
    with control(made, "alpha") as client:
        return sum(
            sent.packets
            for stream in client.list_streams()
            for sent in stream.sent
            if sent.carrier == "labels" and sent.purpose == "data"
        )


def follow(made: Lab) -> subprocess.Popen[bytes]:
    """Starts a reader at beta, so that beta holds a replica."""
    command = [sys.executable, "-m", "treecast.middleware.cli", "consume", TOPIC]
    command += ["--kafka", f"{made.ipv4('beta')}:9092"]
    return made.start("beta", *command, stdout=subprocess.DEVNULL)


def test_topics_travel_by_labels(
    lab: StartLab, tmp_path: Path, require: Callable[[object, str], None]
) -> None:
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    made = built(lab)
    file = tmp_path / "trees.toml"
    # The daemons reach each other by addresses that the manager must write first, so it has no publisher to
    # tell yet.
    file.write_text(described(made, "broadcast", 1).replace("control", "# control"))
    first = made.start(
        "alpha", sys.executable, "-m", "treecast.middleware.control.trees", str(file), "--once"
    )
    assert line(first).startswith("ready ")
    first.wait(PATIENCE)
    start_daemon(made, tmp_path, "alpha")
    token = f"@{tmp_path / 'alpha' / 'join-token'}"
    start_daemon(made, tmp_path, "beta", "--join", f"{made.ipv4('alpha')}:7671", "--join-token", token)
    file.write_text(described(made, "broadcast", 1))
    trees = ("-m", "treecast.middleware.control.trees", str(file), "--token", token)
    manager = made.start("alpha", sys.executable, *trees)
    assert line(manager).startswith("ready ")
    with control(made, "alpha") as client:
        client.create_topic(TOPIC, 1, leaders=["alpha"])
    follow(made)
    sent = 0
    end = time.monotonic() + PATIENCE
    while not by_labels(made) and time.monotonic() < end:
        produce(made, "alpha", BATCH, sent)
        sent += BATCH
    assert by_labels(made), "the topic stayed on unicast"
    with control(made, "alpha") as client:  # the manager would learn from this
        assert [tuple(one.hosts) for one in client.list_receiver_sets()] == [("beta",)]
    file.write_text(described(made, "random", 7))
    os.kill(manager.pid, signal.SIGHUP)
    produce(made, "alpha", BATCH, sent)
    sent += BATCH
    assert line(manager).startswith("ready ")
    before = by_labels(made)
    produce(made, "alpha", BATCH, sent)
    sent += BATCH
    assert by_labels(made) > before
    # Without trees three hops lead to beta. The manager observes alpha's traffic and makes a tree of it.
    file.write_text(described(made, "hops", 1, adapt=0.5))
    os.kill(manager.pid, signal.SIGHUP)
    assert "trees=0" in line(manager)
    assert manager.stdout is not None
    end = time.monotonic() + PATIENCE
    while not select.select([manager.stdout], [], [], 0)[0] and time.monotonic() < end:
        produce(made, "alpha", BATCH, sent)
        sent += BATCH
    assert "trees=1" in line(manager)
    produce(made, "alpha", BATCH, sent)
    sent += BATCH
    assert consume(made, "beta", sent) == list(range(sent))
