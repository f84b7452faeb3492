"""A Kafka cluster that is followed: what leaves it while many hosts read, and a group that moves under load.

    python -m tests.network.follower --hosts 8 --groups 4 --megabytes 20 --moves 100

The cluster, the agent and each host with its daemon are in a network namespace of their own (root; Kafka's
jars are fetched by Maven). First all groups of all hosts read a topic at their own host, and the bytes that
have left the cluster's interface are compared with those that were produced. With `--direct` the same groups
then read at the cluster. Then one group moves between the cluster and the hosts while records are produced.

Exit code 1: a record was lost, or came twice; or more than 1.1 times what was produced has left the cluster.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from bench.peers.kafka import ensure_jars, run_tool
from bench.peers.kafka.broker import JVM, PROPERTIES
from bench.peers.kafka.jars import HERE, class_path
from bench.peers.kafka.tools import java, tool_command

from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link
from treecast.middleware.dataplane.lab.lab import Lab

MOST = 1.1  # what may leave the cluster, as a multiple of what was produced
SIZE = 1000  # bytes of a value, which do not compress
TOPIC, MOVED = "followed", "followed.moved"
PATIENCE = 300.0  # seconds until the run gives up
CLUSTER, AGENT, WAN = "cluster", "agent", "wan"
RATE = 200.0  # records a second, while the group moves
READ = 20  # records that the group reads at a place, at least
_FACES_OFF = [word for face in ("amqp", "mqtt", "stare", "admin") for word in (f"--{face}", "off")]
# Produces numbers until it has sent COUNT or SIGTERM comes, and prints how many it has sent.
_PRODUCE = """
import itertools, os, signal, sys, time
from kafka import KafkaProducer
bootstrap, topic, count, size, rate = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
ended = []
signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, batch_size=100_000)
begun = time.monotonic()
for number in itertools.count():
    if ended or number == count:
        break
    if rate and (ahead := number / rate - (time.monotonic() - begun)) > 0:
        time.sleep(ahead)
    value = b"%d:" % number
    producer.send(topic, value + os.urandom(max(0, size - len(value))), partition=number % 2)
producer.flush()
print(number)
"""
_FOR_EVER = -1


class Amiss(Exception):
    """The run cannot go on, or its counts do not close."""


def described(hosts: int) -> Description:
    names = [CLUSTER, AGENT, *(f"h{number}" for number in range(1, hosts + 1))]
    # By a relay, so that bytes at the cluster's interface are those of frames as on a wire.
    links = [Link((name, WAN), relay=name == CLUSTER) for name in names]
    return Description(hosts=dict.fromkeys(names, Host()), bridges={WAN: Bridge()}, links=tuple(links))


class Run:
    """The lab, with what was started in it."""

    def __init__(self, lab: Lab, folder: Path, hosts: int) -> None:
        self._lab = lab
        self._folder = folder
        self.hosts = [f"h{number}" for number in range(1, hosts + 1)]
        self.bootstrap = f"{lab.ipv4(CLUSTER)}:9092"
        self.places = {CLUSTER: self.bootstrap} | {host: f"{lab.ipv4(host)}:9092" for host in self.hosts}

    # --- what runs

    def start(self) -> None:
        """Starts the cluster with two topics, the daemons, and the agent; returns when it has both topics."""
        self._start_cluster()
        for topic in (TOPIC, MOVED):
            self._tool("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
        first = self.hosts[0]
        self._start_daemon(first)
        for host in self.hosts[1:]:
            join = ("--join", f"{self._lab.ipv4(first)}:7671", "--join-token", f"@{self._token}")
            self._start_daemon(host, *join)
        self._start_agent()

    @property
    def _token(self) -> Path:
        return self._folder / self.hosts[0] / "join-token"

    def _start_cluster(self) -> None:
        config, controller = self._folder / "server.properties", f"{self._lab.ipv4(CLUSTER)}:9093"
        listeners = f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}"
        properties = {
            **PROPERTIES,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self._folder / "kafka"),
            "group.initial.rebalance.delay.ms": "0",
        }
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run_tool("kafka-storage", "format", "--standalone", f"--cluster-id={cluster}", "-c", str(config))
        log4j = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        command = [java(), "-Xmx512M", *JVM, log4j, "-cp", class_path(), "kafka.Kafka", str(config)]
        with (self._folder / "kafka.log").open("ab") as log:
            self._lab.start(CLUSTER, *command, stdout=log, stderr=log)

    def _tool(self, name: str, *words: str) -> None:
        """Runs a tool of Kafka's at the cluster, until it succeeds."""
        command = tool_command(name, ("--bootstrap-server", self.bootstrap, *words))
        end = time.monotonic() + PATIENCE
        while (done := self._lab.run(CLUSTER, *command, check=False, timeout=PATIENCE)).returncode:
            if time.monotonic() > end:
                raise Amiss(done.stdout + done.stderr)

    def _treecast(self, host: str, *words: str) -> None:
        """Starts a command; returns when it says that it is ready."""
        with (self._folder / f"{host}.log").open("ab") as log:
            program = (sys.executable, "-m", "treecast.middleware.cli", *words)
            process = self._lab.start(host, *program, stderr=log)
        assert process.stdout is not None
        if not process.stdout.readline().startswith(b"ready "):
            raise Amiss((self._folder / f"{host}.log").read_text()[-2000:])

    def _start_daemon(self, host: str, *join: str) -> None:
        ip = self._lab.ipv4(host)
        addresses = ("--kafka", f"{ip}:9092", "--control", f"{ip}:7671", "--fabric", f"{ip}:7672")
        data = ("--data", str(self._folder / host), "--name", host)
        self._treecast(host, "up", *data, *addresses, *_FACES_OFF, *join)

    def _start_agent(self) -> None:
        config = self._folder / "agent.toml"
        config.write_text(
            f'[agent]\nname = "{AGENT}"\ndata = "{self._folder / AGENT}"\n'
            f'join = "{self._lab.ipv4(self.hosts[0])}:7671"\njoin_token = "@{self._token}"\n'
            f'fabric = "{self._lab.ipv4(AGENT)}:7672"\n\n'
            f'[kafka]\nbootstrap = ["{self.bootstrap}"]\ntopics = ["followed*"]\n'
        )
        self._treecast(AGENT, "agent", "kafka", "--config", str(config))
        end = time.monotonic() + PATIENCE
        while not {TOPIC, MOVED} <= self.status().get("topics", {}).keys():
            if time.monotonic() > end:
                raise Amiss("the agent does not follow the topics")
            time.sleep(0.2)

    def status(self) -> dict[str, Any]:
        program = (sys.executable, "-m", "treecast.middleware.cli", "agent", "status", "--json")
        answer = self._lab.run(AGENT, *program, check=False).stdout
        found: dict[str, Any] = json.loads(answer) if answer.startswith("{") else {}
        return found

    # --- loads

    def produce(self, topic: str, count: int, size: int, rate: float = 0) -> subprocess.Popen[bytes]:
        words = (self.bootstrap, topic, str(count), str(size), str(round(rate)))
        return self._lab.start(CLUSTER, sys.executable, "-c", _PRODUCE, *words)

    def reader(self, at: str, seen_from: str, topic: str, groups: str, count: int) -> subprocess.Popen[bytes]:
        words = (self.places[at], topic, groups, str(count))
        return self._lab.start(seen_from, sys.executable, "-m", "tests.network.follower_reader", *words)

    def left(self) -> int:
        """Returns the bytes that have left the cluster's host."""
        return self._lab.counters(CLUSTER)["tx_bytes"]


