"""A daemon as a child process: start, wait for the ready line, stop, kill, restart.

For tests, demonstrations and benchmarks. Blocking; uses no threads and no event loop.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .faces import FACES, listeners, shown

READY_SECONDS = 60.0
STOP_SECONDS = 30.0
REGAIN_SECONDS = 20.0  # wait for its earlier ports that another process was given meanwhile
_IN_USE = "the port is in use"
NOT_SETTINGS = frozenset({"TREECAST_CI", "TREECAST_PURE"})


class DaemonFailed(Exception):
    """The daemon ended or stayed silent before it was ready. The text contains its log."""


def parse_ready(line: str) -> dict[str, str]:
    """Parses `ready name=h kafka=127.0.0.1:9092` into a dictionary. Raises ValueError for any other line."""
    word, *pairs = line.split()
    if word != "ready":
        raise ValueError(f"not a ready line: {line!r}")
    return dict(pair.split("=", 1) for pair in pairs)


def split_address(address: str) -> tuple[str, int]:
    """Splits `127.0.0.1:9092` or `[::1]:9092` into host and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class DaemonProcess:
    """One `treecast up`. Faces listen on port 0 of loopback unless `flags` or a restart set others.

    `scratch` holds the runtime directory (short, since a Unix socket's path has at most 107 bytes) and the
    log of all runs. `data` belongs to the caller and is not removed.
    """

    def __init__(
        self,
        data: Path,
        flags: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self.data = data.absolute()  # absolute because the child runs in another directory
        self.flags = list(flags)
        self.python = os.path.abspath(python) if os.path.dirname(python) else python
        self.scratch = Path(tempfile.mkdtemp(prefix="treecast-"))
        self.runtime_dir = self.scratch / "run"
        self.log_path = self.scratch / "log"
        self.ready: dict[str, str] = {}
        self._environment = self._clean_environment(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._pinned = False

    def _clean_environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Returns the caller's environment without settings of other daemons."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TREECAST_") or name in NOT_SETTINGS
        }
        return {**inherited, "TREECAST_RUNTIME_DIR": str(self.runtime_dir), **extra}

    # --- what it is

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running or last child."""
        if self._process is None:
            raise DaemonFailed("the daemon was never started")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def kafka(self) -> str:
        """HOST:PORT, as a client's bootstrap server."""
        return self.ready["kafka"]

    @property
    def admin(self) -> str:
        return self.ready["admin"]

    @property
    def control(self) -> str:
        return self.ready["control"]

    def address(self, face: str) -> tuple[str, int]:
        return split_address(self.ready[face])

    def log(self) -> str:
        """Returns the log of all runs."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def command(self) -> list[str]:
        """Returns the command line, with each face on port 0 unless the flags name it."""
        faces = (
            f
            for name in (*(kind.name for kind in FACES), "admin", "control")
            for f in (f"--{name}", "127.0.0.1:0")
            if not self._flagged(name)
        )
        module = [self.python, "-m", "treecast.middleware.cli", "up"]
        return [*module, "--data", str(self.data), *faces, *self.flags]

    def _flagged(self, name: str) -> bool:
        return any(flag == f"--{name}" or flag.startswith(f"--{name}=") for flag in self.flags)

    # --- what can be done with it

    def start(self, *, wait: bool = True) -> DaemonProcess:
        """Starts it. With `wait`, returns when it is ready. Raises DaemonFailed with its log.

        If another process was given one of its pinned ports, retries until the port is free: a process that
        asks for port 0 may get a port of a daemon that is down.
        """
        deadline = time.monotonic() + REGAIN_SECONDS
        while True:
            said = len(self.log())
            self._spawn()
            if not wait:
                return self
            try:
                self.wait_ready()
                return self
            except DaemonFailed:
                lost = self._pinned and _IN_USE in self.log()[said:]
                if not lost or time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    def _spawn(self) -> None:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                cwd=self.scratch,
            )

    def wait_ready(self, timeout: float = READY_SECONDS) -> dict[str, str]:
        """Waits for the ready line. Raises DaemonFailed if the daemon ends or stays silent."""
        line = self._read_line(time.monotonic() + timeout)
        if not line.startswith("ready "):
            code = self.stop(timeout=0)
            raise DaemonFailed(f"no ready line (exit code {code}), but {line!r}; the log:\n{self.log()}")
        self.ready = parse_ready(line)
        return self.ready

    def _read_line(self, deadline: float) -> str:
        out = self.process.stdout
        assert out is not None
        poll = select.poll()  # unlike select(), it supports descriptors beyond 1023
        poll.register(out, select.POLLIN)
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                break
            piece = os.read(out.fileno(), 4096)
            if not piece:
                break
            line += piece
        return line.decode(errors="replace")

    def stop(self, *, timeout: float = STOP_SECONDS) -> int:
        """Sends SIGTERM, then SIGKILL after `timeout` seconds. Returns the exit code, -9 if it was killed."""
        if self.running:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._close_pipe()
        return code

    def kill(self) -> None:
        """Sends SIGKILL, to simulate a crash."""
        self.process.kill()
        self.process.wait()
        self._close_pipe()

    def restart(self, *, same_ports: bool = True) -> DaemonProcess:
        """Restarts it on the same data and, by default, the same ports."""
        if self.running:
            self.stop()
        if same_ports:
            self.pin_ports()
        return self.start()

    def pin_ports(self) -> None:
        """Makes later starts listen on the present ports, so that clients find it again."""
        self._pinned = True
        for face in map(shown, listeners()):
            if face not in self.ready:
                continue
            if not self._flagged(face):
                self.flags += [f"--{face}", self.ready[face]]
            elif f"--{face}" in self.flags:
                where = self.flags.index(f"--{face}") + 1
                if split_address(self.flags[where])[1] == 0:
                    self.flags[where] = self.ready[face]

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def clean_up(self) -> str:
        """Kills a running child, removes the scratch directory, and returns the log."""
        if self.running:
            self.kill()
        self._close_pipe()
        log = self.log()
        shutil.rmtree(self.scratch, ignore_errors=True)
        return log

    def __enter__(self) -> DaemonProcess:
        return self if self.running else self.start()

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()
        self.clean_up()
