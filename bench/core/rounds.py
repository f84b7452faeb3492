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
from .quiet import Quiet, reason

SERVER = "server"  # the workload that start-up and memory are filed under
_MIB = 1 << 20

Progress = Callable[[str], None]


class Rounds:
    """Runs `workloads` against `peers` for `count` rounds, filling `samples`.

    A peer that fails a workload loses only that sample; one that does not start loses its turn. Failures are
    printed and kept in `failures`. An interrupted run keeps earlier rounds and records the interruption as a
    failure. `judged`: apply the targets of `measure` to start-up and memory, which are relative to Apache
    Kafka; otherwise only print them.

    `patience`: seconds for which each turn waits for a quiet machine (`quiet`). A round of a workload in
    which a turn began on a busy machine, or a peer missed what the workload asks, is **void** for all peers:
    its values are taken out of `samples` into `voided`, and `notes` say why. If no round of a workload is
    left, its values stay, its name is in `unproven`, and no verdict may be given.

    `apart`: each workload gets a server of its own. `mirrored`: every second round goes backwards.
    """

    def __init__(
        self,
        peers: Sequence[Peer],
        workloads: Sequence[Workload[Any]],
        count: int,
        *,
        settle: float = 2.0,
        judged: bool = True,
        apart: bool = False,
        mirrored: bool = True,
        patience: float = 0.0,
        quiet: Quiet | None = None,
        progress: Progress = print,
    ) -> None:
        self._peers, self._count = peers, count
        self._settle = settle
        self._judged = judged
        self._mirrored = mirrored
        self._turns = [[workload] for workload in workloads] if apart else [workloads]
        self._quiet = quiet or Quiet(patience)
        self._progress = progress
        self._void: dict[tuple[int, str], list[str]] = {}  # (round, workload) -> why
        self.samples: list[Sample] = []
        self.voided: list[Sample] = []
        self.unproven: set[str] = set()
        self.notes: list[str] = []
        self.failures: list[str] = []

    def run(self) -> None:
        for peer in self._peers:
            peer.prepare()
        self._run_all()
        self._settle_void()

    def _run_all(self) -> None:
        for number in range(1, self._count + 1):
            backwards = self._mirrored and number % 2 == 0
            turn = list(reversed(self._peers)) if backwards else self._peers
            try:
                for workloads in self._turns:
                    for peer in turn:
                        self._visit(peer, number, workloads)
            except (KeyboardInterrupt, SystemExit):
                if number == 1:
                    raise
                self.samples = [sample for sample in self.samples if sample.round < number]
                self._void = {place: why for place, why in self._void.items() if place[0] < number}
                self._fail(f"ended in round {number} of {self._count}: the figures are of those before")
                return

    def _settle_void(self) -> None:
        """Takes the values of void rounds out, unless a workload has no others."""
        for workload in dict.fromkeys(sample.workload for sample in self.samples):
            rounds = {sample.round for sample in self.samples if sample.workload == workload}
            void = {number for number in rounds if (number, workload) in self._void}
            self.notes += [
                f"void: round {number}, {workload}: {'; '.join(self._void[number, workload])}"
                for number in sorted(void)
            ]
            if void == rounds:
                self.unproven.add(workload)
                self.notes.append(f"no round of {workload} is valid: its figures compare nothing")
                continue
            out = [one for one in self.samples if one.workload == workload and one.round in void]
            self.voided += out
            self.samples = [one for one in self.samples if one not in out]

    def _declare_void(self, number: int, workload: str, why: str) -> None:
        self._void.setdefault((number, workload), []).append(why)
        self._progress(f"  VOID {workload}: {why}")

    def _visit(self, peer: Peer, number: int, workloads: Sequence[Workload[Any]]) -> None:
        os.sync()  # a start must not wait for dirty pages of the previous peer
        load = self._quiet.wait()
        self._progress(f"round {number}/{self._count}: {peer.name}; load average {load:.2f}")
        if why := reason(load):
            for workload in workloads:
                self._declare_void(number, workload.name, f"{peer.name}: {why}")
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
            for workload in workloads:
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
        if why := workload.void(values):
            self._declare_void(number, workload.name, f"{peer.name}: {why}")

    def _fail(self, failure: str) -> None:
        self.failures.append(failure)
        self._progress(f"  FAILED {failure}")

    def _note_server(self, peer: Peer, number: int, metric: Metric, value: float) -> None:
        if not self._judged:
            metric = replace(metric, target=None)
        self._note(peer, number, SERVER, metric, value)

    def _note(self, peer: Peer, number: int, workload: str, metric: Metric, value: float) -> None:
        self.samples.append(Sample(peer.name, number, workload, metric, value))
