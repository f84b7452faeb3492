"""Eclipse's paho.mqtt.testing against our MQTT face, or against Mosquitto as the control.

    python -m tests.foreign.paho --suites DIR [--cluster | --control] [-k SELECT] [--json]

DIR holds a clone of github.com/eclipse/paho.mqtt.testing, or is one. Its client_test.py and client_test5.py
run. `--cluster`: our daemon is the second of two hosts, with all its faces and the fabric between them.

Exit code 0: exactly the tests on the allow list failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.core.ports import free_port

from treecast.middleware.daemon.process import DaemonProcess

from .suite import Outcome, known_failures, report

HERE = Path(__file__).resolve().parent
ALLOW_LIST = HERE / "paho.toml"
SCRIPTS = ("client_test", "client_test5")
# The scripts expect these beyond the protocol: a refused filter, and a keep-alive of at most 60 s.
FLAGS = ("--mqtt-refused-filters", "test/nosubscribe", "--mqtt-max-keep-alive", "60")
MQTT = ("--mqtt", "127.0.0.1:0", *FLAGS)
OURS = ("--kafka", "off", "--admin", "off", "--stare", "off", "--amqp", "off", *MQTT)
FABRIC = ("--fabric", "127.0.0.1:0")
MOSQUITTO = "listener {port} 127.0.0.1\nallow_anonymous true\nmax_keepalive 60\npersistence false\n"
LIMIT_S = 900


def find(suites: str) -> Path | None:
    """Returns the suite's `interoperability` folder under `suites`; None if it is missing."""
    for folder in (Path(suites), Path(suites) / "paho.mqtt.testing"):
        if (folder / "interoperability" / "client_test5.py").exists():
            return folder / "interoperability"
    return None


@contextlib.contextmanager
def treecast() -> Iterator[tuple[str, int]]:
    """Runs a daemon of our own."""
    with tempfile.TemporaryDirectory() as folder, DaemonProcess(Path(folder) / "data", OURS) as daemon:
        yield daemon.address("mqtt")


@contextlib.contextmanager
def cluster() -> Iterator[tuple[str, int]]:
    """Runs two hosts; the suite talks to the second only, the first has the coordinator."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "first"
        with DaemonProcess(data, ("--name", "first", *FABRIC, *MQTT)) as first:
            join = ("--join", first.control, "--join-token", f"@{data / 'join-token'}")
            with DaemonProcess(
                Path(folder) / "second", ("--name", "second", *FABRIC, *join, *MQTT)
            ) as daemon:
                yield daemon.address("mqtt")


@contextlib.contextmanager
def mosquitto() -> Iterator[tuple[str, int]]:
    """Runs the system's Mosquitto."""
    program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mosquitto.conf"
        config.write_text(MOSQUITTO.format(port=port))
        process = subprocess.Popen(
            [program, "-c", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait_for(port)
            yield "127.0.0.1", port
        finally:
            process.terminate()
            process.wait(30)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def run(folder: Path, address: tuple[str, int], select: str = "") -> Outcome:
    """Runs both scripts against the server at `address`."""
    outcome = Outcome()
    for script in SCRIPTS:
        command = [sys.executable, "-W", "ignore", str(HERE / "paho_driver.py"), script, address[0]]
        command += [str(address[1]), *(["-k", select] if select else [])]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        lines = done.stdout.strip().splitlines()
        if not lines or not lines[-1].startswith("{"):
            raise RuntimeError(f"{script} printed no result:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        found = json.loads(lines[-1])
        outcome.passed += [f"{script}::{test}" for test in found["passed"]]
        outcome.failed |= {f"{script}::{test}": why for test, why in found["failed"].items()}
        outcome.skipped |= {f"{script}::{test}": why for test, why in found["skipped"].items()}
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.foreign.paho", description=__doc__)
    parser.add_argument("--suites", default="", help="folder with paho.mqtt.testing")
    server = parser.add_mutually_exclusive_group()
    server.add_argument(
        "--cluster", action="store_true", help="test our daemon as one of two hosts, all faces on"
    )
    server.add_argument("--control", action="store_true", help="test Mosquitto instead of our daemon")
    parser.add_argument("-k", dest="select", default="", help="only tests that match, as unittest's -k")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    folder = find(options.suites)
    if folder is None:
        print(f"{options.suites or 'no folder'} holds no paho.mqtt.testing: clone it, and say --suites DIR")
        return 2
    start = mosquitto if options.control else cluster if options.cluster else treecast
    with start() as address:
        outcome = run(folder, address, options.select)
    known = [] if options.control else known_failures(ALLOW_LIST)
    lines = outcome.news(known) if not options.select else []
    return report(outcome, lines, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
