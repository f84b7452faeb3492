"""A tracking VNF: takes its scanner's reports, shares what it saw, and infers who moved here, how fast.

It prints `ready` when it is subscribed to the others' states, starts its scanner at a line on standard input
(the time at which to begin), and prints one line of JSON at the end.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from typing import Any

import msgspec

from treecast.shims import stare

from .city import PLACES
from .tracker import Tracker, read_report

_SETTLED = 3.0  # seconds without an update after the last report


class Vnf:
    """One place's."""

    def __init__(self, place: str, vnf: stare.Vnf) -> None:
        self.tracker = Tracker(place)
        self.updates = 0
        self.published = 0
        self.largest = 0
        self._vnf = vnf
        self._lock = threading.Lock()
        self.state = vnf.state(f"mobility/{place}")
        for other in PLACES:
            if other != place:
                vnf.subscribe(vnf.state(f"mobility/{other}"))
        self._ended = threading.Event()

    def listen(self) -> None:
        """Until the end of reports and of what others say."""
        while True:
            update = self._vnf.receive(_SETTLED)
            if update is not None:
                self.updates += 1
                with self._lock:
                    self.tracker.shared(update.value)
            elif self._ended.is_set():
                return

    def run(self, scanner: subprocess.Popen[bytes]) -> dict[str, Any]:
        listener = threading.Thread(target=self.listen)
        listener.start()
        assert scanner.stdout is not None
        for line in scanner.stdout:
            with self._lock:
                value = self.tracker.report(read_report(line))
            self._vnf.publish(self.state, value)
            self.published += 1
            self.largest = max(self.largest, len(value))
        self._ended.set()
        listener.join()
        return {
            "place": self.tracker.name,
            "published": self.published,
            "updates": self.updates,
            "largest": self.largest,
            "movements": self.tracker.movements(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="vnf")
    parser.add_argument("--place", choices=list(PLACES), required=True)
    given, scanner_options = parser.parse_known_args()
    with stare.Vnf(given.place) as connected:
        vnf = Vnf(given.place, connected)
        print("ready", flush=True)
        start = sys.stdin.readline().strip() or str(time.time())
        module = [sys.executable, "-m", "examples.mobility_tracking.scanner", "--place", given.place]
        command = [*module, *scanner_options, "--start", start]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as scanner:
            found = vnf.run(scanner)
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
