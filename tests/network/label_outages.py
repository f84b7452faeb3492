"""`python -m tests.network.label_outages`: how long readers wait when a link is cut and a switch is killed.

Needs root. alpha sends records at a steady rate to beta and gamma, over five label switches with a second
way. It prints the longest time between two records at each reader after each event, and exits with 1 if one
is above `--most` seconds, or if a record is missing, doubled or out of order.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from kafka import KafkaProducer
from tests.network.label_site import LabelSite
from tests.network.srv6_site import READERS, RECORD, TOPIC, end, quiet, wait_until

from treecast.middleware.dataplane.lab.description import Description
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import inside

CUT = ("s2", "s4")
WATCHED = 12.0  # seconds after an event


class Arrivals:
    """The records of one reader, with the times when they came."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.got: list[tuple[int, float]] = []
        self._process = process
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            self.got.append((int(json.loads(text)["value"].partition(":")[0]), time.monotonic()))

    def gap(self, since: float) -> float:
        """Returns the longest time without a record since then."""
        times = [since, *[at for _, at in self.got if at >= since]]
        return max([after - before for before, after in pairwise(times)], default=0.0)


@contextlib.contextmanager
def records(site: LabelSite, rate: float) -> Iterator[Callable[[], int]]:
    """Sends records meanwhile; yields the number sent so far."""
    ended, count = threading.Event(), [0]

    def run() -> None:
        producer = KafkaProducer(bootstrap_servers=f"{site.url('alpha')}:9092", linger_ms=5)
        start = time.monotonic()
        while not ended.wait(max(0.0, start + count[0] / rate - time.monotonic())):
            producer.send(TOPIC, b"%d:" % count[0] + RECORD)
            count[0] += 1
        producer.flush(60)
        producer.close()

    thread = threading.Thread(target=inside, args=(site.lab.namespace("alpha"), run))
    thread.start()
    try:
        yield lambda: count[0]
    finally:
        ended.set()
        thread.join()


def measured(site: LabelSite, rate: float) -> tuple[dict[tuple[str, str], float], bool]:
    """Returns the gaps by event and reader, and whether all came once and in order."""
    site.create_topic()
    arrivals = {host: Arrivals(site.reader(host)) for host in READERS}
    found: dict[tuple[str, str], float] = {}
    with records(site, rate) as sent:
        wait_until(lambda: all(one.got for one in arrivals.values()), "nothing arrives")
        wait_until(lambda: site.hosts_by_trees() >= len(READERS), "streams do not go by labels")
        for event, act in (
            (f"cut {CUT[0]}-{CUT[1]}", site.lab.link(*CUT).cut),
            (f"heal {CUT[0]}-{CUT[1]}", site.lab.link(*CUT).heal),
            ("kill s4", lambda: site.lab.kill_switch("s4")),
        ):
            at = time.monotonic()
            act()
            time.sleep(WATCHED)
            found |= {(event, host): one.gap(at) for host, one in arrivals.items()}
    count = sent()
    wait_until(lambda: all(len(one.got) >= count for one in arrivals.values()), "records are missing")
    return found, all([n for n, _ in one.got] == list(range(count)) for one in arrivals.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="label_outages", description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=float, default=100.0, help="records per second")
    parser.add_argument("--most", type=float, default=5.0, help="seconds without a record")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as labs:

        def start(described: object, *, seed: int = 1) -> Lab:
            assert isinstance(described, Description)
            return labs.enter_context(Lab.up(described, seed=seed))

        site = LabelSite(start, Path(folder), relayed=[CUT], probe=0.5)
        gaps, whole = measured(site, given.rate)
        for said in quiet(site):
            print(said, end="")
        end(site.controller)
    for (event, host), seconds in gaps.items():
        print(f"{event:12} {host:6} longest time without a record: {seconds:.1f} s")
    print("all records once, in order" if whole else "records are doubled or out of order")
    return int(not whole or max(gaps.values()) > given.most)


if __name__ == "__main__":
    sys.exit(main())
