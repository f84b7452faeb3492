"""A server seen from the operating system: its processes, their CPU time and memory, from /proc."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from treecast.middleware.evaluation.processes import descendants


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory in bytes: total, anonymous (heap, stacks), and file mappings."""

    resident: int
    anonymous: int
    file: int


def waited_seconds(pids: Iterable[int]) -> float:
    """How long their threads were ready to run and had no core (schedstat's second number)."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(task.read_text().split()[1])
    return total / 1e9


def memory(pids: Iterable[int]) -> Memory:
    sums = {"VmRSS": 0, "RssAnon": 0, "RssFile": 0}
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in sums:
                    sums[name] += int(value.split()[0]) * 1024
    return Memory(sums["VmRSS"], sums["RssAnon"], sums["RssFile"])


def threads(pids: Iterable[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{pid}/task"))
    return total


def _dying_with_parent(command: Sequence[str]) -> list[str]:
    """Returns the command so that a killed harness leaves no server behind (the signal follows the starting
    thread).

    util-linux' setpriv requests that and becomes the command. Python code between fork and exec would meet
    the fork handlers of threads, such as gRPC's in tests.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else list(command)


def keep_to_cores(hosts: Sequence[Sequence[int]]) -> None:
    """Pins each host's processes, with all their threads, to a core; hosts share if there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    for number, pids in enumerate(hosts):
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").glob("*"):
                with contextlib.suppress(OSError):  # a thread that has ended
                    os.sched_setaffinity(int(task.name), {cores[number % len(cores)]})


class ServerProcess:
    """A server that the harness started. Its output goes to one file; it stops with all it spawned."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = list(command)
        self.log = log
        with open(log, "ab") as sink:
            self.started = time.monotonic()
            self._process = subprocess.Popen(
                _dying_with_parent(self.command),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                cwd=cwd,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def pids(self) -> list[int]:
        return descendants(self.pid)

    def wait_until(self, ready: object, timeout: float, interval: float = 0.005) -> float:
        """Polls `ready()` until it returns true. Returns the seconds since the start of the process.

        Raises RuntimeError with the end of the log if the process ends before, or after `timeout` s.
        """
        assert callable(ready)
        while True:
            if ready():
                return time.monotonic() - self.started
            if self._process.poll() is not None:
                raise RuntimeError(f"{self.command[0]} ended ({self._process.returncode}):\n{self.tail()}")
            if time.monotonic() - self.started > timeout:
                raise RuntimeError(f"{self.command[0]} does not serve after {timeout:g} s:\n{self.tail()}")
            time.sleep(interval)

    def tail(self, size: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-size:]

    def kill(self) -> None:
        """Sends SIGKILL to the server and its descendants."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, timeout: float = 30) -> int:
        """Sends SIGTERM, then SIGKILL after `timeout` s. Returns the exit code."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
