"""Treecast as a peer: `treecast up` with its default settings, on loopback, on an empty data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.core.peer import LocalServer
from bench.core.process import ServerProcess
from treecast.middleware.load.connection import serves


class TreecastPeer(LocalServer):
    """A daemon. `python` chooses the installation, so that a compiled one can be measured from an interpreted
    one.

    `flags` are passed to `treecast up`. The compiled hot modules are read from the running daemon's mappings,
    not from the intended build.
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        flags: Sequence[str] = (),
        fsync: str = "",
        parent: Path | None = None,
        start_timeout: float = 30,
        name: str = "Treecast",
    ) -> None:
        super().__init__("treecast-", parent)
        self.name = name
        self._python = os.path.abspath(python)  # not resolved: an environment's python is a link
        self._fsync = fsync
        self._flags = [*flags, *(("--fsync", fsync) if fsync else ())]
        self._timeout = start_timeout
        self._compiled = "not started yet"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def ready(self) -> dict[str, str]:
        """Returns the daemon's ready line: `name`, and each listener's HOST:PORT. Empty before that."""
        if self._folder is None:
            return {}
        for line in (self._folder / "server.log").read_text(errors="replace").splitlines():
            if line.startswith("ready "):
                return dict(field.split("=", 1) for field in line.split()[1:] if "=" in field)
        return {}

    def wait_ready(self) -> dict[str, str]:
        assert self._process is not None
        self._process.wait_until(self.ready, self._timeout)
        return self.ready()

    def launch(self, folder: Path) -> float:
        # The operator's own settings must not affect the measurement.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TREECAST_")}
        self._process = ServerProcess(
            self._command(folder), folder / "server.log", cwd=folder, environment=clean
        )
        # Not `address`: peers of other faces name theirs from the ready line on, and this asks as Kafka does.
        kafka = "127.0.0.1", self._port
        took = self._process.wait_until(lambda: serves(*kafka), self._timeout)
        self._compiled = self._compiled_modules()
        return took

    def settings(self) -> Mapping[str, str]:
        return {
            "version": self._version(),
            "command": "treecast up " + " ".join(self._flags),
            "compiled modules": self._compiled,
            "durability": f"fsync = {self._fsync or 'the default of treecast up'}",
        }

    def _command(self, folder: Path) -> list[str]:
        return [
            *(self._python, "-m", "treecast.middleware.cli", "up"),
            *("--data", str(self.data), "--runtime-dir", str(folder / "run")),
            *("--kafka", f"127.0.0.1:{self._port}", "--stare", "off"),
            *("--admin", "127.0.0.1:0", "--control", "127.0.0.1:0"),
            *(() if "--mqtt" in self._flags else ("--mqtt", "off")),
            *(() if "--amqp" in self._flags else ("--amqp", "off")),
            *self._flags,
        ]

    def _version(self) -> str:
        """Returns the version of its installation."""
        done = subprocess.run(
            [
                self._python,
                "-c",
                "import sys, treecast; print(treecast.__version__, 'on Python', *sys.version.split())",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.strip() or "unknown"

    def _compiled_modules(self) -> str:
        names = set()
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                path = line.rpartition(" ")[2]
                if path.endswith(".so") and ("/treecast/" in path or "__mypyc" in path):
                    names.add(Path(path).name.partition(".")[0])
        return ", ".join(sorted(names)) or "none: interpreted"
