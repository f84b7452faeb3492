"""Logs of stimuli: what a random run gave a core, in a file that gives it again.

    python -m tests.replay out/replays/queues.jsonl [--show]

Fuzzers and model tests keep a log when they fail, and their error names the file. The first line names the
world and what it began with; each further line is a step, `[what, argument, ...]`. A replay needs neither the
generator nor its seed, so a log stays good while the generator changes, and lines can be taken out of it by
hand. `--show` prints each step before it is given. Exit code 1: a step or a check fails as before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

KEPT = Path("out/replays")
# by name: the module and its class, which takes the log's `given`
WORLDS = {
    "queues": ("tests.unit.queues.test_broker_reference", "World"),
    "segments": ("tests.fuzz.segments", "Attacked"),
    "stream": ("tests.unit.fabric.test_schedules", "Stream"),
}


class World(Protocol):
    """A core with its surroundings. `step` and `end` raise AssertionError if something is wrong."""

    def step(self, what: str, *arguments: Any) -> None: ...

    def end(self) -> None: ...

    def said(self) -> object:
        """Returns what came out so far, for comparisons."""

    def close(self) -> None:
        """Gives back what the system lent it."""


@dataclass
class Log:
    """A world's name, the arguments of its class, and its steps; all of them can be written as JSON."""

    world: str
    given: dict[str, Any]
    steps: list[Sequence[Any]] = field(default_factory=list)

    def made(self) -> World:
        module, name = WORLDS[self.world]
        made: World = getattr(importlib.import_module(module), name)(**self.given)
        return made

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = [{"world": self.world, "given": self.given}, *self.steps]
        file.write_text("".join([json.dumps(line) + "\n" for line in lines]))

    @classmethod
    def read(cls, file: Path) -> Log:
        """Raises OSError, ValueError or KeyError for what is no log."""
        first, *steps = [json.loads(line) for line in file.read_text().splitlines()]
        if first["world"] not in WORLDS:
            raise ValueError(f"{file}: the worlds are {', '.join(WORLDS)}, and {first['world']} is none")
        return cls(first["world"], first["given"], steps)


@contextmanager
def kept(log: Log) -> Iterator[None]:
    """Writes the log to a file if what is done meanwhile fails. The error says how to give it again."""
    try:
        yield
    except Exception as error:
        file = KEPT / f"{log.world}.jsonl"
        log.write(file)
        error.add_note(f"again: python -m tests.replay {file}")
        raise


def play(log: Log) -> object:
    """Gives all steps to a new world, and ends it. Returns what it said.

    What fails is kept, up to the step that fails.
    """
    given = Log(log.world, log.given)
    with kept(given), closing(log.made()) as world:
        for step in log.steps:
            given.steps.append(step)
            world.step(*step)
        world.end()
        return world.said()


def again(log: Log, *, show: bool = False) -> int:
    """Gives a log again, step by step. Returns the exit code."""
    number = 0
    try:
        with closing(log.made()) as world:
            for number, step in enumerate(log.steps, 1):
                if show:
                    print(number, json.dumps(step), flush=True)
                world.step(*step)
            world.end()
    except Exception:
        traceback.print_exc()
        print(f"{log.world}: fails at step {number} of {len(log.steps)}")
        return 1
    print(f"{log.world}: {len(log.steps)} steps, nothing fails")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    parser.add_argument("--show", action="store_true", help="print each step before it is given")
    options = parser.parse_args(arguments)
    return again(Log.read(options.file), show=options.show)


if __name__ == "__main__":
    sys.exit(main())
