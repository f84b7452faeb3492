"""The runs of a data directory: older states and copies are told from the latest one."""

from __future__ import annotations

import random
from copy import deepcopy

from treecast.middleware.model.runs import (
    MOST,
    DirectoryState,
    RunMark,
    begun,
    includes,
    is_run,
    read_runs,
    write_runs,
)

A, B, C = "a" * 16, "b" * 16, "c" * 16


class Disk:
    """The two files of a directory."""

    def __init__(self) -> None:
        self.runs, self.stamp = b"", b""

    def start(self, id: str) -> list[RunMark]:
        self.runs = write_runs(begun(read_runs(self.runs), self.stamp, id))
        self.stamp = write_runs([RunMark(id)])
        return self.now()

    def move(self) -> RunMark:
        (last,) = read_runs(self.stamp)
        self.stamp = write_runs([RunMark(last.id, last.stamp + 1)])
        return RunMark(last.id, last.stamp + 1)

    def now(self) -> list[RunMark]:
        return read_runs(self.runs)


def test_lines_are_read_back_and_what_is_torn_is_left_out() -> None:
    runs = [RunMark(A, 7), RunMark(B)]
    data = write_runs(runs)
    assert read_runs(data) == runs
    assert len({len(line) for line in data.splitlines()}) == 1
    assert read_runs(data[:-10]) == runs[:1]
    assert read_runs(b"\xff\x00 nothing\n\n" + data) == runs
    assert read_runs(b"") == []


def test_a_start_keeps_how_far_the_run_before_came() -> None:
    disk = Disk()
    disk.start(A)
    disk.move()
    assert disk.move() == RunMark(A, 2)
    assert disk.start(B) == [RunMark(A, 2), RunMark(B)]
    assert begun([RunMark(A)], write_runs([RunMark(C, 9)]), B) == [RunMark(A), RunMark(B)]  # of another run
    assert begun([], b"", A) == [RunMark(A)]  # a directory of an earlier version


def test_only_the_latest_runs_are_kept() -> None:
    runs = [RunMark(f"{number:016x}") for number in range(MOST)]
    assert begun(runs, b"", A) == [*runs[1:], RunMark(A)]


def test_what_a_run_may_look_like() -> None:
    assert is_run(RunMark(A, 2**62))
    assert not any(map(is_run, [RunMark(""), RunMark("A" * 16), RunMark(A + "\n"), RunMark(A, -1)]))
    assert not is_run(RunMark(A, 2**64))


def test_a_directory_knows_what_was_heard_of_it_unless_it_is_older_or_a_copy() -> None:
    """Against a plain model: each start and stamp is a step, and a directory knows the steps that it took."""
    rng = random.Random(4)
    for _ in range(300):
        disks, taken = [Disk()], [[RunMark("0" * 16)]]
        disks[0].start("0" * 16)
        for _ in range(rng.randrange(1, 12)):
            at = rng.randrange(len(disks))
            match rng.choice(["start", "move", "copy"]):
                case "start":
                    id = f"{rng.getrandbits(64):016x}"
                    disks[at].start(id)
                    taken[at].append(RunMark(id))
                case "move":
                    taken[at].append(disks[at].move())
                case "copy":
                    disks.append(deepcopy(disks[at]))
                    taken.append(list(taken[at]))
        for disk, steps in zip(disks, taken, strict=True):
            disk.start(f"{rng.getrandbits(64):016x}")  # whoever attaches has begun a run
            for heard in [step for other in taken for step in other]:
                later = any(one.id == heard.id and one.stamp >= heard.stamp for one in steps)
                assert includes(disk.now(), heard) is later


def test_an_older_state_does_not_know_the_name_of_a_later_one() -> None:
    old, new = DirectoryState("d", (A, B)), DirectoryState("d", (A, B, C))
    assert (new.knows(old.name), old.knows(new.name), new.knows(new.name)) == (True, False, True)
    assert not DirectoryState("other", (A, B, C)).knows(new.name)
    assert new.knows("d")  # as an earlier version told it
    assert not new.knows("")
    assert DirectoryState("d").name == "d"
