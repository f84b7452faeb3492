"""Problems around a separate coordinator process: its disk, and its file descriptors."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from treecast.middleware.daemon.process import DaemonProcess, parse_ready

pytestmark = pytest.mark.fault

WAIT = 60
FABRIC = ("--fabric", "127.0.0.1:0")
CLI = (sys.executable, "-m", "treecast.middleware.cli")


class Coordinator:
    """A running coordinator. `log` has a line for each log entry."""

    def __init__(self, folder: Path, data: Path, before: Sequence[str] = ()) -> None:
        self._log = folder / "coordinator.log"
        self.token = f"@{data / 'join-token'}"
        command = [*before, *CLI, "coordinator", "--data", str(data), "--control", "127.0.0.1:0"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        self.control = parse_ready(self.process.stdout.readline().decode())["control"]

    def log(self) -> list[str]:
        return self._log.read_text().splitlines()

    def logged(self, text: str) -> int:
        return sum(text in line for line in self.log())

    def status(self) -> dict[str, object]:
        words = ["status", "--coordinator", self.control, "--join-token", self.token, "--json"]
        done = subprocess.run([*CLI, *words], capture_output=True, text=True, timeout=WAIT, check=False)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(WAIT)
        finally:
            self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()


@contextmanager
def running(folder: Path, data: Path, before: Sequence[str] = ()) -> Iterator[Coordinator]:
    started = Coordinator(folder, data, before)
    try:
        yield started
    finally:
        started.close()


def asked(daemon: DaemonProcess, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [*CLI, *words, "--control", daemon.control],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_coordinators_full_disk_is_told_and_it_goes_on_by_itself(
    start_daemon: Callable[..., DaemonProcess],
    until: Callable[..., None],
    small_disk: Path,
    tmp_path: Path,
    fill: Callable[[Path], Path],
) -> None:
    with running(tmp_path, small_disk / "data") as coordinator:
        daemon = start_daemon(
            "--name", "a", *FABRIC, "--join", coordinator.control, "--join-token", coordinator.token
        )
        assert asked(daemon, "topics", "create", "before")[0] == 0
        found = coordinator.status()
        assert (found["hosts"], found["problems"]) == (1, [])
        assert found["pid"] == coordinator.process.pid
        assert 0 < int(str(found["disk_free_bytes"])) <= int(str(found["disk_bytes"])) <= 24 << 20
        filling = fill(small_disk)
        until(lambda: coordinator.logged("refuses writes"), "the coordinator to say so")
        code, said = asked(daemon, "topics", "create", "meanwhile")
        assert code != 0, said
        for _ in range(3):
            assert asked(daemon, "topics", "create", "meanwhile")[0] != 0
        problems = coordinator.status()["problems"]
        assert isinstance(problems, list)
        (problem,) = problems
        assert str(small_disk / "data") in problem
        assert "Topics cannot be created or changed" in problem
        # Its problem, or its refusal of the host's attachment, which it cannot write either.
        told = str(small_disk / "data")
        until(lambda: told in asked(daemon, "status")[1], "the host's own status to report it as well")
        assert asked(daemon, "topics", "list")[0] == 0
        filling.unlink()
        until(
            lambda: coordinator.logged("accepts writes again"),
            "the coordinator to report that the disk has room",
        )
        assert asked(daemon, "topics", "create", "after")[0] == 0
        assert coordinator.status()["problems"] == []
        assert coordinator.logged("refuses writes") == coordinator.logged("accepts writes again") == 1
        refused = int(str(coordinator.status()["refused_writes"]))
        assert 0 < coordinator.logged("coordinator's store refused") <= refused.bit_length()


def test_a_coordinators_descriptors_that_are_used_up_are_told(
    start_daemon: Callable[..., DaemonProcess], until: Callable[..., None], tmp_path: Path
) -> None:
    limited = ("sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
    with running(tmp_path, tmp_path / "coordinator", limited) as coordinator:
        daemon = start_daemon(
            "--name", "a", *FABRIC, "--join", coordinator.control, "--join-token", coordinator.token
        )
        host, port = coordinator.control.split(":")
        with ExitStack() as clients:
            for _ in range(64):
                clients.enter_context(socket.create_connection((host, int(port)), WAIT))
            until(lambda: coordinator.logged("no file descriptors are left"), "the coordinator to say so")
            until(
                lambda: "at the coordinator: no file descriptors are left" in asked(daemon, "status")[1],
                "the connected host to report it",
            )
            assert asked(daemon, "topics", "create", "meanwhile")[0] == 0
        until(lambda: coordinator.logged("file descriptors are free again"), "free file descriptors")
        until(lambda: coordinator.status()["problems"] == [], "a status without problems")
        assert coordinator.logged("no file descriptors are left") == 1


def test_the_coordinators_status_needs_the_token(tmp_path: Path) -> None:
    with running(tmp_path, tmp_path / "coordinator") as coordinator:
        words = [*CLI, "status", "--coordinator", coordinator.control]
        without = subprocess.run(words, capture_output=True, text=True, timeout=WAIT, check=False)
        assert (without.returncode, "--join-token" in without.stderr) == (1, True)
        shown = subprocess.run(
            [*words, "--join-token", coordinator.token],
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=False,
        )
        assert f"pid {coordinator.process.pid}" in shown.stdout
        assert os.fspath(tmp_path / "coordinator") in shown.stdout
