"""The gate of the crash run, and its workers' handling of a broken connection."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
from crash.episode import Cycle, Episode
from crash.oracle import Oracle
from crash.workers import Gate, Worker

PATIENCE_S = 60.0


class Breaking(threading.Thread):
    """Leaves as soon as it has entered, like a worker whose connection breaks at once."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(daemon=True)
        self.gate = gate
        self.openings: list[int] = []

    def run(self) -> None:
        opening = 0
        while opening := self.gate.enter(opening):
            self.openings.append(opening)
            self.gate.leave()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.end()


def test_who_broke_before_the_gate_was_shut_comes_in_again(gate):
    """No other worker is inside whose leaving would wake it."""
    worker = Breaking(gate)
    worker.start()
    for _ in range(3):
        gate.open()
        gate.wait_until_in(1, PATIENCE_S)
        gate.close(PATIENCE_S)
    assert worker.openings == [1, 2, 3]


def test_nobody_comes_in_twice_in_one_opening(gate):
    workers = [Breaking(gate) for _ in range(4)]
    for worker in workers:
        worker.start()
    gate.open()
    gate.wait_until_in(4, PATIENCE_S)
    with pytest.raises(TimeoutError, match="4 of 5 workers came in"):
        gate.wait_until_in(5, 0.05)
    gate.close(PATIENCE_S)
    assert [worker.openings for worker in workers] == [[1]] * 4


def test_the_end_lets_go_of_everybody(gate):
    worker = Breaking(gate)
    worker.start()
    gate.end()
    worker.join(PATIENCE_S)
    assert not worker.is_alive()
    assert worker.openings == []


@pytest.mark.parametrize("killed", [False, True])
def test_a_connection_that_breaks_though_nobody_was_killed_is_a_problem(gate, killed):
    oracle = Oracle()
    worker = Worker("one", lambda: "127.0.0.1:1", oracle, gate, 0)  # nobody listens there
    gate.open()
    if killed:
        gate.expect_breaks()
    worker.start()
    gate.wait_until_in(1, PATIENCE_S)
    gate.close(PATIENCE_S)
    assert len(oracle.problems) == (0 if killed else 1)
    assert all("broke while the daemon ran" in problem for problem in oracle.problems)


class LateGate(Gate):
    """While `late` is set only librdkafka enters at once, as on a busy machine."""

    late = False

    def enter(self, last: int) -> int:
        while not (self._ended or (self.is_open and self._opening > last)):
            time.sleep(0.01)
        if self.late and threading.current_thread().name != "librdkafka":
            time.sleep(1.5)
        return super().enter(last)


@pytest.mark.fault
@pytest.mark.slow
def test_a_life_ends_when_everybody_has_been_answered(tmp_path: Path):
    episode = Episode(tmp_path / "life", 1, 0, sys.executable, "never")
    episode.gate = gate = LateGate()
    try:
        episode.begin()
        for number in range(20):
            episode.run(Cycle(number, 0.3, None))
            unanswered = [worker for worker in episode.workers if getattr(worker, "in_flight", None)]
            if unanswered:
                break
        gate.late = True
        assert unanswered
        episode.end()
        assert episode.oracle.problems == []
        assert not any(worker.in_flight for worker in unanswered)
    finally:
        episode.close()
