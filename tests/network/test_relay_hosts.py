"""Three daemons in two zones without multicast: Kafka topics cross to the other zone once."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.network.conftest import StartLab

from treecast.middleware.api.daemon_client import DaemonClient
from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link, Router
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside

kafka = pytest.importorskip("kafka")

ZONES = {"alpha": "west", "beta": "east/1", "gamma": "east/1"}
LANS = {"alpha": "lanw", "beta": "lane", "gamma": "lane"}
TOPIC = "readings"
RECORD = b"x" * 1000
BATCH, MEASURED = 200, 3000
PATIENCE = 90.0  # seconds until a test gives up; nothing is asserted about it


def start_daemon(made: Lab, folder: Path, host: str, *more: str) -> None:
    ip = made.ipv4(host)
    command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host]
    command += ["--data", str(folder / host), "--kafka", f"{ip}:9092", "--admin", "off", "--stare", "off"]
    command += ["--mqtt", "off", "--control", f"{ip}:7671", "--fabric", f"{ip}:7672"]
    command += ["--carrier", "relay", "--zone", ZONES[host], *more]
    started = made.start(host, *command)
    assert started.stdout is not None
    assert select.select([started.stdout], [], [], PATIENCE)[0], "nothing was printed"
    assert started.stdout.readline().decode().startswith("ready ")


def produce(made: Lab, count: int, first: int) -> None:
    def run() -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=f"{made.ipv4('alpha')}:9092")
        for number in range(first, first + count):
            producer.send(TOPIC, b"%d:" % number + RECORD)
        producer.flush(PATIENCE)
        producer.close()

    inside(made.namespace("alpha"), run)


def reader(made: Lab, host: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "treecast.middleware.cli", "consume", TOPIC, "--beginning", "--json"]
    command += ["--kafka", f"{made.ipv4(host)}:9092"]
    return made.start(host, *command)


def read(process: subprocess.Popen[bytes], count: int) -> list[int]:
    assert process.stdout is not None
    found: list[int] = []
    given_up = threading.Timer(PATIENCE, process.kill)  # readline then returns an empty line
    given_up.start()
    while len(found) < count:
        value = json.loads(process.stdout.readline())["value"]
        found.append(int(value.partition(":")[0]))
    given_up.cancel()
    return found


def hosts_by_relay(made: Lab) -> int:
    """Returns the number of hosts that get alpha's stream by the relay carrier."""
    with DaemonClient(f"unix:{made.folder / 'alpha' / 'run' / 'control.sock'}") as client:
        return sum(
            account.carrier == "relay" for stream in client.list_streams() for account in stream.accounts
        )


def test_a_topic_crosses_to_the_other_zone_once(lab: StartLab, tmp_path: Path) -> None:
    made = lab(
        Description(
            hosts=dict.fromkeys(ZONES, Host()),
            bridges=dict.fromkeys(LANS.values(), Bridge()),
            routers={"core": Router()},
            links=(
                *(Link((lan, "core")) for lan in ("lanw", "lane")),
                *(Link(pair) for pair in LANS.items()),
            ),
        )
    )
    start_daemon(made, tmp_path, "alpha")
    token = f"@{tmp_path / 'alpha' / 'join-token'}"
    for host in ("beta", "gamma"):
        start_daemon(made, tmp_path, host, "--join", f"{made.ipv4('alpha')}:7671", "--join-token", token)
    with DaemonClient(f"unix:{made.folder / 'alpha' / 'run' / 'control.sock'}") as client:
        client.create_topic(TOPIC, 1, leaders=["alpha"])
    readers = [reader(made, host) for host in ("beta", "gamma")]
    sent, end = 0, time.monotonic() + PATIENCE
    while hosts_by_relay(made) < 2:
        assert time.monotonic() < end, "the stream stays on unicast"
        produce(made, BATCH, sent)
        sent += BATCH
    for one in readers:
        assert read(one, sent) == list(range(sent))
    before = made.counters("core", "eth1")["tx_bytes"]
    produce(made, MEASURED, sent)
    for one in readers:
        assert read(one, MEASURED) == list(range(sent, sent + MEASURED))
    crossed = made.counters("core", "eth1")["tx_bytes"] - before
    assert MEASURED * len(RECORD) < crossed < 1.6 * MEASURED * len(RECORD)
