"""A tracking VNF: takes its scanner's reports, shares its sightings, and infers which devices moved here, and
how fast.

As a process it prints `ready` once it is subscribed to the others' states, starts its scanner on a line on
standard input (the start time), and prints one line of JSON at the end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from typing import Protocol

import msgspec

from treecast.shims import stare

from .city import PLACES
from .results import Found
from .tracker import Tracker, read_report

_SETTLED = 3.0  # seconds without an update after the last report


class Connection(Protocol):
    """The interface to STARE: `treecast.shims.stare.Vnf`, or the emulation's."""

    def state(self, name: str) -> int: ...

    def subscribe(self, state: int) -> object: ...

    def publish(self, state: int, value: bytes) -> object: ...


class Vnf:
    """The VNF of one place. Its owner passes reports and updates to it."""

    def __init__(self, place: str, stare: Connection) -> None:
        self.tracker = Tracker(place)
        self.updates = 0
        self.published = 0
        self.largest = 0
        self._stare = stare
        self.state = stare.state(f"mobility/{place}")
        for other in PLACES:
            if other != place:
                stare.subscribe(stare.state(f"mobility/{other}"))

    def report(self, line: bytes) -> None:
        """Handles a report of the scanner, and shares the last sightings."""
        value = self.tracker.report(read_report(line))
        self._stare.publish(self.state, value)
        self.published += 1
        self.largest = max(self.largest, len(value))

    def shared(self, value: bytes) -> None:
        """Handles an update of another VNF's state."""
        self.updates += 1
        self.tracker.shared(value)

    def found(self) -> Found:
        """Returns the findings."""
        movements = self.tracker.movements()
        return Found(self.tracker.name, self.published, self.updates, self.largest, movements)


class Process:
    """A VNF with its scanner, and a thread that waits for updates."""

    def __init__(self, vnf: Vnf, connected: stare.Vnf) -> None:
        self._vnf = vnf
        self._connected = connected
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def listen(self) -> None:
        """Listens until reports and updates have ended."""
        while True:
            update = self._connected.receive(_SETTLED)
            if update is not None:
                with self._lock:
                    self._vnf.shared(update.value)
            elif self._ended.is_set():
                return

    def run(self, scanner: subprocess.Popen[bytes]) -> Found:
        listener = threading.Thread(target=self.listen)
        listener.start()
        assert scanner.stdout is not None
        for line in scanner.stdout:
            with self._lock:
                self._vnf.report(line)
        self._ended.set()
        listener.join()
        return self._vnf.found()


def main() -> None:
    parser = argparse.ArgumentParser(prog="vnf")
    parser.add_argument("--place", choices=list(PLACES), required=True)
    given, scanner_options = parser.parse_known_args()
    with stare.Vnf(given.place) as connected:
        process = Process(Vnf(given.place, connected), connected)
        print("ready", flush=True)
        start = sys.stdin.readline().strip() or str(time.time())
        module = [sys.executable, "-m", "examples.mobility_tracking.scanner", "--place", given.place]
        command = [*module, *scanner_options, "--start", start]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as scanner:
            found = process.run(scanner)
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
