"""A load run in a separate process, with the server's CPU time measured around it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treecast.middleware.evaluation.processes import cpu_seconds

from .measure import JOINING_CPU, Values
from .peer import Peer

TREECAST_LOAD = (sys.executable, "-m", "treecast.middleware.load")


@dataclass(frozen=True, slots=True)
class LoadRun:
    """The load's report, and the server's resource use meanwhile."""

    result: dict[str, Any]
    server_cpu: float  # seconds
    joining_cpu: float | None = None  # of the processes that join two brokers

    @property
    def cpu_per_record(self) -> float:
        """Microseconds."""
        return 1e6 * self.server_cpu / float(self.result["records"])

    @property
    def joining(self) -> Values:
        """The share of the processes that join two brokers; nothing where a peer has none."""
        if self.joining_cpu is None:
            return {}
        return {JOINING_CPU: 1e6 * self.joining_cpu / float(self.result["records"])}


def run_load(
    peer: Peer,
    order: Mapping[str, Any],
    command: Sequence[str] = TREECAST_LOAD,
    timeout: float = 600,
) -> LoadRun:
    """Starts `command`, sends it `order` as one JSON line, and starts the load once it prints `ready`.

    It answers with one JSON line: `{"result": {"records": ..., ...}}` or `{"error": ...}`, which becomes a
    RuntimeError.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            if line.strip() != "ready":
                raise RuntimeError(_error(line))
            joining = peer.joining_pids()
            before, joined = peer.cpu_seconds(), cpu_seconds(joining)
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
            used, joined = peer.cpu_seconds() - before, cpu_seconds(joining) - joined
            answer = json.loads(line) if line.strip() else {}
            if "result" not in answer:
                raise RuntimeError(_error(line))
            process.wait(timeout)
        except BaseException:
            process.kill()
            raise
    return LoadRun(answer["result"], used, joined if joining else None)


def _error(line: str) -> str:
    try:
        return str(json.loads(line)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the load ended without a result: {line.strip()!r}"
