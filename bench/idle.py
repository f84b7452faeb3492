"""`python -m bench.idle`: what topics without news cost between hosts.

Hosts in network namespaces on one switch, a daemon on each; topics of one partition, led by all hosts in
turn; a librdkafka consumer on each host that reads all topics. Once everything rests, it counts packets at
the hosts' interfaces, and the daemons' processor time and memory. Needs root.

Asked: at most 20 packets a second that a host receives from each other one, all protocols together, and 3 %
of a core for each daemon. As in all comparisons, a run that begins at a load average of more than 1 is void.
"""

from __future__ import annotations

import contextlib
import json as json_format
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bench.core import machine
from bench.core.process import memory
from bench.core.quiet import PATIENCE, Quiet, reason
from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab, require_root
from treecast.middleware.evaluation.processes import cpu_seconds

PACKETS = 20.0  # a second and pair of hosts, asked for
CPU = 3.0  # per cent of a core and daemon, asked for
KAFKA, CONTROL, FABRIC = 9092, 7671, 7672
_START = 600.0  # seconds
_LOOK = 4.0  # seconds over which it looks whether all rests


def description(hosts: int) -> str:
    """Returns a lab of so many hosts on one switch."""
    names = [f"h{number}" for number in range(1, hosts + 1)]
    links = [f'[[links]]\nbetween = ["{name}", "lan"]' for name in names]
    return "\n".join([*(f"[hosts.{name}]" for name in names), "[bridges.lan]", *links])


class Site:
    """A daemon on each host; the first has the coordinator."""

    def __init__(self, lab: Lab, folder: Path, hosts: int, python: str) -> None:
        self._lab, self._folder, self._python = lab, folder, python
        self.hosts = [f"h{number}" for number in range(1, hosts + 1)]
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[subprocess.Popen[bytes]] = []

    def address(self, host: str) -> str:
        return f"{self._lab.ipv4(host)}:{KAFKA}"

    def start(self) -> None:
        """Starts the daemons, the first before all others. Returns when all are ready."""
        for host in self.hosts:
            self._start(host)

    def _start(self, host: str) -> None:
        ip, first = self._lab.ipv4(host), self.hosts[0]
        given = {
            "name": host,
            "data": str(self._folder / host),
            "kafka": self.address(host),
            "control": f"{ip}:{CONTROL}",
            "fabric": f"{ip}:{FABRIC}",
            **dict.fromkeys(("amqp", "mqtt", "stare", "admin"), "off"),
        }
        if host != first:
            given["join"] = f"{self._lab.ipv4(first)}:{CONTROL}"
            given["join-token"] = f"@{self._folder / first / 'join-token'}"
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        words += ["--rest-streams", "true"]
        with (self._folder / f"{host}.log").open("wb") as log:
            command = (self._python, "-m", "treecast.middleware.cli", "up", *words)
            process = self.daemons[host] = self._lab.start(host, *command, stderr=log)
        assert process.stdout is not None
        if not process.stdout.readline().startswith(b"ready "):
            raise RuntimeError(f"{host} does not start: {(self._folder / f'{host}.log').read_text()[-2000:]}")

    def fill(self, topics: int) -> list[str]:
        """Creates so many topics for each host, puts a record into each, and has all hosts read all."""
        names = [f"idle-{number}" for number in range(topics * len(self.hosts))]
        here = self.hosts[0]
        maker = self._lab.start(here, *self._client("make", here), stdin=subprocess.PIPE)
        maker.communicate("\n".join(names).encode(), timeout=_START)
        if maker.returncode:
            raise RuntimeError("the topics cannot be made")
        for host in self.hosts:
            reader = self._lab.start(host, *self._client("read", host), stdin=subprocess.PIPE)
            self._readers.append(reader)
            assert reader.stdin is not None
            reader.stdin.write("\n".join(names).encode())
            reader.stdin.close()
        for reader in self._readers:
            assert reader.stdout is not None
            if reader.stdout.readline() != b"read\n":
                raise RuntimeError("a reader has ended")
        return names

    def _client(self, what: str, host: str) -> tuple[str, ...]:
        return sys.executable, "-m", "bench.idle_clients", what, self.address(host)

    def received(self) -> dict[str, int]:
        """Returns the packets that each host has received."""
        return {host: self._lab.counters(host)["rx_packets"] for host in self.hosts}

    def sent(self) -> dict[str, int]:
        return {host: self._lab.counters(host)["tx_packets"] for host in self.hosts}

    def cpu(self) -> dict[str, float]:
        """Returns the seconds of a core that each daemon has used."""
        return {host: cpu_seconds([daemon.pid]) for host, daemon in self.daemons.items()}

    def resident(self) -> dict[str, float]:
        """Returns MB by host."""
        return {host: memory([daemon.pid]).resident / 1e6 for host, daemon in self.daemons.items()}

    def stop(self) -> None:
        """Ends all readers and daemons by their ids."""
        for process in (*self._readers, *reversed(self.daemons.values())):
            process.terminate()
        for process in (*self._readers, *self.daemons.values()):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
                continue
            process.kill()


