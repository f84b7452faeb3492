"""Loads of the AMQP comparison, by one process with raw frames (`amqp_load`).

Two runs precede a throughput run: a short one that compares each received byte with the sent one, and one
that warms up and determines how many messages fill the measured time. So a load takes as long for a slow
server as for a fast one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.core.load import LoadRun, run_load
from bench.core.measure import (
    DELIVERY_P50,
    DELIVERY_P99,
    DELIVERY_WINDOW_P99,
    LAG_P99,
    LAG_WINDOW_P99,
    REACHED,
    Metric,
    Values,
    Workload,
)
from bench.core.peer import Server

COMMAND = (sys.executable, "-m", "bench.workloads.amqp_load")
EXCHANGE = "bench"
CHECKED = 5_000  # messages of the run that checks all bytes
SUSTAINED_P99 = 0.1  # seconds
SUSTAINER = "RabbitMQ"
CPU = Metric("server CPU", "µs/message", False, 1 / 3)
CPU_UNASKED = Metric("server CPU", "µs/message", False)
RESIDENT = Metric("resident, with the queue", "MiB", False, 1.0)
GROWTH = Metric("of it for the queue", "MiB", False)
BYTES_AHEAD = 4 << 20  # of bodies, on their way with automatic acknowledgement
AHEAD = 5_000  # persistent messages that are not confirmed or not consumed
PREFETCH = 5_000
QUEUED = 1_000_000


def size_text(size: int) -> str:
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def order_of(peer: Server, load: Any) -> dict[str, Any]:
    """Returns what the load process needs to know of a peer and of a load."""
    hosts = getattr(peer, "far", None)
    count = load.queues
    return {
        "host": peer.address[0],
        "port": peer.address[1],
        "far": list(hosts or peer.address),
        "exchange": EXCHANGE,
        "kind": "fanout" if hosts else "direct",
        "queues": [EXCHANGE if hosts else f"{EXCHANGE}-{number}" for number in range(count)],
        "size": load.size,
        "persistent": load.persistent,
        "prefetch": PREFETCH if load.persistent else 0,
        "window": AHEAD // count if load.persistent else BYTES_AHEAD // max(load.size, 200) // count,
        "consumes": True,
        "check": False,
    }


@dataclass
class AmqpThroughput(Workload[Server]):
    """`seconds`: of the measured run. `asked`: how many times the other's rate. `persistent`: confirmed
    once on disk, and acknowledged by the consumer; otherwise transient with automatic acknowledgement.
    `stream`: through stream queues, whose consumers start at the end.
    """

    seconds: float
    asked: float | None
    size: int = 100
    persistent: bool = False
    queues: int = 1
    stream: bool = False

    floor = True

    def __post_init__(self) -> None:
        kind = "confirms and acks" if self.persistent else "auto-ack"
        what = "stream" if self.stream else "queue"
        queues = f"one {what}" if self.queues == 1 else f"{self.queues} {what}s"
        self.name = f"{kind}, {size_text(self.size)}, {queues}"
        self.metric = Metric("delivered", "messages/s", True, self.asked)

    def run(self, peer: Server, number: int) -> Values:
        first = self._load(peer, CHECKED, check=True)
        warm = self._load(peer, self._count(first, self.seconds / 4))
        run = self._load(peer, self._count(warm, self.seconds))
        cpu = CPU_UNASKED if self.stream else CPU  # nothing is asked of streams
        return {self.metric: run.result["records"] / run.result["seconds"], cpu: run.cpu_per_record}

    def _count(self, before: LoadRun, seconds: float) -> int:
        """Returns the number of messages that fill `seconds` at the rate of an earlier run."""
        return max(CHECKED, int(before.result["records"] / before.result["seconds"] * seconds))

    def _load(self, peer: Server, messages: int, *, check: bool = False) -> LoadRun:
        order = {**order_of(peer, self), "messages": messages, "check": check}
        if self.stream:
            names = [f"{name}-stream" for name in order["queues"]]
            order |= {"queues": names, "arguments": {"x-queue-type": "stream"}}
        return run_load(peer, order, COMMAND)


@dataclass
class AmqpLatency(Workload[Server]):
    """A fixed rate, one publisher, one queue. `sustained`: `sustainer` just keeps up with it."""

    rate: int
    seconds: float
    size: int = 100
    persistent: bool = False
    sustained: bool = False
    sustainer: str = SUSTAINER

    queues = 1
    floor = True

    def __post_init__(self) -> None:
        just = f", what {self.sustainer} just sustains" if self.sustained else ""
        kind = "confirms and acks" if self.persistent else "auto-ack"
        self.name = f"latency at {self.rate:,}/s{just}, {kind}, {size_text(self.size)}"

    def run(self, peer: Server, number: int) -> Values:
        self.once(peer, self.seconds / 4)  # warms up
        run = self.once(peer, self.seconds)
        return {
            DELIVERY_P50: 1000 * run.result["p50"],
            DELIVERY_P99: 1000 * run.result["p99"],
            DELIVERY_WINDOW_P99: 1000 * run.result["window_p99"],
            LAG_P99: 1000 * run.result["lag_p99"],
            LAG_WINDOW_P99: 1000 * run.result["lag_window_p99"],
            REACHED: run.result["records"] / run.result["seconds"],
            CPU_UNASKED: run.cpu_per_record,
        }

    def once(self, peer: Server, seconds: float) -> LoadRun:
        order = {**order_of(peer, self), "rate": self.rate, "messages": int(self.rate * seconds)}
        return run_load(peer, order, COMMAND)

    def sustains(self, peer: Server) -> bool:
        """Returns whether 99 of 100 messages arrive within 100 ms, in one of two attempts: the machine may be
        busy during one."""
        return any(self.once(peer, self.seconds).result["p99"] < SUSTAINED_P99 for _ in range(2))


def sustained_rate(peer: Server, begin: AmqpLatency) -> int:
    """Returns the highest rate of a ladder, each step a quarter above the last, that the server sustains."""
    rate = begin.rate
    while replace(begin, rate=rate * 5 // 4).sustains(peer):
        rate = rate * 5 // 4
    return rate


@dataclass
class AmqpBacklog(Workload[Server]):
    """A long queue of persistent messages without a consumer: the server's memory. `mode`: x-queue-mode,
    which Treecast ignores, as RabbitMQ 4 does."""

    count: int
    mode: str = ""
    size: int = 1024

    persistent = True
    queues = 1

    def __post_init__(self) -> None:
        kind = f", {self.mode} queue" if self.mode else ""
        self.name = f"{self.count:,} queued messages of {size_text(self.size)}{kind}"

    def run(self, peer: Server, number: int) -> Values:
        before = peer.memory().resident
        queue = f"{EXCHANGE}-{self.mode or 'long'}"
        arguments = {"x-queue-mode": self.mode} if self.mode else {}
        order = {**order_of(peer, self), "queues": [queue], "arguments": arguments, "messages": self.count}
        run_load(peer, {**order, "consumes": False}, COMMAND)
        time.sleep(2.0)  # garbage of the load is collected meanwhile
        found = peer.memory().resident
        run_load(peer, {**order, "messages": 1}, COMMAND)  # empties it
        return {RESIDENT: found / (1 << 20), GROWTH: (found - before) / (1 << 20)}


def workloads(seconds: float, queued: int) -> list[Workload[Any]]:
    """Returns all workloads but the latencies, whose rates are determined with RabbitMQ first."""
    out: list[Workload[Any]] = []
    for persistent, asked in ((False, 5.0), (True, 3.0)):
        for queues in (1, 4):
            for size in (100, 1024):
                out.append(AmqpThroughput(seconds, asked, size, persistent, queues))
    out += [AmqpThroughput(seconds, None, size, True, stream=True) for size in (100, 1024)]
    return [*out, AmqpBacklog(queued), AmqpBacklog(queued, "lazy")]


def latencies(
    rabbit: Server,
    rates: Sequence[int] | None,
    seconds: float,
    only: Sequence[str] | None,
    progress: Callable[[str], None],
    sustainer: str = SUSTAINER,
    persistents: Sequence[bool] = (False, True),
) -> list[Workload[Any]]:
    """Returns latency workloads at the given rates; otherwise at the rate that `rabbit` just sustains (it is
    started once for that). Returns none if `only` excludes them.
    """
    kinds = [AmqpLatency(2_000, min(seconds, 2.0), persistent=one) for one in persistents]
    if rates:
        return [replace(kind, rate=rate, seconds=seconds) for kind in kinds for rate in rates]
    if only and not any(part.lower() in "latency" or "latency" in part.lower() for part in only):
        return []
    out: list[Workload[Any]] = []
    rabbit.start()
    try:
        for kind in kinds:
            found = sustained_rate(rabbit, kind)
            progress(f"{sustainer} just sustains {found:,} messages a second, persistent: {kind.persistent}")
            out.append(replace(kind, rate=found, seconds=seconds, sustained=True, sustainer=sustainer))
    finally:
        rabbit.stop()
    return out
