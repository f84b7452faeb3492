"""RabbitMQ's own load tool, PerfTest, with a Java client at both ends: what a real client gets.

Its jars come from Maven (bench/peers/rabbitmq/pom.xml), or from a class path that is given, such as a build
of its sources.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from bench.chain.amqp import PASSWORD, USER, Client
from bench.core.measure import CLIENT_THROUGHPUT, DELIVERY_P50, DELIVERY_P99, Metric, Values, Workload
from bench.core.peer import Server
from bench.peers.rabbitmq.jars import JARS
from bench.workloads.amqp import EXCHANGE, size_text
from bench.workloads.amqp_load import prepare_queues

PROGRAM = "com.rabbitmq.perf.PerfTest"
UNCONFIRMED = PREFETCH = 1_000
CLIENT_CPU = Metric("server CPU", "µs/message", False)
CLIENT_P50 = Metric("PerfTest's latency p50", DELIVERY_P50.unit, False)
CLIENT_P99 = Metric("PerfTest's latency p99", DELIVERY_P99.unit, False)

_RATE = re.compile(r"receiving rate avg: ([\d,]+) msg/s")
_LATENCY = re.compile(r"^id: \S+ consumer latency min/median/75th/95th/99th(?:/max)? (\S+) (.s)$", re.M)
_UNITS = {"µs": 1e-3, "us": 1e-3, "ms": 1.0}


@dataclass(frozen=True)
class Summary:
    """Messages a second that were received, and milliseconds."""

    rate: float
    p50: float
    p99: float


def parse(output: str) -> Summary:
    """Reads what PerfTest prints at its end. Raises ValueError if it is not there."""
    rate, latency = _RATE.search(output), _LATENCY.search(output)
    if rate is None or latency is None:
        raise ValueError(f"PerfTest printed no summary: {output[-2000:]!r}")
    values = [float(value) * _UNITS[latency[2]] for value in latency[1].split("/")]
    return Summary(float(rate[1].replace(",", "")), values[1], values[4])


@dataclass
class PerfTest(Workload[Server]):
    """One producer and one consumer of a durable queue for `seconds`. `class_path`: instead of Maven's
    jars."""

    seconds: float
    persistent: bool
    size: int = 100
    class_path: str = ""

    def __post_init__(self) -> None:
        kind = "confirms and acks" if self.persistent else "auto-ack"
        self.name = f"PerfTest, {kind}, {size_text(self.size)}, one queue"

    def missing(self) -> str:
        if shutil.which("java") is None:
            return "no java on the PATH"
        if self.class_path:
            return ""
        try:
            JARS.ensure()
        except RuntimeError as error:
            return str(error)
        return ""

    def run(self, peer: Server, number: int) -> Values:
        queue = f"{EXCHANGE}-perf"
        client = Client(peer.address)
        prepare_queues(client, {"exchange": EXCHANGE, "kind": "direct", "queues": [queue]})
        before = peer.cpu_seconds()
        found = parse(self._run(self.arguments(peer.address, queue)))
        used = peer.cpu_seconds() - before
        client.release()[0].close()
        return {
            CLIENT_THROUGHPUT: found.rate,
            CLIENT_P50: found.p50,
            CLIENT_P99: found.p99,
            CLIENT_CPU: 1e6 * used / (found.rate * self.seconds),
        }

    def arguments(self, address: tuple[str, int], queue: str) -> list[str]:
        """Returns PerfTest's options: the queue is declared already."""
        uri = f"amqp://{USER}:{PASSWORD}@{address[0]}:{address[1]}"
        common = ["-h", uri, "-z", str(round(self.seconds)), "-s", str(self.size), "-x", "1", "-y", "1"]
        common += ["-p", "-u", queue, "-e", EXCHANGE, "-k", queue]
        if self.persistent:
            return [*common, "-f", "persistent", "-c", str(UNCONFIRMED), "-q", str(PREFETCH)]
        return [*common, "-a"]

    def _run(self, arguments: Sequence[str]) -> str:
        path = self.class_path or ":".join(map(str, JARS.ensure()))
        done = subprocess.run(
            ["java", "-cp", path, PROGRAM, *arguments],
            capture_output=True,
            check=False,
            text=True,
            timeout=self.seconds + 60,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"PerfTest failed ({done.returncode}): {done.stdout[-1500:]}{done.stderr[-1500:]}"
            )
        return done.stdout


def loads(seconds: float, class_path: str) -> list[PerfTest]:
    return [PerfTest(max(seconds, 1.0), persistent, 100, class_path) for persistent in (False, True)]
