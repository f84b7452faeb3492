"""The limits of a daemon's listeners."""

from __future__ import annotations

import pytest

from treecast.middleware.daemon.guard import NEW_SECONDS, Guard, shares_of
from treecast.middleware.daemon.resource_watch import Descriptors, kept_of
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.request_memory import STALL
from treecast.shims.ticks import TICK

LIMITS = (64, 256, 1024, 4096, 65_536, 1 << 20)
MIB = 1 << 20


class Connection:
    def __init__(self) -> None:
        self.aborted = False

    def wait_for_memory(self, waits: bool) -> None:
        """It sends nothing."""

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize("limit", LIMITS)
def test_the_descriptors_of_listeners_and_files_are_apart(limit: int) -> None:
    shares, kept = shares_of(limit, kept_of(limit)), kept_of(limit)
    assert shares.admin + shares.control + shares.faces + kept <= limit
    assert min(shares.admin, shares.control, shares.faces, shares.each, shares.new) >= 4
    assert shares.new <= 4096


def test_an_operator_sets_the_connections_of_an_address() -> None:
    assert shares_of(4096, 64).each == shares_of(4096, 64).faces // 4
    assert shares_of(4096, 64, 7).each == 7


def test_faces_leave_descriptors_to_the_other_listeners() -> None:
    free = 200
    descriptors = Descriptors(64, lambda most: min(free, most))
    descriptors.leave(lambda: 48)
    taken = 0
    while descriptors.admits():
        taken, free = taken + 1, free - 1
    assert free == 64 + 48
    while descriptors.admits_own():
        free -= 1
    assert free == 64


def test_all_faces_share_descriptors_and_memory() -> None:
    guard = Guard(shares_of(256, 64), 10 * MIB)
    kafka, mqtt = guard.face(FaceCounters(), logs_in=False), guard.face(FaceCounters(), logs_in=True)
    assert kafka.memory is mqtt.memory is guard.admin().memory
    assert kafka.before is kafka.memory
    assert mqtt.before is guard.before
    entered = 0
    while (visitor := (kafka, mqtt)[entered % 2].enter(None, Connection(), 0.0)) is not None:
        visitor.known()
        entered += 1
    assert entered == guard.shares.faces


async def test_memory_goes_back_to_the_system_after_a_peak() -> None:
    given: list[int] = []
    # MiB; after each give-back comes a look. Answers of the peak are still on their way out at the first one.
    sizes = [50, 60, 100, 80, 85, 55, 60, 75, 75, 75, 75, 80]
    guard = Guard(shares_of(256, 64), MIB, lambda: given.append(sizes[0]), lambda: sizes.pop(0) * MIB)
    while sizes:
        await guard.after_peaks()
    assert given == [80, 55, 75, 75]


def test_a_tick_ends_what_is_too_slow_unless_the_process_stood_still() -> None:
    guard = Guard(shares_of(256, 64), 10 * MIB)
    face, connection = guard.face(FaceCounters(), logs_in=True), Connection()
    now = 100.0
    visitor = face.enter(None, connection, now)
    assert visitor is not None
    guard.tick(now)
    guard.tick(now + NEW_SECONDS + TICK)  # no tick came before: it stood still
    assert not connection.aborted
    for turn in range(1, int(2 * (NEW_SECONDS + STALL) / TICK)):
        guard.tick(now + NEW_SECONDS + TICK + turn * TICK)
    assert connection.aborted
