"""Spark for the run: a process with workers, each of which can be killed."""

from __future__ import annotations

import json
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
SLOW = b"failed to connect back"  # Spark allows a Python worker 10 s to start, however busy the machine is
ANEW = b"created again"  # the error of a query that finds another topic of the same name
# A driver lives for a minute at most. A JVM that compiles each method once, and quickly, starts sooner.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Driver:
    """One `query.py`, restarted on request. `log` takes its output.

    It writes to `topic` until `hand_over` names another.
    """

    def __init__(self, folder: Path, address: str, topic: str) -> None:
        self.topic = topic
        self._checkpoint = folder / f"checkpoint-{topic}"
        self._address = address
        self._folder = folder
        self._stop = folder / "stop"
        self._accept_loss = folder / "accept-loss"
        self._said = folder / "spark.log"
        self._log = self._said.open("ab")
        self._read_to = 0
        self._own: list[bytes] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when the query has started."""
        said = self.begun()
        environment = os.environ | {
            "JAVA_TOOL_OPTIONS": JAVA,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TREECAST_RUNTIME_DIR": str(self._folder),
        }
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
        while self.begun() <= said:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the driver does not start: {self.tail()}")
            time.sleep(0.1)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begun(self) -> int:
        """Returns how often a query was started."""
        return self._lines().count(b"begun")

    def failures(self, word: bytes = b"") -> int:
        """Returns how often the query was restarted after a failure; with `word`, only failures whose text
        has it."""
        return sum(word in line for line in self._lines() if line.startswith(b"failed: "))

    def _lines(self) -> list[bytes]:
        """Returns the lines of `query.py` itself."""
        with self._said.open("rb") as said:
            said.seek(self._read_to)
            while (line := said.readline()).endswith(b"\n"):
                self._read_to += len(line)
                if line.startswith((b"begun", b"failed: ")):
                    self._own.append(line.rstrip())
        return self._own

    def accept_loss(self, accepted: bool) -> None:
        """Sets whether queries started from now on have failOnDataLoss=false."""
        if accepted:
            self._accept_loss.touch()
        else:
            self._accept_loss.unlink(missing_ok=True)

    def batch(self) -> int:
        """Returns the number of the newest finished batch, -1 for none, as noted in Spark's checkpoint."""
        noted = self._checkpoint / "commits"
        return max((int(path.name) for path in noted.glob("[0-9]*")), default=-1)

    def noted_id(self) -> str:
        """Returns the input topic's id of the newest finished batch; empty for none."""
        try:
            *_, last = (self._checkpoint / "offsets" / f"{self.batch()}").read_text().splitlines()
            return str(json.loads(last)["in"]["id"])
        except (OSError, ValueError, KeyError):
            return ""

    def hand_over(self, topic: str) -> None:
        """Lets the next start write to `topic` from a copy of the checkpoint, as in a blue-green
        deployment."""
        before = self._checkpoint
        self.topic, self._checkpoint = topic, self._folder / f"checkpoint-{topic}"
        shutil.copytree(before, self._checkpoint)

    def tail(self) -> str:
        return self._said.read_bytes()[-3000:].decode(errors="replace")

    def kill(self) -> None:
        """Kills JVM, Python and workers at once."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def kill_driver_alone(self) -> None:
        """Kills JVM and Python but not the workers, which go on until they notice."""
        assert self._process is not None
        jvms = [
            pid for pid, command in below(self._process.pid).items() if b"java" in command.split(b"\0")[0]
        ]
        for pid in (self._process.pid, *jvms):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def kill_worker(self, rng: random.Random) -> bool:
        """Kills one of the JVM's Python workers; returns False if there is none now."""
        assert self._process is not None
        found = below(self._process.pid)
        workers = sorted(pid for pid, command in found.items() if b"\0pyspark." in command)
        if not workers:
            return False
        with suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
        return True

    def end(self) -> None:
        """Stops the query in order, or kills it if that takes too long."""
        self._stop.touch()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
        self.kill()
        self._log.close()


def below(top: int) -> dict[int, bytes]:
    """Returns the command lines of all processes below `top`, by process id."""
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
