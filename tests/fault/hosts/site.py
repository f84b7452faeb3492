"""A site: hosts on one switch in a lab, each with a daemon and with producers and consumers beside it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from treecast.middleware.daemon.process import parse_ready
from treecast.middleware.dataplane.lab import namespaces
from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab, RelayedLink

from .latency import Sample
from .ledger import Ledger

HERE = Path(__file__).parent
READY_S, STOP_S, ANSWER_S = 120.0, 60.0, 120.0
_BUSY = ("Deadline Exceeded", "did not answer within", "no coordinator answers", "TIMED_OUT", "timed out")
FABRIC, CONTROL, KAFKA, MQTT, AMQP = 7672, 7671, 9092, 1883, 5672
ADMIN = "127.0.0.1:7670"  # in each host's namespace


class Amiss(Exception):
    """Something did not happen in time, or a process ended by itself. The text states it, with the log."""


def description(
    hosts: Sequence[str],
    relayed: Sequence[str],
    relay: Mapping[str, str | float] | None = None,
    mtus: Mapping[str, int] | None = None,
) -> str:
    """Returns TOML of hosts on a switch with snooping. A link with a relay can be cut, and its bytes count as
    on a wire. `mtus`: of the links of some hosts."""
    lines = [f"[hosts.{host}]" for host in hosts] + ["[bridges.lan]", "snooping = true", "querier = true"]
    for host in hosts:
        lines += ["[[links]]", f'between = ["{host}", "lan"]']
        lines += ["relay = true"] if host in relayed else []
        lines += [f"mtu = {mtus[host]}"] if mtus and host in mtus else []
        lines += [f"{key} = {json.dumps(value)}" for key, value in (relay or {}).items()]
    return "\n".join(lines)


def zones_of(hosts: Sequence[str], count: int) -> dict[str, str]:
    """Returns the zone label of each host: `count` zones of consecutive hosts, as equal as possible."""
    return {host: f"zone{at * count // len(hosts) + 1}" for at, host in enumerate(hosts)}


def zoned(zones: Mapping[str, str]) -> str:
    """Returns TOML of a bridge per zone and a router without multicast between them.

    The router's interface `eth<n>` leads into the n-th zone.
    """
    labels = list(dict.fromkeys(zones.values()))
    lines = [f"[hosts.{host}]" for host in zones] + ["[routers.core]"]
    lines += [f"[bridges.{label}]" for label in labels]
    pairs = [(label, "core") for label in labels] + list(zones.items())
    for pair in pairs:
        lines += ["[[links]]", f"between = {json.dumps(pair)}"]
    return "\n".join(lines)


class Commands:
    """Runs `treecast` commands in a host's namespace, all in one process that the first command starts."""

    def __init__(self, site: Site, host: str) -> None:
        self._site = site
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def run(self, words: list[str]) -> tuple[int, str, str]:
        """Returns (exit code, standard output, standard error). Raises Amiss if the command does not end."""
        with self._lock:
            if (
                self._process is None or self._process.poll() is not None
            ):  # it ends with the thread that started it
                program = [self._site.python, str(HERE / "commands.py")]
                self._process = self._site.lab.start(self._host, *program, stdin=subprocess.PIPE)
            asked, said = self._process.stdin, self._process.stdout
            assert asked is not None
            assert said is not None
            asked.write(json.dumps(words).encode() + b"\n")
            asked.flush()
            if not select.select([said], [], [], ANSWER_S)[0]:
                self._process.kill()
                raise Amiss(f"treecast {' '.join(words)} at {self._host} does not end")
            line = said.readline()
        if not line:
            raise Amiss(f"treecast {' '.join(words)} at {self._host} ended without output")
        code, out, error = json.loads(line)
        return code, out, error


