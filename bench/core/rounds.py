"""The rounds: peers take turns, each on an empty data directory, in an order that alternates."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .measure import (
    IDLE_MEMORY,
    LOADED_ANONYMOUS,
    LOADED_MEMORY,
    START_UP,
    Metric,
    Sample,
    Workload,
)
from .peer import Peer

SERVER = "server"  # the workload that start-up and memory are filed under
_MIB = 1 << 20

Progress = Callable[[str], None]


class Rounds:
    """Runs `workloads` against `peers` for `count` rounds, filling `samples`.

    A peer that fails a workload loses only that sample; one that does not start loses its turn. Failures are
    printed and kept in `failures`. An interrupted run keeps earlier rounds and records the interruption as a
    failure. `judged`: apply the targets of `measure` to start-up and memory, which are relative to Apache
    Kafka; otherwise only print them.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        workloads: Sequence[Workload[Any]],
        count: int,
        *,
        settle: float = 2.0,
        judged: bool = True,
        progress: Progress = print,
    ) -> None:
        self._peers, self._workloads, self._count = peers, workloads, count
        self._settle = settle
        self._judged = judged
        self._progress = progress
        self.samples: list[Sample] = []
        self.failures: list[str] = []

    def run(self) -> None:
        for peer in self._peers:
            peer.prepare()
        for number in range(1, self._count + 1):
            turn = self._peers if number % 2 else list(reversed(self._peers))
            try:
                for peer in turn:
                    self._progress(f"round {number}/{self._count}: {peer.name}")
                    self._visit(peer, number)
            except (KeyboardInterrupt, SystemExit):
                if number == 1:
                    raise
                self.samples = [sample for sample in self.samples if sample.round < number]
                self._fail(f"ended in round {number} of {self._count}: the figures are of those before")
                return

    def _visit(self, peer: Peer, number: int) -> None:
        os.sync()  # a start must not wait for dirty pages of the previous peer
        try:
            started = peer.start()
        except Exception as error:
            self._fail(f"{peer.name}, round {number}, does not start: {error}")
            return
        try:
            time.sleep(self._settle)
            if not peer.is_floor:
                self._note_server(peer, number, START_UP, started)
                self._note_server(peer, number, IDLE_MEMORY, peer.memory().resident / _MIB)
            for workload in self._workloads:
                if workload.floor or not peer.is_floor:
                    self._load(peer, number, workload)
            if not peer.is_floor:
                used = peer.memory()
                self._note_server(peer, number, LOADED_MEMORY, used.resident / _MIB)
                self._note_server(peer, number, LOADED_ANONYMOUS, used.anonymous / _MIB)
        finally:
            peer.stop()

    def _load(self, peer: Peer, number: int, workload: Workload[Any]) -> None:
        # Write out the dirty pages of earlier loads now: otherwise a write-back that the kernel starts during
        # a run, and that throttles writers, would hit the next peer.
        os.sync()
        try:
            values = workload.run(peer, number)
        except Exception as error:
            self._fail(f"{peer.name}, round {number}, {workload.name}: {error}")
            return
        shown = []
        for metric, value in values.items():
            self._note(peer, number, workload.name, metric, value)
            shown.append(f"{metric.name} {value:,.4g} {metric.unit}")
        self._progress(f"  {workload.name}: {', '.join(shown)}")

    def _fail(self, failure: str) -> None:
        self.failures.append(failure)
        self._progress(f"  FAILED {failure}")

    def _note_server(self, peer: Peer, number: int, metric: Metric, value: float) -> None:
        if not self._judged:
            metric = replace(metric, target=None)
        self._note(peer, number, SERVER, metric, value)

    def _note(self, peer: Peer, number: int, workload: str, metric: Metric, value: float) -> None:
        self.samples.append(Sample(peer.name, number, workload, metric, value))
