"""One visit: a daemon, its steady pairs, a stranger that comes and goes, and what is measured meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from tests.fault.open_files import with_open_files

from treecast.middleware.daemon.process import DaemonProcess

from .half_open import FACES as TLS_FACES
from .half_open import Hindered
from .place import Place
from .visitors import VISITORS

ROOT: Final = Path(__file__).resolve().parents[3]
MIB: Final = 1 << 20
FACES: Final = ("kafka", "amqp", "mqtt")
GONE_S: Final = 10.0  # after which nothing of a stranger is left
LOOK_S: Final = 0.2  # between looks at what is left
LONGEST_S: Final = 120.0  # of one act
OPEN_FILES: Final = 512  # so few that 600 connections would take them all

P99_S: Final = 0.050
MOST_BYTES: Final = 512 * MIB
# The daemon is back where it was within these. The allocator and caches may keep a little, and a p99 of 150
# messages moves by itself.
BYTES_LEFT: Final = 32 * MIB
FILES_LEFT: Final = 10
P99_LEFT_S: Final = 0.010


class Window(Struct, frozen=True):
    """The times of one window of the pairs. Seconds; `lost`: why a pair ended."""

    p50: Mapping[str, float]
    p99: Mapping[str, float]
    longest: Mapping[str, float]
    lost: Sequence[str]

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Window:
        times = {face: sorted(one["times"]) or [0.0] for face, one in told.items()}
        return cls(
            {face: some[len(some) // 2] for face, some in times.items()},
            {face: some[min(int(len(some) * 0.99), len(some) - 1)] for face, some in times.items()},
            {face: some[-1] for face, some in times.items()},
            [f"{face}: {one['problem']}" for face, one in told.items() if one["problem"]],
        )

    @property
    def worst(self) -> float:
        return max(self.p99.values())


class Pace(Struct, frozen=True):
    """Seconds of a visit. `quiet`: of each window without a stranger. `stay`: for which it stays after its
    last act. `gone`: after which nothing of it is left. `looks`: the visit goes on as soon as nothing is
    left, which leaves too few messages for a p99. `share`: of the number of strangers that are to be many.
    """

    quiet: float = 3.0
    stay: float = 2.0
    gone: float = GONE_S
    looks: bool = False
    share: float = 1.0


SHORT: Final = Pace(quiet=0.5, stay=1.0, looks=True, share=0.06)


class Use(Struct, frozen=True):
    """The resources that a process uses. `peak`: since the last reset; `cpu`: seconds since its start."""

    resident: int
    peak: int
    files: int
    cpu: float


class Visit(Struct, frozen=True):
    name: str
    did: str
    before: Window
    during: Window
    after: Window
    used_before: Use
    used: Use
    used_after: Use
    problems: Sequence[str]


class Pairs:
    """The process of the steady pairs."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        wanted = json.dumps({face: addresses[face] for face in FACES})
        command = [sys.executable, "-m", "tests.fault.strangers.steady", wanted]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the steady pairs ended")
        return line

    def window(self) -> Window:
        """Ends a window, and returns it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Window.of(json.loads(self._read()))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()


def use(pid: int) -> Use:
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Use(
        int(status["VmRSS"].split()[0]) * 1024,
        int(status["VmHWM"].split()[0]) * 1024,
        len(os.listdir(f"/proc/{pid}/fd")),
        (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK"),
    )


def password_file(folder: Path) -> Path:
    """Writes a password file as `mosquitto_passwd` does: guest, with the password guest."""
    salt = b"twelve bytes"
    digest = hashlib.pbkdf2_hmac("sha512", b"guest", salt, 100_000, 64)
    path = folder / "passwords"
    path.write_text(f"guest:$7$100000${b64encode(salt).decode()}${b64encode(digest).decode()}\n")
    path.chmod(0o600)
    return path


def visit(name: str, python: str, pace: Pace) -> Visit:
    """Runs one visit at a daemon of its own, which is a first host with a coordinator."""
    with tempfile.TemporaryDirectory(prefix="treecast-strangers-") as text:
        folder = Path(text)
        flags = ["--fabric", "127.0.0.1:0", "--mqtt-password-file", str(password_file(folder))]
        if VISITORS[name].tls:
            flags += _with_tls(folder)
        limited = with_open_files(folder, OPEN_FILES, os.path.abspath(python))
        daemon = DaemonProcess(folder / "data", flags, python=str(limited))
        try:
            daemon.start()
            return _visited(name, daemon, pace)
        finally:
            if daemon.running:
                daemon.kill()
            daemon.clean_up()


def _with_tls(folder: Path) -> list[str]:
    """Returns the flags of TLS faces, with a certificate of nobody."""
    pem = folder / "tls.pem"
    new = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    made = [
        *new,
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-keyout",
        str(pem),
        "-out",
        str(folder / "tls.crt"),
    ]
    subprocess.run(made, check=True, capture_output=True)
    pem.write_text(pem.read_text() + (folder / "tls.crt").read_text())
    found = []
    for face in TLS_FACES:
        found += [f"--{face}", "127.0.0.1:0", f"--{face}-certificate", str(pem)]
    return found


def _visited(name: str, daemon: DaemonProcess, pace: Pace) -> Visit:
    pairs, place = Pairs(daemon.ready), Place(daemon.ready, pace.share)
    try:
        place.call("/metrics", "GET")  # loads the admin address' pages
        time.sleep(1.0)  # first messages open files
        pairs.window()
        time.sleep(pace.quiet)
        before, used_before = pairs.window(), use(daemon.pid)
        Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")  # resets the peak
        did, hindered = _act(name, place)
        time.sleep(pace.stay)
        during, used = pairs.window(), use(daemon.pid)
        place.leave()
        _wait_until_gone(daemon.pid, used_before, pace)
        pairs.window()
        time.sleep(pace.quiet)
        after, used_after = pairs.window(), use(daemon.pid)
    finally:
        place.leave()
        pairs.close()
    problems = judged(before, during, after, used_before, used, used_after)
    problems += [hindered] if hindered else []
    if "Traceback" in daemon.log():
        problems.append("the daemon logged an error of its own")
    return Visit(name, did, before, during, after, used_before, used, used_after, problems)


def _wait_until_gone(pid: int, before: Use, pace: Pace) -> None:
    end = time.monotonic() + pace.gone
    while (left := end - time.monotonic()) > 0 and not (pace.looks and not _kept(before, use(pid))):
        time.sleep(min(left, LOOK_S))


def _act(name: str, place: Place) -> tuple[str, str]:
    """Acts on a thread of its own: a stranger that the daemon lets wait for ever does not end the run.

    Returns what it did, and who else was hindered.
    """
    did: list[str] = []
    hindered: list[str] = []

    def act() -> None:
        try:
            did.append(VISITORS[name].act(place))
        except Hindered as error:
            hindered.append(str(error))
        except OSError as error:
            did.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    return " ".join(did + hindered) or f"is not done after {LONGEST_S:.0f} s", " ".join(hindered)


def judged(
    before: Window, during: Window, after: Window, used_before: Use, used: Use, used_after: Use
) -> list[str]:
    """Returns what is wrong. Pure."""
    found = list(dict.fromkeys([*during.lost, *after.lost]))
    for face, p99 in during.p99.items():
        if p99 > P99_S:
            found.append(f"{face}: p99 {p99 * 1e3:.0f} ms beside the stranger, {P99_S * 1e3:.0f} is the most")
    for face, p99 in after.p99.items():
        if p99 > before.p99[face] + P99_LEFT_S:
            found.append(f"{face}: p99 {p99 * 1e3:.0f} ms after it, {before.p99[face] * 1e3:.0f} before")
    if used.peak > MOST_BYTES:
        found.append(f"{used.peak // MIB} MiB of memory, {MOST_BYTES // MIB} is the most")
    return found + _kept(used_before, used_after)


def _kept(before: Use, after: Use) -> list[str]:
    """Returns the memory and descriptors that the daemon keeps of a stranger that has gone."""
    found = []
    if after.resident > before.resident + BYTES_LEFT:
        found.append(f"{after.resident // MIB} MiB after it, {before.resident // MIB} before")
    if after.files > before.files + FILES_LEFT:
        found.append(f"{after.files} descriptors after it, {before.files} before")
    return found
