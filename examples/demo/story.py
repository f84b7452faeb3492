"""The steps of the demo."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient

from treecast.middleware.daemon.process import DaemonProcess

from .clients import PARTITIONS, PATIENCE_S, TOPIC, Amiss, Member, Sender, read_all
from .faces import FACES, exchange
from .results import Results

ACCOUNT = ("addressed", "live", "repaired", "replayed", "expired")


class Demo:
    """One run. `say` shows an event, `show` the numbers of acknowledged and read records."""

    def __init__(self, records: int, say: Callable[[str], None], show: Callable[[int, int], None]) -> None:
        self.records = records
        self.results = Results()
        self._say = say
        self._show = show
        self._sender: Sender | None = None
        self._members: list[Member] = []

    def run(self, folder: Path) -> Results:
        north = DaemonProcess(folder / "north", ["--name", "north", "--fabric", "127.0.0.1:0"])
        south = DaemonProcess(folder / "south", ["--name", "south", "--fabric", "127.0.0.1:0"])
        try:
            self._start(north, south)
            self._play(north, south)
            return self.results
        finally:
            for member in self._members:
                member.end()
            for daemon in (south, north):
                if daemon.running:
                    daemon.stop()
                daemon.clean_up()

    # --- the phases

    def _start(self, north: DaemonProcess, south: DaemonProcess) -> None:
        begun = time.monotonic()
        north.start()
        south.flags += ["--join", north.control, "--join-token", f"@{north.data / 'join-token'}"]
        south.start()
        took = time.monotonic() - begun
        self._say(f"north serves Kafka at {north.kafka}, south at {south.kafka} ({took:.2f} s)")
        with KafkaAdminClient(bootstrap_servers=north.kafka) as admin:
            admin.create_topics({TOPIC: {"num_partitions": PARTITIONS}})
        self._wait(lambda: TOPIC in topics(south), "south to know the topic")
        self._members = [Member(south.kafka), Member(south.kafka)]

    def _play(self, north: DaemonProcess, south: DaemonProcess) -> None:
        first, second = self._members
        self._wait(
            lambda: len(first.partitions) == len(second.partitions) == 2, "two members with two partitions"
        )
        self._say(
            f"two members beside south share {sorted(first.partitions)} and {sorted(second.partitions)}"
        )
        sender = self._sender = Sender(north.kafka, self.records)
        sender.start()
        self._wait(lambda: len(first.read) > self.records * 0.1, "the first member")
        first.kill()
        killed = time.monotonic()
        self._say(f"member 1 is killed with SIGKILL after {len(first.read):,} records")
        self._wait(lambda: len(sender.acknowledged) > self.records * 0.4, "40 % of the records")
        self._kill(north, "north")
        self._wait(lambda: len(second.partitions) == PARTITIONS, "member 2 to take over")
        self.results.taken_over_after = time.monotonic() - killed
        self._say(f"member 2 has all partitions, {self.results.taken_over_after:.1f} s after member 1's kill")
        self._wait(lambda: len(sender.acknowledged) > self.records * 0.7, "70 % of the records")
        self._kill(south, "south")
        self._wait(lambda: not sender.is_alive(), "the producer")
        self._wait(lambda: self._read() >= len(sender.acknowledged), "the group to read everything")
        self._count(sender, first, second)
        self._check_logs(north, south, sender)
        self._check_account(north)
        self._exchange(north, south)

    def _exchange(self, north: DaemonProcess, south: DaemonProcess) -> None:
        self.results.faces = exchange(north, south, self._wait)
        self._say(f"an order by {', '.join(FACES)} beside north is at each of the three beside south")

    def _kill(self, daemon: DaemonProcess, name: str) -> None:
        assert self._sender is not None
        daemon.pin_ports()
        daemon.kill()
        acknowledged = len(self._sender.acknowledged)
        self.results.acknowledged_at_kill[name] = acknowledged
        self._say(f"{name} is killed with SIGKILL after {acknowledged:,} acknowledged records")
        begun = time.monotonic()
        daemon.start()
        self.results.back_after[name] = time.monotonic() - begun
        self._say(f"{name} is back after {self.results.back_after[name]:.2f} s")

    def _read(self) -> int:
        return len(set().union(*(member.read.keys() for member in self._members)))

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise Amiss(f"waited {PATIENCE_S:g} s in vain for {what}")
            self._step()
            time.sleep(0.05)
        self._step()

    def _step(self) -> None:
        if self._sender is not None:
            self._show(len(self._sender.acknowledged), self._read())

    # --- what is counted

    def _count(self, sender: Sender, first: Member, second: Member) -> None:
        results = self.results
        results.sent, results.acknowledged = sender.sent, len(sender.acknowledged)
        results.refused, results.producing = len(sender.refused), sender.seconds
        results.read_by_first, results.read_by_second = len(first.read), len(second.read)
        results.read_again = (first.read + second.read).total() - self._read()
        results.missing_for_group = len(sender.acknowledged - (first.read.keys() | second.read.keys()))

    def _check_logs(self, north: DaemonProcess, south: DaemonProcess, sender: Sender) -> None:
        """Reads the whole topic once more from each host, from outside the group."""
        found: Counter[int] = Counter()
        stored = {}
        for place, key, value in read_all(north.kafka):
            number = int(key)
            found[number] += 1
            stored[place] = number
            self.results.wrong_content += sender.values.get(number) != value
        self.results.stored = len(found)
        self.results.stored_twice = found.total() - len(found)
        self.results.missing_in_log = len(sender.acknowledged - found.keys())
        elsewhere = {place: int(key) for place, key, _ in read_all(south.kafka)}
        self.results.different_elsewhere = len(elsewhere.items() ^ stored.items())

    def _check_account(self, north: DaemonProcess) -> None:
        """Reads north's accounts, once nothing is outstanding."""
        rows: list[dict[str, Any]] = []

        def closed() -> bool:
            rows[:] = [row for stream in treecast(north, "streams") for row in stream["accounts"]]
            return not any(row["outstanding"] for row in rows)

        try:
            self._wait(closed, "the accounts to close")
        except Amiss:
            self.results.outstanding = sum(row["outstanding"] for row in rows)
        for name in ACCOUNT:
            values = [row[name] for row in rows]
            self.results.account[name] = sum(
                sum(value.values()) if isinstance(value, dict) else value for value in values
            )


def topics(daemon: DaemonProcess) -> list[str]:
    return [topic["name"] for topic in treecast(daemon, "topics", "list")]


def treecast(daemon: DaemonProcess, *words: str) -> Any:
    """Returns the JSON output of the `treecast` command for this daemon."""
    command = [sys.executable, "-m", "treecast.middleware.cli", *words, "--json", "--control", daemon.control]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Amiss(f"treecast {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)
