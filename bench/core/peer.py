"""The harness' interface of a measured server."""

from __future__ import annotations

import abc
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from treecast.middleware.evaluation.processes import cpu_seconds

from .ports import free_port
from .process import Memory, ServerProcess, memory


class Peer(abc.ABC):
    """A server: started on an empty data directory, measured, stopped.

    `name` stands in reports; one Peer is started and stopped once per round.
    """

    name: str
    is_floor = False  # a bare loop, whose start-up and memory have no meaning

    def prepare(self) -> None:  # noqa: B027  (most peers need nothing)
        """Does unmeasured preparation once: fetching, building."""

    @abc.abstractmethod
    def start(self) -> float:
        """Starts on an empty data directory; returns the seconds from exec to the first useful answer."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Stops it and removes its data."""

    @abc.abstractmethod
    def pids(self) -> list[int]:
        """Returns all of its processes."""

    @abc.abstractmethod
    def settings(self) -> Mapping[str, str]:
        """Returns version and settings, for the report."""

    def joining_pids(self) -> list[int]:
        """Returns the processes that join two brokers, where a comparison asks for their share alone."""
        return []

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids())

    def memory(self) -> Memory:
        return memory(self.pids())


class Server(Peer):
    """A peer that clients connect to."""

    @property
    @abc.abstractmethod
    def address(self) -> tuple[str, int]:
        """Host and port."""


class LocalProcess(Peer):
    """One process in a folder of its own beneath `parent`, which `stop` removes."""

    def __init__(self, prefix: str, parent: Path | None) -> None:
        self._prefix = prefix
        self._parent = parent
        self._folder: Path | None = None
        self._process: ServerProcess | None = None

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._folder

    def start(self) -> float:
        self._folder = Path(tempfile.mkdtemp(prefix=self._prefix, dir=self._parent))
        try:
            return self.launch(self._folder)
        except BaseException:
            self.stop()
            raise

    @abc.abstractmethod
    def launch(self, folder: Path) -> float:
        """Starts `_process`; returns the seconds to the first useful answer."""

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def pids(self) -> list[int]:
        return [] if self._process is None else self._process.pids()


class LocalServer(LocalProcess, Server):
    """One process on loopback, which is to listen at `_port`."""

    def __init__(self, prefix: str, parent: Path | None) -> None:
        super().__init__(prefix, parent)
        self._port = 0

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def start(self) -> float:
        self._port = free_port()
        return super().start()
