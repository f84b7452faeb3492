"""Random sequences at two servers: the first difference of each, and the command that runs them.

`amqp_methods`, `kafka_requests` and `mqtt_packets` compare a daemon with another server, or with two hosts.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.progress import track
from tests.pair import pair

from treecast.middleware.daemon.process import DaemonProcess

FACES: Final = ("admin", "amqp", "kafka", "mqtt", "stare")


class Difference(NamedTuple):
    """The first difference of a sequence: its step, and what clients see of each server."""

    seed: int
    number: int
    step: str
    first: object
    second: object


class Run:
    """One run: how many steps a sequence has, and where its results are printed."""

    def __init__(self, far: bool, count: int, console: Console, *, verbose: bool = False) -> None:
        self.far = far  # compares with other hosts of a cluster instead of another server
        self.count = count
        self._console = console
        self._verbose = verbose

    def note(self, number: int, step: object, outcome: object) -> None:
        """Prints a step on which both servers agree, if the user wants to see them."""
        if self._verbose:
            self._print(f"{number} {step}\n  {outcome}")

    def differences(
        self, seeds: range, peer: str, compare: Callable[[int], Difference | None]
    ) -> list[Difference]:
        """Runs one sequence for each seed. `peer` names the other server."""
        found = []
        for seed in track(seeds, "sequences", console=self._console, transient=True):
            one = compare(seed)
            if one is not None:
                found.append(one)
                seen = f"  Treecast: {one.first}\n  {peer}: {one.second}"
                self._print(f"seed {one.seed}, step {one.number}: {one.step}\n{seen}")
        return found

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def command(
    name: str,
    about: str | None,
    *,
    peer: str,
    steps: int,
    lacking: Callable[[], str | None],
    run: Callable[[Run, range], list[Difference]],
) -> int:
    """Parses the command line and runs the sequences. Returns the exit code.

    `about`: the module's docstring. `lacking`: returns what is missing to run the other server.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=(about or "").split("\n")[0])
    parser.add_argument("--seeds", metavar="FIRST:END", default="0:50")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--far", action="store_true", help=f"compare with another host, not with {peer}")
    parser.add_argument("--verbose", action="store_true", help="print every step and what is seen of it")
    options = parser.parse_args()
    console = Console()
    if not options.far and (missing := lacking()):
        console.print(missing, markup=False)
        return 2
    begin, _, end = options.seeds.partition(":")
    seeds = range(int(begin), int(end or int(begin) + 1))
    found = run(Run(options.far, options.steps, console, verbose=options.verbose), seeds)
    console.print(f"{len(seeds)} sequences of {options.steps} steps, {len(found)} differ", highlight=False)
    return 1 if found else 0


# --- daemons


def only(face: str) -> tuple[str, ...]:
    """Returns the flags of a daemon with one face, on a free port."""
    off = (word for other in FACES if other != face for word in (f"--{other}", "off"))
    return (*off, f"--{face}", "127.0.0.1:0")


@contextmanager
def one_host(flags: Sequence[str]) -> Iterator[DaemonProcess]:
    with tempfile.TemporaryDirectory() as folder, DaemonProcess(Path(folder) / "data", flags) as daemon:
        yield daemon
        if "Traceback" in daemon.log():
            raise RuntimeError(daemon.log())


@contextmanager
def two_hosts(flags: Sequence[str]) -> Iterator[tuple[DaemonProcess, DaemonProcess]]:
    with tempfile.TemporaryDirectory() as folder, pair(Path(folder), flags, show=len) as hosts:
        yield hosts
