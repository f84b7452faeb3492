"""Runs sequences at two brokers, and finds the first difference of each."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench.core.process import ServerProcess, free_port
from bench.peers.mosquitto import listens, program
from rich.console import Console
from rich.progress import track

from treecast.middleware.daemon.process import DaemonProcess

from .client import Address, Client
from .steps import CLIENTS, TOPICS, Step, sequence

PATIENCE_S: Final = 5.0
POLL_S: Final = 0.01
START_S: Final = 10.0
FACES: Final = (
    "--admin",
    "off",
    "--stare",
    "off",
    "--kafka",
    "off",
    "--amqp",
    "off",
    "--mqtt",
    "127.0.0.1:0",
)
CONFIGURATION: Final = """listener {port} 127.0.0.1
allow_anonymous true
allow_duplicate_messages true
"""

Seen = list[tuple[list[object], list[object]]]


class Difference(NamedTuple):
    """The first difference of a sequence, and what the clients see of each broker."""

    seed: int
    number: int
    step: Step
    first: object
    second: object


class Side:
    """The clients of one broker, or of several hosts in turn."""

    def __init__(self, addresses: Sequence[Address], seed: int) -> None:
        self._clients = [
            Client(addresses[number % len(addresses)], f"compared-{seed}-{number}")
            for number in range(CLIENTS)
        ]
        self._outcome: object = None
        self._seen: Seen = []

    def do(self, step: Step) -> None:
        client = self._clients[step.client]
        self._outcome = getattr(client, step.name)(**step.given)
        client.catch_up()
        self._seen = [([], []) for _ in self._clients]

    def seen(self) -> tuple[object, Seen]:
        """Returns what the clients have seen since the last step began."""
        for client, (arrived, answers) in zip(self._clients, self._seen, strict=True):
            client.catch_up()
            more, further = client.take()
            arrived[:] = sorted([*arrived, *more], key=str)
            answers += further
        return self._outcome, self._seen

    def forget(self) -> None:
        """Ends the sessions, and removes what is retained."""
        for client in self._clients:
            client.connect(4, True, 0, None)
        for topic in TOPICS:
            self._clients[0].publish(topic, b"", 1, True, False)
        for client in self._clients:
            client.catch_up()
            client.disconnect(False, False)


class Comparison:
    def __init__(self, far: bool, count: int, console: Console, *, verbose: bool = False) -> None:
        self._far = far
        self._count = count
        self._console = console
        self._verbose = verbose

    def run(self, seeds: range) -> list[Difference]:
        peers: AbstractContextManager[Sequence[Address]] = two_hosts() if self._far else mosquitto()
        found = []
        with one_host() as here, peers as there:
            for seed in track(seeds, "sequences", console=self._console, transient=True):
                sides = Side([here], seed), Side(there, seed)
                difference = self._compare(sides, seed)
                for side in sides:
                    side.forget()
                if difference is not None:
                    found.append(difference)
                    self._print(self._described(difference))
        return found

    def _compare(self, sides: tuple[Side, Side], seed: int) -> Difference | None:
        for number, step in enumerate(sequence(seed, self._count, far=self._far), 1):
            for side in sides:
                side.do(step)
            deadline = time.monotonic() + PATIENCE_S
            while (one := sides[0].seen()) != (other := sides[1].seen()):
                if time.monotonic() > deadline:
                    return Difference(seed, number, step, one, other)
                time.sleep(POLL_S)
            if self._verbose:
                self._print(f"{number} client {step.client}: {step.name} {step.given}\n  {one}")
        return None

    def _described(self, one: Difference) -> str:
        peer = "two hosts" if self._far else "Mosquitto"
        step = f"client {one.step.client}: {one.step.name} {one.step.given}"
        return f"seed {one.seed}, step {one.number}: {step}\n  Treecast: {one.first}\n  {peer}: {one.second}"

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


# --- brokers


@contextmanager
def one_host() -> Iterator[Address]:
    with tempfile.TemporaryDirectory() as folder, DaemonProcess(Path(folder) / "data", FACES) as daemon:
        yield daemon.address("mqtt")
        if "Traceback" in daemon.log():
            raise RuntimeError(daemon.log())


@contextmanager
def two_hosts() -> Iterator[Sequence[Address]]:
    """Runs two daemons of a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        root, flags = Path(folder), (*FACES, "--fabric", "127.0.0.1:0")
        with DaemonProcess(root / "a", [*flags, "--name", "a"]) as first:
            joins = ["--join", first.ready["control"], "--join-token", f"@{root / 'a' / 'join-token'}"]
            with DaemonProcess(root / "b", [*flags, "--name", "b", *joins]) as second:
                yield first.address("mqtt"), second.address("mqtt")
                logs = first.log() + second.log()
        if "Traceback" in logs:
            raise RuntimeError(logs)


@contextmanager
def mosquitto() -> Iterator[Sequence[Address]]:
    executable = program()
    assert executable is not None
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        configuration = Path(folder) / "mosquitto.conf"
        configuration.write_text(CONFIGURATION.format(port=port))
        command = [executable, "-c", str(configuration)]
        process = ServerProcess(command, Path(folder) / "mosquitto.log", cwd=Path(folder))
        try:
            process.wait_until(lambda: listens(port), START_S)
            yield [("127.0.0.1", port)]
        finally:
            process.stop()
