"""Shared by the fault runs: their options, and a saved state from which the same command continues.

A run's state is a dataclass with `seed`, `done` and `problems`, and the run's own counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import fcntl
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTED = 130
MOST_PROBLEMS = 20  # maximum number shown


class State(Protocol):
    """The progress over all sessions of one seed."""

    done: int
    problems: list[str]

    def __init__(self, seed: int) -> None: ...


S = TypeVar("S", bound=State)


def options_of(doc: str | None, out: str, *, life: int, kills: str) -> argparse.ArgumentParser:
    """Returns the options common to all runs. `doc`: the module's docstring; `out`: a folder's name; `life`:
    kills of one data directory; `kills`: what `--count` counts."""
    description, _, epilog = (doc or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300, help=f"{kills}, over all sessions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--life", type=int, default=life, help="kills of one data directory")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / out)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemon")
    parser.add_argument("--fresh", action="store_true", help="discard the progress of this seed")
    parser.add_argument("--json", action="store_true", help="the summary as JSON on standard output")
    return parser


class Session(Generic[S]):
    """One call of a run: its state, and exclusive use of the folder of its seed."""

    def __init__(self, options: argparse.Namespace, kind: type[S]) -> None:
        self.folder: Path = options.out / f"seed-{options.seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / "state.json"
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another run works in {self.folder}; take another --seed or --out") from None
        if options.fresh or not self._path.exists():
            self.state: S = kind(options.seed)
        else:
            self.state = msgspec.json.decode(self._path.read_bytes(), type=kind)

    def save(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(self.state)))
        new.replace(self._path)

    def repeat(
        self,
        total: int,
        live: Callable[[], Any],
        *,
        most_problems: int = 1,
        until: Callable[[], bool] = lambda: False,
    ) -> int:
        """Runs lives of data directories until `total` kills are done, or `until` returns true before a life.

        Returns the exit code.
        """
        try:
            while self.state.done < total and len(self.state.problems) < most_problems and not until():
                live()
                self.save()
        except KeyboardInterrupt:
            return INTERRUPTED
        return 1 if self.state.problems else 0

    def as_json(self, *, indent: bool = False) -> str:
        encoded = msgspec.json.encode(self.state)
        return (msgspec.json.format(encoded) if indent else encoded).decode()


class Episode(Protocol):
    """One life of a data directory under load. `problems`: violations found."""

    fsync: str
    problems: list[str]
    counts: dict[str, int]
    kills: int
    log: str

    def __init__(self, folder: Path, seed: int, number: int, python: str, patience: float) -> None: ...

    def begin(self) -> None: ...

    def cycle(self, number: int, *, damage: bool = False) -> None: ...

    def end(self) -> None: ...


class Patience:
    """Ends when what is left to do has not become less for some seconds. A slow machine is no fault."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._least: int | None = None
        self._until = 0.0

    def ended(self, left: int, now: float) -> bool:
        """Called repeatedly, with the count of what is left."""
        if self._least is None or left < self._least:
            self._least = left
            self._until = now + self._seconds
        return now > self._until


@dataclasses.dataclass
class Lives:
    """The progress over all sessions of one seed."""

    seed: int
    done: int = 0
    kills: int = 0
    lives: int = 0
    seconds: float = 0.0
    problems: list[str] = dataclasses.field(default_factory=list)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)


def live(kind: type[Episode], state: Lives, options: argparse.Namespace, folder: Path) -> None:
    """Runs one life of a data directory."""
    begun, known = time.monotonic(), len(state.problems)
    episode = kind(folder / "life", state.seed, state.lives, options.python, options.patience)
    state.lives += 1
    try:
        episode.begin()
        for _ in range(min(options.life, options.count - state.done)):
            number = state.done
            episode.cycle(number, damage=number == options.damage)
            state.done += 1
            if not options.json:
                print(f"{state.done}/{options.count} kills checked, {len(episode.problems)} problems")
            if episode.problems:
                break
    finally:
        episode.end()
        where = f"seed {state.seed}, life {state.lives - 1}, fsync {episode.fsync}"
        state.problems += [f"{where}: {problem}" for problem in episode.problems[:MOST_PROBLEMS]]
        state.kills += episode.kills
        state.seconds += round(time.monotonic() - begun, 1)
        for name, count in episode.counts.items():
            state.counts[name] = state.counts.get(name, 0) + count
        if len(state.problems) > known:
            print(episode.log[-3000:], file=sys.stderr)


def run_lives(doc: str | None, out: str, kind: type[Episode]) -> int:
    """Runs kills of the daemon under load; returns the exit code."""
    parser = options_of(doc, out, life=10, kills="kills")
    parser.add_argument(
        "--damage", type=int, default=-1, metavar="CYCLE", help="cut off stored data in this cycle"
    )
    parser.add_argument(
        "--patience", type=float, default=90.0, help="seconds that clients may take to read something"
    )
    options = parser.parse_args()
    session = Session(options, Lives)
    code = session.repeat(options.count, partial(live, kind, session.state, options, session.folder))
    if code != INTERRUPTED:
        print(session.as_json(indent=not options.json))
    return code