@contextlib.contextmanager
def site(hosts: int, python: str, data: Path | None) -> Iterator[Site]:
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=data) as folder,
        Lab.up(parse(description(hosts), "the bench's lab")) as lab,
    ):
        made = Site(lab, Path(folder), hosts, python)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def rest(made: Site, seconds: float) -> None:
    """Returns once a host receives less than is asked for from each other one, after `seconds` at most."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = measure(made, min(_LOOK, seconds))
        if max(host["received from each"] for host in found.values()) < PACKETS:
            return


def measure(made: Site, seconds: float) -> dict[str, Any]:
    """Returns by host what it received and sent, its processor time and memory."""
    packets, out, cpu, begun = made.received(), made.sent(), made.cpu(), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - begun
    others = len(made.hosts) - 1
    later, out_later, cpu_later, resident = made.received(), made.sent(), made.cpu(), made.resident()
    return {
        host: {
            "received": (later[host] - packets[host]) / passed,
            "received from each": (later[host] - packets[host]) / passed / others,
            "sent": (out_later[host] - out[host]) / passed,
            "cpu": 100 * (cpu_later[host] - cpu[host]) / passed,
            "resident": resident[host],
        }
        for host in made.hosts
    }


def shown(found: dict[str, Any], hosts: int, topics: int) -> Table:
    table = Table(title=f"{hosts} hosts, {topics} topics led by each, all read everywhere, nothing published")
    for name in ("", "median", "most", "asked"):
        table.add_column(name, justify="left" if not name else "right")
    rows: Sequence[tuple[str, str, float | None]] = (
        ("received from each", "packets/s that a host receives from each other one", PACKETS),
        ("received", "packets/s that a host receives", None),
        ("cpu", "% of a core for a daemon", CPU),
        ("resident", "MB of a daemon", None),
    )
    for key, label, most in rows:
        values = [one[key] for one in found.values()]
        asked = "" if most is None else f"at most {most:g}"
        table.add_row(label, f"{statistics.median(values):.1f}", f"{max(values):.1f}", asked)
    return table


def _leave(number: int, _: object) -> None:
    sys.exit(128 + number)


def idle(
    hosts: Annotated[int, typer.Option(min=2, help="hosts, each with a daemon")] = 20,
    topics: Annotated[int, typer.Option(min=1, help="topics that each host leads")] = 200,
    seconds: Annotated[float, typer.Option(min=1, help="how long it counts")] = 60,
    settle: Annotated[
        float, typer.Option(min=0, help="seconds that it waits at most for everything to rest")
    ] = 60,
    patience: Annotated[
        float, typer.Option(min=0, help="seconds to wait for a load average of at most 1")
    ] = PATIENCE,
    quick: Annotated[
        bool, typer.Option("--quick", help="3 hosts with 10 topics, to see that it works")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the table")] = False,
    out: Annotated[Path, typer.Option(help="where bench-idle.json goes")] = Path("out"),
    treecast_python: Annotated[
        str, typer.Option(help="the Python whose treecast is measured")
    ] = sys.executable,
    data: Annotated[Path | None, typer.Option(help="where data directories are made")] = None,
) -> None:
    """Counts what topics without news cost between hosts: packets, processor time and memory."""
    console = Console(stderr=json, highlight=False)
    if quick:
        hosts, topics, seconds, patience = 3, 10, min(seconds, 4), 0
    require_root()
    signal.signal(signal.SIGTERM, _leave)  # as Ctrl-C does: daemons are stopped, and namespaces removed
    with site(hosts, treecast_python, data) as made:
        console.print(f"{hosts} daemons are ready")
        made.fill(topics)
        console.print(f"{topics * hosts} topics are read at all hosts")
        rest(made, settle)
        load = Quiet(patience).wait()
        found = measure(made, seconds)
    context = {"hosts": hosts, "topics": topics, "seconds": seconds, "machine": machine.describe()}
    document = {"comparison": "idle", **context, "load": load, "void": reason(load), "by host": found}
    out.mkdir(parents=True, exist_ok=True)
    (out / "bench-idle.json").write_text(json_format.dumps(document, indent=2) + "\n")
    if json:
        print(json_format.dumps(document))
    console.print(shown(found, hosts, topics))
    if why := reason(load):
        console.print(f"[yellow]void:[/yellow] {why}; packets are counted, and hold all the same")


if __name__ == "__main__":
    typer.run(idle)