def numbers_of(process: subprocess.Popen[bytes]) -> dict[str, list[int]]:
    """Returns what each group of a reader has read. Raises Amiss."""
    out, _ = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise Amiss(f"a reader has failed with code {process.returncode}")
    found = [json.loads(line) for line in out.splitlines()]
    return {one["group"]: one["numbers"] for one in found}


def spread(run: Run, groups: int, count: int, *, direct: bool) -> float:
    """All groups read all records. Returns what has left the cluster, as a multiple of what was produced.
    Raises Amiss if a group has not read each once."""
    prefix = "direct" if direct else "local"
    before = run.left()
    readers = []
    for host in run.hosts:
        names = ",".join(f"{prefix}-{host}-{number}" for number in range(groups))
        readers.append(run.reader(CLUSTER if direct else host, host, TOPIC, names, count))
    if not direct and run.produce(TOPIC, count, SIZE).wait(PATIENCE):
        raise Amiss("the producer has failed")
    for reader in readers:
        for group, numbers in numbers_of(reader).items():
            if sorted(numbers) != list(range(count)):
                raise Amiss(
                    f"{group} has read {len(numbers)} records, {len(set(numbers))} different of {count}"
                )
    return (run.left() - before) / (count * SIZE)


def moves(run: Run, count: int, rng: random.Random) -> int:
    """Moves a group while records are produced; returns how many were produced. Raises Amiss unless it has
    read each once."""
    producer, found = run.produce(MOVED, _FOR_EVER, 20, RATE), list[int]()
    for number in range(1, count + 1):
        at = rng.choice(sorted(run.places))
        found += numbers_of(run.reader(at, at, MOVED, "moved", READ))["moved"]
        print(f"{number}: at {at}, {len(found)} records in all", flush=True)
    producer.send_signal(signal.SIGTERM)
    out, _ = producer.communicate(timeout=PATIENCE)
    produced, at = int(out), run.hosts[0]
    if len(found) < produced:
        found += numbers_of(run.reader(at, at, MOVED, "moved", produced - len(found)))["moved"]
    if sorted(found) != list(range(produced)):
        raise Amiss(f"{len(found)} records were read, {len(set(found))} different of {produced}")
    return produced


def run_all(given: argparse.Namespace) -> bool:
    ensure_jars()
    with tempfile.TemporaryDirectory(prefix="follower-") as folder, Lab.up(described(given.hosts)) as lab:
        run = Run(lab, Path(folder), given.hosts)
        run.start()
        count = max(1, round(given.megabytes * 1e6 / SIZE))
        times = spread(run, given.groups, count, direct=False)
        readers = given.hosts * given.groups
        print(
            f"{readers} groups at {given.hosts} hosts: {times:.3f} times what was produced left the cluster"
        )
        if given.direct:
            alone = spread(run, given.groups, count, direct=True)
            print(f"the same groups at the cluster: {alone:.1f} times", flush=True)
        produced = moves(run, given.moves, random.Random(given.seed))
        print(f"{given.moves} moves under load: {produced} records, each read once")
        return times <= MOST


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--groups", type=int, default=4, help="at each host")
    parser.add_argument("--megabytes", type=float, default=20.0, help="that are produced")
    parser.add_argument("--moves", type=int, default=100)
    parser.add_argument("--direct", action="store_true", help="also without the agent")
    parser.add_argument("--seed", type=int, default=1)
    try:
        return 0 if run_all(parser.parse_args()) else 1
    except Amiss as error:
        print(f"not as it should be: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
