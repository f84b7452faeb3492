"""Publishers wait while memory is low, and no longer than that."""

from __future__ import annotations

from treecast.middleware.daemon.faces.pressure import LOW_MEMORY, Pressure
from treecast.middleware.daemon.resource_problems import Troubles

MIB = 1 << 20


class Machine:
    """A process with memory in use, and memory that is free in its heap."""

    def __init__(self, used: int = 0, free: int = 0) -> None:
        self.used, self.free, self.now, self.given = used, free, 0.0, 0
        self.pressure = Pressure(100 * MIB, Troubles("/data", 256, 64), self.resident, self.back, self.clock)

    def resident(self) -> int:
        return self.used + self.free

    def back(self) -> None:
        self.given += 1
        self.free = 0

    def clock(self) -> float:
        return self.now


def test_free_memory_of_a_peak_makes_nobody_wait() -> None:
    machine = Machine(used=50 * MIB, free=500 * MIB)
    assert machine.pressure() == ""
    assert machine.given == 1


def test_publishers_wait_while_memory_is_used_and_go_on_when_it_is_not() -> None:
    machine = Machine(used=150 * MIB)
    assert machine.pressure() == LOW_MEMORY
    machine.used, machine.free = 50 * MIB, 100 * MIB
    assert machine.pressure() == LOW_MEMORY  # the heap was looked at a moment ago
    machine.now = 10.0
    assert machine.pressure() == ""
    assert machine.given == 2


def test_the_heap_is_left_alone_while_there_is_room() -> None:
    machine = Machine(used=50 * MIB)
    assert [machine.pressure() for _ in range(5)] == [""] * 5
    assert machine.given == 0
