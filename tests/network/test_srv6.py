"""Three daemons on six SRv6 routers: Kafka topics travel by replication segments that the network controller
programs over P4Runtime, with one copy on each link of their trees."""

from __future__ import annotations

import importlib.util
import json
import select
import subprocess
import sys
import threading
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

PROGRAM = Path(__file__).resolve().parents[2] / "p4" / "srv6_replication.p4"
HOSTS = ("alpha", "beta", "gamma")
ROUTERS = ("r1", "r2", "r3", "r4", "r5", "r6")
# alpha is at r1, beta at r3, gamma at r6; two paths lead from r1 to r2, where the tree branches.
LINKS = (
    *(("alpha", "r1"), ("beta", "r3"), ("gamma", "r6")),
    *(("r1", "r2"), ("r2", "r3"), ("r2", "r5"), ("r5", "r6"), ("r1", "r4"), ("r4", "r5")),
)
BLOCK = "fcbb:bb00::"
TOPIC = "readings"
RECORD = b"x" * 1000
BATCH, MEASURED = 100, 1000
PATIENCE = 120.0  # seconds until a test gives up; nothing is asserted about it


def described(made: Lab) -> str:
    lines = [f"links = {json.dumps(LINKS)}", f'block = "{BLOCK}"', "packet_life = 0.1", "look = 0.5"]
    lines += ["[routers]", *[f'{name} = "{made.p4runtime(name)}"' for name in ROUTERS]]
    for host in HOSTS:
        lines += [
            f"[hosts.{host}]",
            f'control = "[{made.ipv6(host)}]:7671"',
            f'address = "{made.ipv6(host)}"',
        ]
        lines += [f'mac = "{made.interface(host).mac}"']
    return "\n".join(lines)


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], PATIENCE)[0], "nothing was printed"
    return process.stdout.readline().decode()


def way_to_sids(made: Lab, host: str) -> None:
    """Adds a route to the SIDs by any neighbour: a router accepts every frame."""
    other = next(one for one in HOSTS if one != host)
    made.run(host, "ip", "-6", "route", "add", f"{BLOCK}/32", "via", made.ipv6(other), "dev", "eth0")


def start_daemon(made: Lab, folder: Path, host: str, *more: str) -> None:
    ip = f"[{made.ipv6(host)}]"
    command = [sys.executable, "-m", "treecast.middleware.cli", "up", "--name", host]
    command += ["--data", str(folder / host), "--kafka", f"{ip}:9092", "--admin", "off", "--stare", "off"]
    command += ["--mqtt", "off", "--control", f"{ip}:7671", "--fabric", f"{ip}:7672"]
    command += ["--carrier", "srv6", *more]
    assert line(made.start(host, *command)).startswith("ready ")


def control(made: Lab, host: str) -> DaemonClient:
    return DaemonClient(f"unix:{made.folder / host / 'run' / 'control.sock'}")


def produce(made: Lab, count: int, first: int) -> None:
    def run() -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=f"[{made.ipv6('alpha')}]:9092")
        for number in range(first, first + count):
            producer.send(TOPIC, b"%d:" % number + RECORD)
        producer.flush(PATIENCE)
        producer.close()

    inside(made.namespace("alpha"), run)


def reader(made: Lab, host: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "treecast.middleware.cli", "consume", TOPIC, "--beginning", "--json"]
    command += ["--kafka", f"[{made.ipv6(host)}]:9092"]
    return made.start(host, *command)


def read(process: subprocess.Popen[bytes], count: int) -> list[int]:
    """Returns the next `count` numbers; an empty line, if no more come, fails the test."""
    assert process.stdout is not None
    given_up = threading.Timer(PATIENCE, process.kill)
    given_up.start()
    found = [int(json.loads(process.stdout.readline())["value"].partition(":")[0]) for _ in range(count)]
    given_up.cancel()
    return found


def hosts_by_trees(made: Lab) -> int:
    with control(made, "alpha") as client:
        return sum(
            account.carrier == "srv6" for stream in client.list_streams() for account in stream.accounts
        )


def received(made: Lab) -> dict[str, int]:
    return {host: made.counters(host)["rx_bytes"] for host in HOSTS}


def test_topics_travel_by_replication_segments(
    lab: StartLab, tmp_path: Path, require: Callable[[object, str], None]
) -> None:
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    made = lab(
        Description(
            hosts=dict.fromkeys(HOSTS, Host()),
            switches=dict.fromkeys(ROUTERS, Switch(str(PROGRAM))),
            links=tuple(Link(pair) for pair in LINKS),
        )
    )
    for host in HOSTS:
        way_to_sids(made, host)
    file = tmp_path / "segments.toml"
    file.write_text(described(made))
    token = f"@{tmp_path / 'alpha' / 'join-token'}"
    command = (sys.executable, "-m", "treecast.middleware.control.segments", str(file), "--token", token)
    controller = made.start("alpha", *command)
    assert line(controller) == "ready run=1\n"
    start_daemon(made, tmp_path, "alpha")
    join = f"[{made.ipv6('alpha')}]:7671"
    for host in HOSTS[1:]:
        start_daemon(made, tmp_path, host, "--join", join, "--join-token", token)
    with control(made, "alpha") as client:
        client.create_topic(TOPIC, 1, leaders=["alpha"])
    readers = [reader(made, host) for host in HOSTS[1:]]
    sent, end = 0, time.monotonic() + PATIENCE
    while hosts_by_trees(made) < 2 and time.monotonic() < end:
        produce(made, BATCH, sent)
        sent += BATCH
    assert hosts_by_trees(made) == 2, "the topic stayed on unicast"
    for one in readers:
        assert read(one, sent) == list(range(sent))
    before, gone = received(made), made.counters("alpha")["tx_bytes"]
    produce(made, MEASURED, sent)
    for one in readers:
        assert read(one, MEASURED) == list(range(sent, sent + MEASURED))
    published = MEASURED * len(RECORD)
    assert published < made.counters("alpha")["tx_bytes"] - gone < 1.6 * published
    for host in HOSTS[1:]:
        assert published < received(made)[host] - before[host] < 1.6 * published
