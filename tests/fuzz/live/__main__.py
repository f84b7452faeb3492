"""Random bytes that are almost right, at each face of a real daemon, beside a steady pair of each face.

    python -m tests.fuzz.live                            all faces, ten minutes each
    python -m tests.fuzz.live mqtt amqp --seconds 60 --seed 7

Faces: kafka, mqtt, amqp, management (the admin address) and control (calls of gRPC as this host's user may
make them, with random messages). No exception of the daemon's own may reach its log, every pair goes on,
memory does not go on growing, and no message of a pair takes more than 100 ms: that holds on a quiet machine
only, so it is judged with `--times on`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.fault.strangers.run import MIB, Pairs, password_file, use
from treecast.middleware.daemon.process import DaemonProcess

from . import amqp, control, kafka, management, mqtt

FACES: Final = ("kafka", "mqtt", "amqp", "management", "control")
_TALKS: Final[Mapping[str, ModuleType]] = {
    "kafka": kafka,
    "mqtt": mqtt,
    "amqp": amqp,
    "management": management,
}
_LISTENERS: Final = {"management": "admin"}
LONGEST_S: Final = 0.100
GROWTH: Final = 48 * MIB  # of the second half of a run: what was defined in the first half is there by then
_READ_S: Final = 0.002


def talk(address: tuple[str, int], pieces: list[bytes], rng: random.Random) -> str:
    """Sends the pieces on one connection. Returns how it ended."""
    with contextlib.closing(socket.create_connection(address, 10)) as to:
        to.settimeout(10)
        try:
            for piece in pieces:
                to.sendall(piece)
                if rng.random() < 0.5:
                    to.settimeout(_READ_S)
                    with contextlib.suppress(TimeoutError):
                        if not to.recv(1 << 16):
                            return "closed by the daemon"
                    to.settimeout(10)
        except OSError as error:
            return type(error).__name__
    return "closed by the client"


@contextlib.contextmanager
def acting(face: str, daemon: DaemonProcess, rng: random.Random) -> Iterator[Callable[[], list[str]]]:
    """Yields what is repeated: one connection, or some calls. Each returns outcomes."""
    if face == "control":
        with contextlib.closing(control.Caller(daemon.control, daemon.data)) as caller:
            yield lambda: list(caller.calls(rng))
        return
    address = daemon.address(_LISTENERS.get(face, face))
    yield lambda: [talk(address, _TALKS[face].conversation(rng), rng)]


def run(face: str, seconds: float, seed: int, python: str, *, times: bool) -> dict[str, Any]:
    """Runs one face at a daemon of its own. Returns what was seen, with `problems`."""
    with tempfile.TemporaryDirectory(prefix="treecast-fuzz-") as text:
        folder = Path(text)
        flags = ["--fabric", "127.0.0.1:0", "--mqtt-password-file", str(password_file(folder))]
        daemon = DaemonProcess(folder / "data", flags, python=python)
        try:
            daemon.start()
            return _run(face, seconds, random.Random(f"{face} {seed}"), daemon, times=times)
        finally:
            if daemon.running:
                daemon.kill()
            daemon.clean_up()


def _run(
    face: str, seconds: float, rng: random.Random, daemon: DaemonProcess, *, times: bool
) -> dict[str, Any]:
    pairs, outcomes, problems = Pairs(daemon.ready), Counter[str](), []
    longest, sizes = 0.0, []
    begun = looked = time.monotonic()
    with contextlib.closing(pairs), acting(face, daemon, rng) as repeat:
        try:
            pairs.window()
            while (now := time.monotonic()) < begun + seconds and daemon.running and not problems:
                outcomes.update(repeat())
                if now > looked + min(5.0, seconds / 8):
                    looked = now
                    window = pairs.window()
                    longest = max(longest, *window.longest.values())
                    problems += window.lost
                    sizes.append(use(daemon.pid).resident)
        except ConnectionRefusedError as error:
            problems.append(f"no new connections: {error}")
    problems += judged(daemon, sizes, longest if times else 0.0)
    return {
        "face": face,
        "seconds": round(time.monotonic() - begun),
        "outcomes": dict(outcomes.most_common()),
        "longest_ms": round(longest * 1e3),
        "memory_mib": [size // MIB for size in sizes[:: max(len(sizes) // 8, 1)]],
        "problems": problems,
    }


def judged(daemon: DaemonProcess, sizes: list[int], longest: float) -> list[str]:
    found, log = [], daemon.log()
    if not daemon.running:
        found.append(f"the daemon ended: {log[-2000:]}")
    if (at := log.find("Traceback")) >= 0:
        line = log[log.rfind("\n", 0, at) + 1 :].partition("\n")[0]
        found.append(f"the daemon logged an error of its own: {line[:3000]}")
    half = sizes[len(sizes) // 2 :]
    if half and half[-1] > half[0] + GROWTH:
        found.append(f"memory grew from {half[0] // MIB} to {half[-1] // MIB} MiB in the second half")
    if longest > LONGEST_S:
        found.append(f"a message of a pair took {longest * 1e3:.0f} ms, {LONGEST_S * 1e3:.0f} is the most")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.live", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("faces", nargs="*", choices=[*FACES, []], help="all without any")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each face")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the daemon")
    parser.add_argument("--times", choices=("on", "off"), default="off", help="whether 100 ms is judged")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for face in options.faces or FACES:
        one = run(face, options.seconds, options.seed, options.python, times=options.times == "on")
        found.append(one)
        if not options.json:
            print(f"{face}: {one['seconds']} s, {sum(one['outcomes'].values())} turns: {one['outcomes']}")
            print(f"  longest {one['longest_ms']} ms; memory (MiB) {one['memory_mib']}")
            print(
                "\n".join(f"  PROBLEM {text}" for text in one["problems"]) or "  nothing is wrong", flush=True
            )
    if options.json:
        print(json.dumps(found))
    return 1 if any(one["problems"] for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
