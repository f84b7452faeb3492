"""Problems that keep a daemon from its work: logged at once, then rarely, and shown while they last. Pure.

Fine      ──BAD──>  Troubled   logged, unless the same was logged less than `RARELY` seconds ago
Troubled  ──BAD──>  Troubled   logged again after `RARELY` seconds
Troubled  ──GOOD──> Fine       logged, if the problem was
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

RARELY: Final = 600.0  # seconds between two lines about the same problem


class State(enum.Enum):
    FINE = "fine"
    TROUBLED = "troubled"


class Seen(enum.Enum):
    BAD = "it is there"
    GOOD = "it is not there"


class Say(enum.Enum):
    NOTHING = "nothing"
    BAD = "that it is there"
    OVER = "that it is over"


TRANSITIONS: Mapping[tuple[State, Seen], tuple[State, Say]] = MappingProxyType(
    {
        (State.FINE, Seen.BAD): (State.TROUBLED, Say.BAD),
        (State.FINE, Seen.GOOD): (State.FINE, Say.NOTHING),
        (State.TROUBLED, Seen.BAD): (State.TROUBLED, Say.BAD),
        (State.TROUBLED, Seen.GOOD): (State.FINE, Say.OVER),
    }
)


class Trouble:
    """One kind of problem. `over`: the log line about its end."""

    def __init__(self, over: str) -> None:
        self.state = State.FINE
        self.text = ""
        self._over = over
        self._said_at = -RARELY
        self._said = False  # since it began

    def look(self, text: str, now: float) -> str:
        """Records the present problem (`text`; empty: none) at `now` seconds. Returns the line to be
        logged.
        """
        self.state, say = TRANSITIONS[self.state, Seen.BAD if text else Seen.GOOD]
        self.text = text
        if say is Say.BAD and now - self._said_at >= RARELY:
            self._said_at, self._said = now, True
            return text
        if say is Say.OVER and self._said:
            self._said = False
            return self._over
        return ""


class Space(Struct, frozen=True):
    """The file system of the data directory, in bytes."""

    free: int
    size: int


class Look(Struct, frozen=True):
    """The result of one look.

    `space`: None if the directory cannot be asked. `refused`: why the disk refused a test write; empty: it
    accepted, or nobody tried.
    """

    space: Space | None
    refused: str = ""
    no_files: bool = False


class Consequences(Struct, frozen=True):
    """The consequences of problems for one kind of process, and what to do, as sentences. `kept` is about
    descriptors; its `{}` is their number.
    """

    process: str
    disk: str
    kept: str
    files: str


DAEMON: Final = Consequences(
    "daemon",
    "Nothing that clients write is acknowledged. Free space, or delete topics or records; writes then "
    "resume by themselves",
    ", of which {} are reserved for the daemon",
    "New connections are closed at once",
)
COORDINATOR: Final = Consequences(
    "coordinator",
    "Topics cannot be created or changed, and new hosts cannot attach; hosts continue with what they know. "
    "Free space; writes then resume by themselves",
    ", and less than {} are left",
    "New connections wait; open ones continue",
)


class Troubles:
    """All kinds of problems that are watched."""

    def __init__(self, data: str, files: int, kept: int, means: Consequences = DAEMON) -> None:
        """`data`: the directory. `files`: limit of open files, of which `kept` are reserved for the process
        itself.
        """
        self._data = data
        self._files = files
        self._kept = kept
        self._means = means
        self.disk = Trouble(f"the disk of {data} accepts writes again")
        self.descriptors = Trouble("file descriptors are free again, and connections are accepted")
        self.space: Space | None = None

    def look(self, seen: Look, now: float) -> list[str]:
        """Returns the lines to be logged."""
        self.space = seen.space
        lines = (
            self.disk.look(self._disk_text(seen), now),
            self.descriptors.look(self._files_text(seen), now),
        )
        return [line for line in lines if line]

    def texts(self) -> list[str]:
        """Returns the present problems."""
        return [trouble.text for trouble in (self.disk, self.descriptors) if trouble.text]

    def _disk_text(self, seen: Look) -> str:
        if not seen.refused or seen.no_files:
            return ""
        left = f"; {seen.space.free:,} of {seen.space.size:,} bytes are free" if seen.space else ""
        return f"the disk of {self._data} refuses writes: {seen.refused}{left}. {self._means.disk}"

    def _files_text(self, seen: Look) -> str:
        if not seen.no_files:
            return ""
        return (
            f"no file descriptors are left for clients: {self._files} may be open"
            f"{self._means.kept.format(self._kept)}. {self._means.files}. Raise LimitNOFILE, or `ulimit -n`, "
            f"and restart the {self._means.process}"
        )
