import math

from bench.core.quiet import LIMIT, Quiet, reason


class Machine:
    """A clock that sleeping moves, and a load average that decays as the kernel's does."""

    def __init__(self, load: float, floor: float = 0.0) -> None:
        self.now, self._load, self._floor = 0.0, load, floor

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def load(self) -> float:
        return self._floor + (self._load - self._floor) * math.exp(-self.now / 60)

    def quiet(self, patience: float, spinners: int = 0) -> Quiet:
        return Quiet(patience, load=self.load, clock=self.clock, sleep=self.sleep, spinners=spinners)


def test_a_turn_waits_until_the_last_one_no_longer_shows():
    machine = Machine(3.0)
    assert machine.quiet(300).wait() <= LIMIT
    assert 60 < machine.now < 80


def test_a_machine_that_stays_busy_is_not_waited_for_longer_than_asked():
    machine = Machine(3.0, floor=2.0)
    assert machine.quiet(100).wait() > LIMIT
    assert 100 <= machine.now < 110


def test_without_patience_the_load_is_only_read():
    machine = Machine(3.0)
    assert machine.quiet(0).wait() == 3.0
    assert machine.now == 0


def test_processes_that_keep_cores_awake_do_not_count():
    machine = Machine(0.0, floor=2.0)  # as two spinners raise it from their start on
    assert machine.quiet(300, spinners=2).wait() < 0.01
    assert machine.now == 0


def test_the_reason_names_the_load():
    assert reason(1.0) == ""
    assert "1.25" in reason(1.25)
