"""`treecast pipeline` as a child process, in a process group of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # short runs: half of the processor time
ATTEMPTS = 5  # a busy machine starts Spark's Python workers too slowly
PATIENCE = 900.0  # seconds until a run gives up
GIVEN = ("--master", "local[1]", "--parts", "1")


class PipelineCommand:
    """The command on one folder. `scratch`: a runtime directory without a daemon. `python`: of the
    installation whose command it is.
    """

    def __init__(self, folder: Path, scratch: Path, python: str = sys.executable) -> None:
        self.folder = folder
        self._scratch = scratch
        self._python = python
        self.log = ""

    def start(self, name: str, *options: str) -> subprocess.Popen[str]:
        env = os.environ | {"JDK_JAVA_OPTIONS": JAVA, "TREECAST_RUNTIME_DIR": str(self._scratch)}
        words = [self._python, "-m", "treecast.middleware.cli", "pipeline", name]
        return subprocess.Popen(
            [*words, "--data", str(self.folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self._scratch,  # and not this repository, whose package another installation would import
            env=env,
            start_new_session=True,
        )

    def ended(self, name: str, *options: str) -> str:
        """Runs the command to its end; what a busy machine has let fail is run again. Returns what it says.
        Raises RuntimeError.
        """
        for _ in range(ATTEMPTS):
            started = self.start(name, *options)
            said, _ = started.communicate(timeout=PATIENCE)
            self.log = said
            if started.returncode == 0:
                return said
        raise RuntimeError(f"treecast pipeline {name} fails: {said[-2000:]}")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ended("status", "--json"))
        return found


def until_killed(started: subprocess.Popen[str], due: Callable[[], bool], kill: Callable[[], bool]) -> bool:
    """Kills as soon as it is due. Returns whether it did: the command may have ended before."""
    while started.poll() is None and not due():
        time.sleep(0.02)
    return started.poll() is None and kill()


def kill_group(started: subprocess.Popen[str]) -> bool:
    """Kills the driver with its JVM and its workers."""
    os.killpg(started.pid, signal.SIGKILL)
    return True


def kill_worker(started: subprocess.Popen[str]) -> bool:
    """Kills one of the Python workers that run an executor's tasks; false if there is none."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
            group = os.getpgid(int(path.name))
        except OSError:
            continue  # it has ended meanwhile
        if group == started.pid and b"pyspark.daemon" in words:
            os.kill(int(path.name), signal.SIGKILL)
            return True
    return False
