"""The same burst with plain sockets: the machine's limit, with all hosts on its processors."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from dataclasses import dataclass

from treecast.middleware.dataplane.lab.description import parse
from treecast.middleware.dataplane.lab.lab import Lab

from .bare_loop import AT_ONCE, SEGMENT
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
    whole = SEGMENT * AT_ONCE
    total = -(-int(megabytes * 1e6) // whole) * whole
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
        assert sender.stdin is not None
        sender.stdin.write(b"go\n")
        sender.stdin.flush()
        said = _line(sender)
        cpu = [float(_line(end)["cpu"]) for end in ends]
    finally:
        lab.down()
    name = f"{receivers} host{'s' * (receivers > 1)}{'' if multicast else ' by unicast'}, bare loop"
    return Bare(name, total, said["seconds"], said["cpu"], said["cpu"] + sum(cpu))


def _line(process: subprocess.Popen[bytes]) -> dict[str, float]:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], _PATIENCE_S)[0]:
        raise Amiss("the bare loop lost datagrams and does not end")
    line = process.stdout.readline()
    if not line:
        raise Amiss(f"an end of the bare loop ended with {process.wait()}")
    found: dict[str, float] = json.loads(line)
    return found
