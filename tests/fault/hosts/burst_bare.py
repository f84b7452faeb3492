"""The same burst with plain sockets: the machine's limit, with all hosts on its processors."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab

from .bare_loop import AT_ONCE, BATCH_BURSTS, SEGMENT
from .burst_case import SMALL_RATE, SMALL_SIZE
from .cores import Place, keep_to
from .latency import Window, percentile, within
from .site import HERE, Amiss, description

GROUP = "239.255.79.79"
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Bare:
    """One run. `seconds`: until all receivers have reported everything. CPU in seconds."""

    name: str
    payload: int
    seconds: float
    origin_cpu: float
    all_cpu: float

    @property
    def rate(self) -> float:
        """Returns MB/s of each receiver."""
        return self.payload / 1e6 / self.seconds


def bare(receivers: int, megabytes: float, *, multicast: bool, seed: int) -> Bare:
    """Sends `megabytes` to `receivers` hosts in a lab of its own. Raises Amiss if a datagram was lost."""
    hosts = [f"h{number}" for number in range(1, receivers + 2)]
    total = _whole(megabytes)
    lab = Lab.up(parse(description(hosts, ()), "the bare loop's site"), seed=seed)
    try:
        origin, *others = hosts
        program = [sys.executable, str(HERE / "bare_loop.py")]
        group = GROUP if multicast else "-"
        ends = [lab.start(host, *program, "receive", lab.ipv4(host), group, str(total)) for host in others]
        for end in ends:
            _line(end)
        targets = [lab.ipv4(host) for host in others]
        words = ["send", lab.ipv4(origin), group, str(total), *targets]
        sender = lab.start(origin, *program, *words, stdin=subprocess.PIPE)
        _tell(sender, "go")
        said = _line(sender)
        cpu = [float(_line(end)["cpu"]) for end in ends]
    finally:
        lab.down()
    name = f"{receivers} host{'s' * (receivers > 1)}{'' if multicast else ' by unicast'}, bare loop"
    return Bare(name, total, said["seconds"], said["cpu"], said["cpu"] + sum(cpu))


@dataclass(frozen=True)
class BareSmall:
    """The latencies of a small stream (ms, ascending), idle and beside a burst of `rate` MB/s."""

    idle: Sequence[float]
    beside: Sequence[float]
    rate: float

    @property
    def p99(self) -> tuple[float, float]:
        return percentile(self.idle, 99), percentile(self.beside, 99)


def bare_small(
    receivers: int, megabytes: float, *, idle: float, seed: int, work: tuple[float, float] | None = None
) -> BareSmall:
    """Runs a small stream for `idle` seconds alone, then beside a burst, as in `burst_case`.

    `work`: microseconds of processor time on a KiB at the origin and at each receiver. They then store the
    burst in batches, too."""
    hosts = [f"h{number}" for number in range(1, receivers + 2)]
    total, size = _whole(megabytes), str(SMALL_SIZE)
    folder = Path(tempfile.mkdtemp(prefix="treecast-bare-"))

    def stores(host: str) -> tuple[str, str]:
        if work is None:
            return "0", "-"
        return f"{work[host != hosts[0]]:.2f}", str(folder / host)

    lab = Lab.up(parse(description(hosts, ()), "the bare loop's site"), seed=seed)

    def start(host: str, *words: str) -> subprocess.Popen[bytes]:
        return lab.start(host, sys.executable, str(HERE / "bare_small.py"), *words, stdin=subprocess.PIPE)

    try:
        first, *others = hosts
        targets = [lab.ipv4(host) for host in others]
        ends = [start(first, "origin", lab.ipv4(first), GROUP, size, *stores(first), *targets)]
        ends += [start(host, "receive", lab.ipv4(host), GROUP, *stores(host)) for host in others]
        producer, steady = start(first, "produce", str(total)), start(first, "steady", str(SMALL_RATE), size)
        readers = [start(host, "read", str(total)) for host in others]
        watching = [start(host, "watch", size) for host in others]
        for end in (*ends, producer, steady, *readers, *watching):
            _line(end)
        keep_to(os.sched_getaffinity(0), [steady.pid, watching[0].pid], Place.SOON)
        begun = time.monotonic()
        time.sleep(idle)
        calm = Window("idle", begun, time.monotonic())
        _tell(producer, "go")
        last = max(float(_line(reader)["last"]) for reader in readers)
        burst = Window("burst", float(_line(producer)["begun"]), last)
        _tell(watching[0], "end")
        samples = sorted(map(tuple, _line(watching[0])["samples"]))
    finally:
        lab.down()
        shutil.rmtree(folder)
    return BareSmall(within(samples, [calm]), within(samples, [burst]), total / 1e6 / burst.seconds)


def _whole(megabytes: float) -> int:
    """Returns the bytes of as many whole batches of bursts of datagrams as hold at least so much."""
    whole = SEGMENT * AT_ONCE * BATCH_BURSTS
    return -(-int(megabytes * 1e6) // whole) * whole


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], _PATIENCE_S)[0]:
        raise Amiss("the bare loop lost datagrams and does not end")
    line = process.stdout.readline()
    if not line:
        raise Amiss(f"an end of the bare loop ended with {process.wait()}")
    found: dict[str, Any] = json.loads(line)
    return found
