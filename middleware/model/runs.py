"""The runs of a data directory: what tells its latest state from an older one, and from a copy. Pure.

A number cannot do that: a directory that was restored counts on from the number it had. So each run has an id
of its own, drawn at random when the daemon opens the directory, and a stamp that rises while it runs. Whoever
has heard of (id, stamp) knows a later state than each directory that lacks the run, or has a lower stamp of
it.

`runs`   a line per run, oldest first: its id and its last stamp; the last line is the present run
`stamp`  the present run's id and stamp, rewritten in place
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

LATER: Final = (
    "0" * 16
)  # the id of a run that no directory has: of a later state, about which nothing is known
MOST: Final = 500  # runs that a directory remembers
_LINE: Final = re.compile(r"([0-9a-f]{16}) ([0-9]{19})\Z")


class RunMark(Struct, frozen=True):
    """A run by its id (16 hexadecimal digits), and how far it came."""

    id: str
    stamp: int = 0


def is_run(run: RunMark) -> bool:
    """Returns whether another host's word about a run can be stored."""
    return _LINE.match(f"{run.id} {run.stamp:019d}") is not None


def read_runs(data: bytes) -> list[RunMark]:
    """Returns the runs in the lines of `data`; lines that are torn or strange are left out."""
    found = [_LINE.match(line) for line in data.decode("ascii", "replace").splitlines()]
    return [RunMark(match[1], int(match[2])) for match in found if match is not None]


def write_runs(runs: Iterable[RunMark]) -> bytes:
    """Returns lines of one width, so that one of them can be overwritten in place."""
    return b"".join(b"%s %019d\n" % (run.id.encode(), run.stamp) for run in runs)


def begun(earlier: Sequence[RunMark], stamp: bytes, new: str) -> list[RunMark]:
    """Returns the runs with a new one at the end. `stamp`: the content of the file, of the run before."""
    known = list(earlier)
    for last in read_runs(stamp):
        if known and known[-1].id == last.id:
            known[-1] = RunMark(last.id, max(last.stamp, known[-1].stamp))
    return [*known, RunMark(new)][-MOST:]


def includes(runs: Iterable[RunMark], heard: RunMark) -> bool:
    """Returns whether a directory with these runs has what it had when `heard` was heard of."""
    return any(run.id == heard.id and run.stamp >= heard.stamp for run in runs)


class DirectoryState(Struct, frozen=True):
    """A data directory as this run of its host has it: its id, and the ids of the runs that it knows."""

    instance: str
    runs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that other hosts remember: the id, and the present run."""
        return f"{self.instance}/{self.runs[-1]}" if self.runs else self.instance

    def knows(self, name: str) -> bool:
        """Returns whether `name` is of this directory, and of no later state of it than this one.

        A name from an earlier version tells no run.
        """
        instance, _, run = name.partition("/")
        return instance == self.instance and (not run or run in self.runs)
