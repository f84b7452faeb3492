"""Fixtures of the fault tests: raw connections, a client that must stay unaffected, and a daemon's
resources."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fault.open_files import with_open_files

from treecast.middleware.daemon.process import DaemonProcess

sys.path.insert(0, str(Path(__file__).parent))

from crash import wire
from crash.librdkafka import read_partitions

PATIENCE_S = 45.0


@pytest.fixture(scope="session")
def wire_client():
    """Returns the module `crash.wire`: a blocking client, and builders of requests and batches."""
    return wire


def _until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {PATIENCE_S:g} s in vain for {what}")
        time.sleep(0.01)


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    return _until


def _run(script: str, out: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Runs a resumable script once; returns its exit code, its summary and its output."""
    command = [sys.executable, str(Path(__file__).with_name(script)), "--out", str(out), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture(scope="session")
def fault_run() -> Callable[..., tuple[int, dict[str, Any], str]]:
    return _run


def read_topic(address: str, topic: str) -> list[tuple[int, bytes | None]]:
    """Returns (offset, value) of all records of partition 0."""
    found: list[tuple[int, bytes | None]] = []
    read_partitions(
        address,
        {(topic, 0): 0},
        "read_uncommitted",
        lambda _, offset, __, value: found.append((offset, value)),
    )
    return found


@pytest.fixture(scope="session")
def read_values() -> Callable[[str, str], list[tuple[int, bytes | None]]]:
    return read_topic


@pytest.fixture
def topic(daemon: DaemonProcess) -> str:
    """A topic with one record. The record must still be the only one after a test's rejected requests."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    connection = wire.Connection(daemon.kafka)
    connection.insist("CreateTopics", wire.create_topic(name, 1, {}), wire.first_topic_code)
    assert wire.produced(connection.ask(wire.produce(name, 0, wire.build_batch([(b"k", b"first")])))) == (
        0,
        0,
    )
    connection.close()
    return name


class Neighbour(threading.Thread):
    """A client that produces batches one after the other over one connection, and checks each reply."""

    def __init__(self, address: str) -> None:
        super().__init__(name="neighbour", daemon=True)
        self.topic = f"neighbour-{uuid.uuid4().hex[:8]}"
        self.sent: list[bytes] = []
        self.problem = ""
        self._address = address
        self._ended = threading.Event()
        self._connection = wire.Connection(address)
        self._connection.insist("CreateTopics", wire.create_topic(self.topic, 1, {}), wire.first_topic_code)

    def run(self) -> None:
        rng = random.Random(0)
        try:
            while not self._ended.is_set():
                value = b"%d" % len(self.sent)
                batch = wire.build_batch([(None, value)], rng.randrange(5))
                code, offset = wire.produced(self._connection.ask(wire.produce(self.topic, 0, batch)))
                if (code, offset) != (0, len(self.sent)):
                    self.problem = f"record {len(self.sent)}: error {code}, offset {offset}"
                    return
                self.sent.append(value)
                self._ended.wait(0.002)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def goes_on(self) -> None:
        """Waits until a few more of its records are acknowledged, which shows that it is served now."""
        goal = len(self.sent) + 5
        _until(lambda: len(self.sent) >= goal or self.problem, "the neighbour")
        assert not self.problem

    def finish(self) -> None:
        """Checks that it had no error and that all its records are stored."""
        self._ended.set()
        self.join(PATIENCE_S)
        self._connection.close()
        assert not self.problem
        assert len(self.sent) >= 5
        assert read_topic(self._address, self.topic) == list(enumerate(self.sent))


@pytest.fixture
def neighbour(daemon: DaemonProcess) -> Iterator[Neighbour]:
    client = Neighbour(daemon.kafka)
    client.start()
    client.goes_on()
    yield client
    client.goes_on()
    client.finish()


class Memory:
    """A process's resident memory and what it has read, in bytes, from /proc/PID."""

    def __init__(self, pid: int) -> None:
        self._path = Path(f"/proc/{pid}/status")
        self._io = Path(f"/proc/{pid}/io")
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
        self.start = self.now()

    def _field(self, name: str) -> int:
        [line] = [line for line in self._path.read_text().splitlines() if line.startswith(name)]
        return int(line.split()[1]) * 1024

    def now(self) -> int:
        return self._field("VmRSS:")

    def peak_growth(self) -> int:
        return self._field("VmHWM:") - self.start

    def bytes_read(self) -> int:
        """Returns the bytes that system calls have read from files and sockets since the process started."""
        return int(self._io.read_text().splitlines()[0].split()[1])


@pytest.fixture
def memory(daemon: DaemonProcess) -> Memory:
    return Memory(daemon.pid)


@pytest.fixture(scope="session")
def framed() -> Callable[..., bytes]:
    """Returns `framed(key, version, body)`, which builds a request with a version 1 header as bytes."""

    def build(
        key: int, version: int, body: bytes, *, size: int | None = None, flexible: bool = False
    ) -> bytes:
        header = struct.pack(">hhi", key, version, 7) + struct.pack(">h", 2) + b"me"
        rest = header + (b"\0" if flexible else b"") + body
        return struct.pack(">i", len(rest) if size is None else size) + rest

    return build


# --- a full disk

_BLOCK = 64 * 1024


@pytest.fixture
def small_disk(tmp_path: Path, require: Callable[[bool, str], None]) -> Iterator[Path]:
    """A file system of 24 MiB."""
    require(os.geteuid() == 0, "mounting a small file system takes root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "treecast-test", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    require(mounted.returncode == 0, f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def _fill(folder: Path) -> Path:
    path = folder / "filling"
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(_BLOCK)) == _BLOCK:
                pass
        except OSError:
            pass
    return path


@pytest.fixture(scope="session")
def fill() -> Callable[[Path], Path]:
    """Returns `fill(folder)`, which uses up all free space and returns the file that occupies it."""
    return _fill


@pytest.fixture
def limited(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    """A daemon that may open so many files as the module's `OPEN_FILES` says."""
    python = with_open_files(tmp_path, request.module.OPEN_FILES)
    with DaemonProcess(tmp_path / "data", python=str(python)) as started:
        yield started
