"""Spark as the run sees it: a process with workers below it, each of which can be killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

QUERY = Path(__file__).with_name("query.py")
START_SECONDS = 600
SLOW = b"failed to connect back"  # Spark gives a Python worker 10 s to start, whatever the machine does


class Driver:
    """One `query.py`, started again whenever it is asked for. `log` takes what it says.

    It writes to `topic`, until `hand_over` names another.
    """

    def __init__(self, folder: Path, address: str, topic: str) -> None:
        self.topic = topic
        self._checkpoint = folder / f"checkpoint-{topic}"
        self._address = address
        self._folder = folder
        self._stop = folder / "stop"
        self._log = (folder / "spark.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the query has begun."""
        said = self._said().count(b"begun")
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "TREECAST_RUNTIME_DIR": str(self._folder)}
        command = [
            sys.executable,
            str(QUERY),
            self._address,
            str(self._checkpoint),
            str(self._stop),
            self.topic,
        ]
        self._process = subprocess.Popen(
            command, stdout=self._log, stderr=self._log, env=environment, start_new_session=True
        )
        deadline = time.monotonic() + START_SECONDS
        while self._said().count(b"begun") <= said:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the driver does not start: {self.tail()}")
            time.sleep(0.1)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _said(self) -> bytes:
        return (self._folder / "spark.log").read_bytes()

    def failures(self) -> tuple[int, int]:
        """How often the query was begun again: in all, and as a worker took too long to start."""
        failed = [line for line in self._said().splitlines() if line.startswith(b"failed: ")]
        return len(failed), sum(SLOW in line for line in failed)

    def batch(self) -> int:
        """The number of the newest batch that is done, -1 for none: Spark notes each in its checkpoint."""
        noted = self._checkpoint / "commits"
        return max((int(path.name) for path in noted.glob("[0-9]*")), default=-1)

    def hand_over(self, topic: str) -> None:
        """What is started next writes to `topic`, by a copy of the checkpoint: blue and green."""
        before = self._checkpoint
        self.topic, self._checkpoint = topic, self._folder / f"checkpoint-{topic}"
        shutil.copytree(before, self._checkpoint)

    def tail(self) -> str:
        return self._said()[-3000:].decode(errors="replace")

    def kill(self) -> None:
        """The whole of it at once: JVM, Python, and workers."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def kill_driver_alone(self) -> None:
        """JVM and Python, not the workers: those go on until they notice."""
        assert self._process is not None
        jvms = [
            pid for pid, command in below(self._process.pid).items() if b"java" in command.split(b"\0")[0]
        ]
        for pid in (self._process.pid, *jvms):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self, rng: random.Random) -> bool:
        """One of the Python processes that work for the JVM; False where there is none now."""
        assert self._process is not None
        found = below(self._process.pid)
        workers = sorted(pid for pid, command in found.items() if b"\0pyspark." in command)
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
        return True

    def end(self) -> None:
        """Stops the query in order, or kills it where that takes too long."""
        self._stop.touch()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
        self.kill()
        self._log.close()


def below(top: int) -> dict[int, bytes]:
    """The command lines of all processes below `top`, by process id."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found: dict[int, bytes] = {}
    for pid in parents:
        above = pid
        while above in parents and above != top:
            above = parents[above]
        if above == top and pid != top:
            with suppress(OSError):
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return found