class HostDaemon:
    """One host's `treecast up` in its namespace. The first one holds the coordinator."""

    def __init__(self, site: Site, host: str, data: Path, flags: list[str]) -> None:
        self.site = site
        self.host = host
        self.data = data
        self.flags = flags
        self.ready: dict[str, str] = {}
        self.log_path = data.parent / f"{host}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._commands = Commands(site, host)

    def command(self) -> list[str]:
        address = self.site.lab.ipv4(self.host)
        words = [self.site.python, "-m", "treecast.middleware.cli", "up", "--name", self.host]
        words += ["--data", str(self.data), "--kafka", f"127.0.0.1:{KAFKA}", "--admin", ADMIN]
        words += ["--mqtt", self.mqtt if self.site.mqtt else "off"]
        words += ["--amqp", self.amqp if self.site.amqp else "off"]
        words += ["--control", f"{address}:{CONTROL}", "--fabric", f"{address}:{FABRIC}"]
        return [*words, *self.flags]

    def start(self) -> None:
        """Returns when it is ready. Raises Amiss with its log if it does not start."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = self.site.lab.start(self.host, *self.command(), stderr=log)

    def wait_ready(self) -> None:
        process = self.process
        assert process.stdout is not None
        deadline, line = time.monotonic() + READY_S, b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                break
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                break
            line += piece
        if not line.startswith(b"ready "):
            raise Amiss(f"{self.host} is not ready but says {line!r}; its log ends:\n{self.tail()}")
        self.ready = parse_ready(line.decode())

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "never started"
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{KAFKA}"

    @property
    def mqtt(self) -> str:
        return f"127.0.0.1:{MQTT}"

    @property
    def amqp(self) -> str:
        return f"127.0.0.1:{AMQP}"

    def metrics(self) -> dict[str, float]:
        """Returns the daemon's metrics by name with labels."""
        text = namespaces.inside(self.site.lab.namespace(self.host), _metrics)
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    def tail(self, size: int = 4000) -> str:
        return self.log_path.read_bytes()[-size:].decode(errors="replace") if self.log_path.exists() else ""

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Amiss(f"{self.host} did not end within {STOP_S:g} s:\n{self.tail()}") from None

    def treecast(self, *words: str) -> Any:
        """Returns the output of a `treecast ... --json` command in this host.

        On a busy machine a call may exceed the command's time-out; then it is run again.
        """
        deadline = time.monotonic() + ANSWER_S
        while True:
            code, out, error = self._commands.run([*words, "--json"])
            if code == 0:
                return json.loads(out)
            said = error or out
            if time.monotonic() > deadline or not any(word in said for word in _BUSY):
                raise Amiss(f"treecast {' '.join(words)} at {self.host}: {said}")
            time.sleep(0.5)


def _metrics() -> str:
    with urllib.request.urlopen(f"http://{ADMIN}/metrics", timeout=ANSWER_S) as answer:
        return bytes(answer.read()).decode()


class Worker:
    """A producer or consumer in a host's namespace: its last report, and its ledger at the end."""

    def __init__(self, site: Site, host: str, program: str, *arguments: object) -> None:
        self.site = site
        self.host = host
        self.said: dict[str, Any] = {}
        self.ledger: Ledger | None = None
        words = [sys.executable, str(HERE / program), *(str(argument) for argument in arguments)]
        self.process = site.lab.start(host, *words, stdin=subprocess.PIPE)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said = json.loads(line)
            if "ledger" in said:
                self.ledger = Ledger.from_json(said["ledger"])
            else:
                self._heard(said)

    def _heard(self, said: dict[str, Any]) -> None:
        self.said = said

    @property
    def _done(self) -> tuple[Any, Any]:
        """Returns its progress."""
        return self.said.get("acked"), self.said.get("read")

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def result(self, timeout: float) -> Ledger:
        """Returns its ledger once it has ended. Raises Amiss with its last report if it stalls for `timeout`.

        Its speed does not matter: that depends on the machine's other load.
        """
        done, deadline = self._done, time.monotonic() + timeout
        while self.process.poll() is None:
            if self._done != done:
                done, deadline = self._done, time.monotonic() + timeout
            if time.monotonic() > deadline:
                who = f"the {type(self).__name__} at {self.host}"
                raise Amiss(f"{who} made no progress for {timeout:g} s; it last said {self.said}")
            time.sleep(0.05)
        self._listener.join(5)
        if self.ledger is None:
            raise Amiss(f"the {type(self).__name__} at {self.host} ended with {self.process.returncode}")
        return self.ledger


class Producing(Worker):
    """`rate` in records/s over all partitions, 0: full speed. A batch waits for `wait_ms`, or for `batch`
    bytes."""

    def __init__(
        self,
        site: Site,
        host: str,
        topic: str,
        partitions: int,
        number: int,
        *,
        size: int = 1024,
        rate: float = 0.0,
        count: int = 2**62,
        wait_ms: int = 2,
        batch: int = 1_000_000,
    ) -> None:
        address = site.daemons[host].kafka
        limits = ("--size", size, "--rate", rate, "--count", count, "--wait-ms", wait_ms, "--batch", batch)
        super().__init__(site, host, "producer.py", address, topic, partitions, number, *limits)

    @property
    def acked(self) -> int:
        return int(self.said.get("acked", 0))


