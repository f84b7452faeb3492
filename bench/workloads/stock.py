"""One stock client at a constant rate: `bench/java/Stock.java`, and the server's CPU time meanwhile."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

from bench.core.measure import (
    ACK_P50,
    ACK_P99,
    ACK_P999,
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_P999,
    LAG_P99,
    Metric,
    Values,
    Workload,
)
from bench.core.peer import Server
from bench.java import jars

CPU = Metric("server CPU", "µs/message", False)
CPU_SECONDS = Metric("server CPU, all of it", "s", False)
ACKNOWLEDGED = Metric("acknowledged", "messages/s", True)
RECEIVED = Metric("received by each", "messages/s", True)
COMMITS = Metric("commits", "/s", True)
_ACK = (ACK_P50, ACK_P99, ACK_P999)
_ARRIVAL = (DELIVERY_P50, DELIVERY_P99, DELIVERY_P999)
KEPT_UP = 0.98  # a side that reached less of the rate missed it
_MOST = 3.0  # times its length that a load may take
_STARTING = 120.0  # seconds for a virtual machine, its connections and the last answers


def started(command: Sequence[str], peer: Server, timeout: float) -> tuple[dict[str, Any], float]:
    """Runs a load. Returns its report, and the seconds of CPU that the whole tree of the server's processes
    took from `measuring` to the report.

    Raises RuntimeError with the load's own words if it ends without a report or takes over `timeout` s.
    """
    with tempfile.TemporaryFile("w+") as said:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as process:
            late = threading.Timer(timeout, process.kill)
            late.start()
            try:
                assert process.stdout is not None
                _until(process.stdout, "measuring")
                before = peer.cpu_seconds()
                line = process.stdout.readline()
                used = peer.cpu_seconds() - before
            finally:
                late.cancel()
                process.kill()
        said.seek(0)
        if not line.startswith("{"):
            raise RuntimeError(f"the stock client ended without a report: {line}{said.read()[-2000:]}")
    return json.loads(line), used


def _until(output: IO[str], word: str) -> None:
    for line in output:
        if line.strip() == word:
            return


@dataclass
class StockLoad(Workload[Server]):
    """`rate` messages a second of `size` bytes for `seconds`, after `warm_up` seconds that do not count.

    `client`: one of `bench.java.jars`. `targets`: the ratio to the peer that is asked, by metric.
    """

    client: str
    rate: int
    size: int = 1024
    subscriptions: int = 1
    seconds: float = 60
    warm_up: float = 30
    label: str = ""
    targets: Mapping[Metric, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = f"{self.size // 1024} KiB" if self.size % 1024 == 0 else f"{self.size} B"
        readers = "one subscription" if self.subscriptions == 1 else f"{self.subscriptions} subscriptions"
        self.name = f"{self.label or self.client} at {self.rate:,}/s, {size}, {readers}"

    def missing(self) -> str:
        tools = jars.missing_tools(self.client)
        return f"no {' and no '.join(tools)} on the PATH" if tools else ""

    def run(self, peer: Server, number: int) -> Values:
        command = jars.command(self.client, self.arguments(peer.address, f"stock-{number}"))
        found, used = started(command, peer, _MOST * (self.seconds + self.warm_up) + _STARTING)
        return self.values(found, used)

    def arguments(self, address: tuple[str, int], name: str) -> list[str]:
        """Returns the words for Stock.java, without the first."""
        numbers = (self.rate, self.size, self.seconds, self.warm_up, self.subscriptions)
        return [address[0], str(address[1]), name, *map(str, numbers)]

    def values(self, found: Mapping[str, Any], used: float) -> Values:
        """Returns the metrics of a report, with the targets of this load."""
        values: dict[Metric, float] = {
            CPU: 1e6 * used / found["messages"],
            CPU_SECONDS: used,
            **dict(zip(_ACK, found["ack"], strict=True)),
            **dict(zip(_ARRIVAL, found["arrival"], strict=True)),
            ACKNOWLEDGED: found["acknowledged"],
            RECEIVED: found["received"],
            LAG_P99: found["late"][1],
        }
        if found["commits"]:
            values[COMMITS] = found["commits"] / (self.seconds + self.warm_up)
        if found["refused commits"]:
            raise RuntimeError(f"{found['refused commits']} commits were refused")
        return {replace(metric, target=self.targets.get(metric)): value for metric, value in values.items()}

    def void(self, values: Values) -> str:
        """Returns which rate was missed, or an empty string."""
        reached = {metric.name: value for metric, value in values.items()}
        for metric in (ACKNOWLEDGED, RECEIVED):
            if reached[metric.name] < KEPT_UP * self.rate:
                return f"{metric.name} {reached[metric.name]:,.0f}/s of {self.rate:,}/s"
        return ""
