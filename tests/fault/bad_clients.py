"""The common part of the runs of bad clients: a steady pair beside each kind, and limits of memory.

After each kind the pair must have received every message, in order, the daemon's memory must not exceed the
kind's allowance, and its log must have no traceback.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from treecast.middleware.daemon.process import DaemonProcess
from treecast.middleware.daemon.tuning import raise_open_files

MIB = 1 << 20
EVERY_S = 0.02  # seconds between messages of the steady pair


@dataclass
class Found:
    """The outcome of one kind; `problem` is empty if there was none. Memory in MiB."""

    kind: str
    did: str
    messages: int
    grown: float
    problem: str


class ServedDaemon:
    """The daemon under test; subclasses add connections to it."""

    def __init__(self, daemon: DaemonProcess) -> None:
        self.daemon = daemon

    def resident(self) -> int:
        return int(Path(f"/proc/{self.daemon.pid}/statm").read_text().split()[1]) * 4096


class SteadyPair(ABC, threading.Thread):
    """A sender and a receiver. `problem` describes a failure."""

    def __init__(self, patience: float) -> None:
        super().__init__(daemon=True)
        self._patience = patience
        self._ending = threading.Event()
        self.count = 0
        self.problem = ""

    @abstractmethod
    def exchange(self, number: int) -> bool:
        """Sends a message; returns whether it comes as it was sent."""

    @abstractmethod
    def close(self) -> None:
        """Closes both connections."""

    def run(self) -> None:
        try:
            while self.count == 0 or not self._ending.wait(EVERY_S):
                if not self.exchange(self.count):
                    self.problem = f"message {self.count} did not come as it was sent"
                    return
                self.count += 1
        except (OSError, EOFError, AssertionError) as error:
            self.problem = f"message {self.count}: {type(error).__name__} {error}"

    def end(self) -> None:
        self._ending.set()
        self.join(self._patience)
        if self.is_alive():
            self.problem = f"message {self.count} was waited for too long"
        self.close()


def beside(pair: SteadyPair, server: ServedDaemon, kind: str, act: Callable[[], str], room: int) -> Found:
    """Runs one kind beside a steady pair. `room`: bytes by which memory may grow."""
    pair.start()
    before, did, problem = server.resident(), "", ""
    try:
        did = act()
    except (OSError, EOFError, AssertionError) as error:
        problem = f"{type(error).__name__}: {error}"
    grown = server.resident() - before
    pair.end()
    if grown > room:
        problem = problem or f"memory grew by {grown / MIB:.0f} MiB, {room / MIB:.0f} MiB is the limit"
    if "Traceback" in server.daemon.log():
        problem = problem or "the daemon logged an error of its own"
    return Found(kind, did, pair.count, round(grown / MIB, 1), pair.problem or problem)


def add_options(parser: argparse.ArgumentParser, kinds: Collection[str]) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="duration of the other kinds")
    parser.add_argument("--only", choices=sorted(kinds))
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemon")
    parser.add_argument("--json", action="store_true")


def run(
    options: argparse.Namespace,
    flags: Sequence[str],
    kinds: Collection[str],
    look: Callable[[str, DaemonProcess], Found],
) -> int:
    """Runs the kinds at one daemon and prints what was found. Returns the exit code."""
    raise_open_files()
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        DaemonProcess(Path(folder) / "data", flags, python=options.python) as daemon,
    ):
        for kind in [options.only] if options.only else kinds:
            one = look(kind, daemon)
            found.append(one)
            if not options.json:
                print(
                    f"{kind}: {one.did}; beside it {one.messages} messages, {one.grown} MiB more", flush=True
                )
    problems = [f"{one.kind}: {one.problem}" for one in found if one.problem]
    if options.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        print("\n".join(problems) or "no other client was affected")
    return 1 if problems else 0