class Consuming(Worker):
    """`watched`: the number of a producer whose records are timed."""

    def __init__(
        self, site: Site, host: str, topic: str, partitions: int, watched: int | None = None
    ) -> None:
        self.topic = topic
        self.samples: list[Sample] = []
        more = () if watched is None else ("--watch", watched)
        super().__init__(site, host, "consumer.py", site.daemons[host].kafka, topic, partitions, *more)

    @property
    def read(self) -> int:
        return int(self.said.get("read", 0))

    def _heard(self, said: dict[str, Any]) -> None:
        super()._heard(said)
        self.samples += [(sent, ms) for sent, ms in said["samples"]]


class Site:
    """Made by `with Site(...)`: the lab, and a daemon in each host; the first holds the coordinator.

    `relayed`: the hosts whose links have relays; all hosts by default. `zones`: the number of zones with a
    router between them, on which no link has a relay; 0: one switch. `besides`: hosts without a daemon.
    """

    def __init__(
        self,
        folder: Path,
        hosts: int,
        *,
        relayed: Sequence[str] | None = None,
        relay: Mapping[str, str | float] | None = None,
        seed: int = 1,
        python: str = "",
        flags: list[str] | None = None,
        mqtt: bool = False,
        amqp: bool = False,
        zones: int = 0,
        besides: Sequence[str] = (),
        mtus: Mapping[str, int] | None = None,
    ) -> None:
        self.names = [f"h{number}" for number in range(1, hosts + 1)]
        self.python = python or sys.executable
        self.client_python = sys.executable
        self.mqtt = mqtt
        self.amqp = amqp
        self.daemons: dict[str, HostDaemon] = {}
        self._folder = folder
        self.zones = zones_of(self.names, zones) if zones else {}
        relayed = self.names if relayed is None else relayed
        links = description([*self.names, *besides], relayed, relay, mtus)
        links = zoned(self.zones) if zones else links
        self._description = parse(links, "the site")
        self._seed = seed
        self._flags = flags or []
        self._lab: Lab | None = None

    @property
    def lab(self) -> Lab:
        assert self._lab is not None
        return self._lab

    def __enter__(self) -> Site:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lab = Lab.up(self._description, seed=self._seed)
        try:
            self._start_daemons()
        except BaseException:
            self._lab.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in self.daemons.values():
            if daemon.running:
                daemon.process.kill()
        self.lab.down()

    def _start_daemons(self) -> None:
        first, *others = self.names
        self.daemons[first] = HostDaemon(self, first, self._folder / first, self._flags_of(first))
        self.daemons[first].start()
        token = self._folder / first / "join-token"
        self._join_all(others, ["--join", f"{self.lab.ipv4(first)}:{CONTROL}", "--join-token", f"@{token}"])

    def _join_all(self, hosts: Sequence[str], join: list[str]) -> None:
        """Starts daemons at the same time; returns when all are ready."""
        for host in hosts:
            self.daemons[host] = HostDaemon(self, host, self._folder / host, [*join, *self._flags_of(host)])
            self.daemons[host].launch()
        for host in hosts:
            self.daemons[host].wait_ready()

    def _flags_of(self, host: str) -> list[str]:
        return [*self._flags, "--zone", self.zones[host]] if self.zones else list(self._flags)

    def entered(self) -> dict[str, int]:
        """Returns the bytes that the router has sent into each zone."""
        labels = dict.fromkeys(self.zones.values())
        return {zone: self.lab.counters("core", f"eth{at}")["tx_bytes"] for at, zone in enumerate(labels)}

    def link(self, host: str) -> RelayedLink:
        return self.lab.link(host, "lan")

    def create_topic(self, name: str, partitions: int, leader: str, **config: str) -> None:
        """Creates a topic led by `leader`; returns when every host sees it."""
        words = ["topics", "create", name, "--partitions", str(partitions), "--leader", leader]
        for key, value in config.items():
            words += ["--config", f"{key.replace('_', '.')}={value}"]
        try:
            self.daemons[leader].treecast(*words)
        except Amiss as error:
            if "exists" not in str(error):  # the reply to an earlier attempt came too late
                raise
        for daemon in self.daemons.values():
            if daemon.running:
                wait_for(
                    lambda daemon=daemon: any(t["name"] == name for t in daemon.treecast("topics", "list")),
                    f"{daemon.host} to see topic {name}",
                )


def wait_for(condition: Callable[[], object], what: str, timeout: float = 60.0, every: float = 0.05) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise Amiss(f"waited {timeout:g} s in vain for {what}")
        time.sleep(every)


@contextlib.contextmanager
def workers(*all_of_them: Worker) -> Iterator[None]:
    """Ends the workers that still run."""
    try:
        yield
    finally:
        for worker in all_of_them:
            if worker.process.poll() is None:
                worker.process.kill()


__all__ = ["Amiss", "Consuming", "HostDaemon", "Producing", "Site", "wait_for", "workers"]
