"""Shared by the applications: daemons, Java processes to kill, and the final account."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.core.process import ServerProcess
from bench.peers.kafka.jars import HERE, class_path
from bench.peers.kafka.tools import java

from treecast.middleware.daemon.process import DaemonProcess

from .records import Reader

FLAGS = ("--mqtt", "off", "--stare", "off", "--amqp", "off", "--admin", "off")
JVM = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Worker:
    """A Java process that can be restarted with the same command and log."""

    def __init__(self, name: str, words: Sequence[str], folder: Path, classes: str = "") -> None:
        self.name = name
        log4j = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        jars = f"{classes}:{class_path()}" if classes else class_path()
        self._command = [java(), *JVM, log4j, "-cp", jars, *words]
        self._folder = folder
        self._process: ServerProcess | None = None

    def start(self) -> None:
        self._process = ServerProcess(self._command, self._folder / f"{self.name}.log", cwd=self._folder)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


@dataclass
class Account:
    """The input and the output of one output topic or file."""

    output: str
    records_in: int
    records_out: int
    lost: int
    doubled: int
    exact: bool  # whether a doubled record is a fault

    @property
    def amiss(self) -> bool:
        return bool(self.lost or (self.exact and self.doubled))


def account(output: str, sent: set[bytes], found: Sequence[bytes], *, exact: bool) -> Account:
    """`sent`: the acknowledged values, each once; `found` may also have values without an acknowledgement."""
    once = set(found)
    return Account(output, len(sent), len(found), len(sent - once), len(found) - len(once), exact)


class Feeding(Protocol):
    """Feeds records into an application until it is stopped."""

    problems: list[str]  # problems other than lost and doubled records

    @property
    def values(self) -> set[bytes]:
        """Returns the values that must come out, as far as their input is certain."""
        ...

    def stop(self) -> None: ...


@dataclass
class App(ABC):
    """An application on one or more daemons. `folder` holds all of its data."""

    folder: Path
    python: str
    rate: int  # records a second
    once: bool = True  # False: the application is configured to promise less
    daemons: dict[str, DaemonProcess] = field(default_factory=dict)
    workers: list[Worker] = field(default_factory=list)
    feeder: Feeding = field(init=False)
    reader: Reader = field(init=False)  # reads the output

    name = ""

    def daemon(self, name: str) -> DaemonProcess:
        """Starts a daemon."""
        made = DaemonProcess(self.folder / name, FLAGS, python=self.python)
        self.daemons[name] = made
        return made.start()

    def victims(self) -> list[str]:
        """Returns the processes to kill, in turn."""
        return ["application", *self.daemons]

    def kill(self, victim: str, rng: random.Random) -> None:
        """Sends SIGKILL to one of the Java processes or to a daemon, and restarts it at once."""
        if victim in self.daemons:
            self.daemons[victim].kill()
            self.daemons[victim].restart()
            return
        worker = rng.choice(self.workers)
        worker.kill()
        worker.start()

    def stop(self) -> None:
        for worker in self.workers:
            worker.kill()
        for daemon in self.daemons.values():
            daemon.stop()
            (self.folder / f"{daemon.data.name}.log").write_text(daemon.clean_up())

    @abstractmethod
    def start(self) -> None:
        """Starts daemons, topics, `feeder`, `reader` and the application; does not wait for the first
        records."""

    def out(self) -> int:
        """Returns the number of records that have come out so far."""
        return self.reader.look()

    @abstractmethod
    def accounts(self) -> list[Account]: ...

    def complete(self) -> bool:
        """Returns whether the output is complete."""
        return not any(found.lost for found in self.accounts())


def properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
