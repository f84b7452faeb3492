"""Micro-batches alone: all combinations take turns in one warm Spark session.

A batch of 1,000 rows is short compared with a JVM's warm-up and with disturbances of a busy machine: only
adjacent turns are comparable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.core.measure import Metric
from bench.core.rounds import Progress, Rounds
from bench.peers.spark import Combination

from .spark import BATCH_ROWS, HERE, LATENCY, THROUGH, environment, fill, reading

_SPARE = 40  # batches that a query may be ahead when it is stopped
_SINKS = {"noop": LATENCY, "connector": THROUGH}
_WHOLE = "triggerExecution"


def metric_of(sink: str, phase: str) -> Metric:
    """Returns the metric of a batch's phase into that sink."""
    whole = _SINKS[sink]
    return whole if phase == _WHOLE else Metric(f"{whole.name}: {phase}", "ms", False)


def _rows(batches: int) -> int:
    """Returns the maximum number of rows that one query reads: as many batches in each of two partitions."""
    wanted = batches + _SPARE
    return (wanted + wanted % 2) * BATCH_ROWS


class MicroRounds(Rounds):
    """`count` turns of each of `peers`, of `batches` batches each, after one that is not counted."""

    def __init__(
        self,
        peers: Sequence[Combination],
        batches: int,
        count: int,
        modules: str = "",
        progress: Progress = print,
    ) -> None:
        super().__init__(peers, [], count, progress=progress)
        self._combinations = peers
        self._batches = batches
        self._modules = modules
        self.name = f"{batches} micro-batches of {BATCH_ROWS:,} rows"

    def run(self) -> None:
        with ExitStack() as stack:
            for peer in self._combinations:
                peer.prepare()
                peer.start()
                stack.callback(peer.stop)
                if not peer.is_floor:
                    fill(peer.address, _rows(self._batches), 100)
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            self._session(Path(folder))

    def _session(self, folder: Path) -> None:
        (folder / "asked.json").write_text(json.dumps(self._asked()))
        command = [sys.executable, "-m", "bench.workloads.spark_turns", str(folder / "asked.json")]
        with (folder / "errors").open("w") as errors:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=HERE.parents[1],
                env=environment(self._modules),
            )
            with process:
                try:
                    assert process.stdout is not None
                    for line in process.stdout:
                        if line.startswith("TURN "):
                            self.take(json.loads(line.removeprefix("TURN ")))
                except BaseException:
                    process.terminate()
                    raise
        if process.returncode:
            self._fail(f"the session ended: {(folder / 'errors').read_text()[-3000:]}")

    def _asked(self) -> Mapping[str, Any]:
        cases = [
            {
                "name": peer.name,
                "address": f"{peer.address[0]}:{peer.address[1]}",
                "connector": peer.connector,
                "reading": reading(peer),
            }
            for peer in self._combinations
        ]
        jars = dict.fromkeys(str(jar) for peer in self._combinations for jar in peer.jars())
        return {"cases": cases, "jars": list(jars), "rounds": self._count, "batches": self._batches}

    def take(self, told: Mapping[str, Any]) -> None:
        """Records the session's report of one turn."""
        name, number, metric = told["name"], told["round"], _SINKS[told["sink"]]
        if "failed" in told:
            self._fail(f"{name}, round {number}, {metric.name}: {told['failed']}")
            return
        text = f"round {number}/{self._count}: {name}: {metric.name} {told['phases'][_WHOLE]:g} ms"
        self._progress(text if number else f"{text}, warming up")
        if not number:
            return
        peer = next(peer for peer in self._combinations if peer.name == name)
        for phase, value in told["phases"].items():
            self._note(peer, number, self.name, metric_of(told["sink"], phase), value)
