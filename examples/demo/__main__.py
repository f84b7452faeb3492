"""The demo: `python -m examples.demo`, or `make demo`.

1. A daemon starts on an empty directory.
2. A kafka-python producer sends 100,000 records: the lines of this repository's own files.
3. A confluent-kafka group of two processes reads them; one is killed with SIGKILL, the other takes over.
4. The daemon is killed with SIGKILL while records are on their way, and started again.
5. The whole topic is read once more, and held against what was acknowledged.

Exit code 0 only if nothing is missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient, KafkaProducer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from treecast.middleware.daemon.process import DaemonProcess

ROOT = Path(__file__).resolve().parents[2]
TOPIC, GROUP, PARTITIONS = "text", "readers", 4
SOURCES = ("docs", "middleware", "shims", "tests", "examples")
SUFFIXES = {".md", ".py"}
PATIENCE_S = 60.0


class Amiss(Exception):
    """Something did not happen in time."""


def text_lines() -> Iterator[bytes]:
    """The lines of the repository's files, over and over."""
    files = sorted(
        path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES
    )
    lines = [line.encode() for path in files for line in path.read_text().splitlines() if line.strip()]
    return itertools.cycle(lines)


@dataclass
class Results:
    """What the table says. Times in s."""

    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    producing: float = 0.0
    read_by_first: int = 0
    read_by_second: int = 0
    read_again: int = 0
    reading: float = 0.0
    taken_over_after: float = 0.0
    acknowledged_at_kill: int = 0
    back_after: float = 0.0
    stored: int = 0
    stored_twice: int = 0
    missing_in_log: int = 0
    missing_for_group: int = 0
    wrong_content: int = 0
    first_had: list[int] = field(default_factory=list)

    @property
    def good(self) -> bool:
        bad = self.refused or self.missing_in_log or self.missing_for_group or self.stored_twice
        return self.acknowledged > 0 and not bad and not self.wrong_content


class Member:
    """A group member in a process of its own, and what it said it has read."""

    def __init__(self, address: str) -> None:
        self.read: Counter[int] = Counter()
        self.partitions: set[int] = set()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo.member", address, TOPIC, GROUP],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, *rest = line.split()
            if not line.endswith("\n"):
                return  # killed in the middle of a line
            if word == "has":
                self.partitions = {int(partition) for partition in rest}
            else:
                for part in rest:
                    self.read.update(int(number) for number in part.split(":")[1].split(","))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join(5)

    def end(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._listener.join(5)


class Sender(threading.Thread):
    """kafka-python's producer, and what it was told."""

    def __init__(self, address: str, records: int) -> None:
        super().__init__(daemon=True)
        self.records = records
        self.values: dict[int, bytes] = {}
        self.acknowledged: set[int] = set()
        self.refused: list[str] = []
        self.sent = 0
        self.seconds = 0.0
        self._producer = KafkaProducer(
            bootstrap_servers=address,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            compression_type="lz4",
            retry_backoff_ms=50,
        )

    def run(self) -> None:
        begun = time.monotonic()
        lines = text_lines()
        for number in range(self.records):
            self.values[number] = value = next(lines)
            future = self._producer.send(TOPIC, value, key=b"%d" % number)
            future.add_callback(lambda _, number=number: self.acknowledged.add(number))
            future.add_errback(lambda error, number=number: self.refused.append(f"{number}: {error}"))
            self.sent += 1
        self._producer.flush(PATIENCE_S)
        self.seconds = time.monotonic() - begun
        self._producer.close(timeout=5)


class Demo:
    """One run. `say` shows an event."""

    def __init__(self, records: int, say: Callable[[str], None], show: Callable[[int, int], None]) -> None:
        self.records = records
        self.results = Results()
        self._say = say
        self._show = show

    def run(self, folder: Path) -> Results:
        daemon = DaemonProcess(folder / "data")
        members: list[Member] = []
        try:
            begun = time.monotonic()
            daemon.start()
            self._say(f"the daemon serves Kafka at {daemon.kafka} ({time.monotonic() - begun:.2f} s)")
            with KafkaAdminClient(bootstrap_servers=daemon.kafka) as admin:
                admin.create_topics({TOPIC: {"num_partitions": PARTITIONS}})
            members = [Member(daemon.kafka), Member(daemon.kafka)]
            self._play(daemon, *members)
            return self.results
        finally:
            for member in members:
                member.end()
            if daemon.running:
                daemon.stop()
            daemon.clean_up()

    def _play(self, daemon: DaemonProcess, first: Member, second: Member) -> None:
        results = self.results
        self._wait(
            lambda: len(first.partitions) == len(second.partitions) == 2, "two members with two partitions"
        )
        results.first_had = sorted(first.partitions)
        self._say(f"two members share the partitions: {results.first_had} and {sorted(second.partitions)}")
        sender = Sender(daemon.kafka, self.records)
        begun = time.monotonic()
        sender.start()

        def read() -> int:
            return len(first.read.keys() | second.read.keys())

        def step() -> None:
            self._show(len(sender.acknowledged), read())

        self._wait(lambda: len(first.read) > self.records * 0.1, "the first member", step)
        first.kill()
        killed = time.monotonic()
        self._say(f"member 1 is killed with SIGKILL after {len(first.read):,} records")
        self._wait(lambda: len(sender.acknowledged) > self.records * 0.5, "half of the records", step)
        self._kill_daemon(daemon, sender)
        self._wait(lambda: len(second.partitions) == PARTITIONS, "member 2 to take over", step)
        results.taken_over_after = time.monotonic() - killed
        self._say(f"member 2 has all partitions, {results.taken_over_after:.1f} s after the kill of member 1")
        self._wait(lambda: not sender.is_alive(), "the producer", step)
        self._wait(lambda: read() >= len(sender.acknowledged), "the group to read everything", step)
        results.reading = time.monotonic() - begun
        self._count(sender, first, second)
        self._check_log(daemon.kafka, sender)

    def _kill_daemon(self, daemon: DaemonProcess, sender: Sender) -> None:
        daemon.pin_ports()
        daemon.kill()
        self.results.acknowledged_at_kill = len(sender.acknowledged)
        self._say(
            f"the daemon is killed with SIGKILL after {len(sender.acknowledged):,} acknowledged records"
        )
        begun = time.monotonic()
        daemon.start()
        self.results.back_after = time.monotonic() - begun
        self._say(f"the daemon is back after {self.results.back_after:.2f} s")

    def _wait(self, condition: Callable[[], bool], what: str, step: Callable[[], None] | None = None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise Amiss(f"waited {PATIENCE_S:g} s in vain for {what}")
            if step is not None:
                step()
            time.sleep(0.05)
        if step is not None:
            step()

    def _count(self, sender: Sender, first: Member, second: Member) -> None:
        results = self.results
        results.sent, results.acknowledged = sender.sent, len(sender.acknowledged)
        results.refused, results.producing = len(sender.refused), sender.seconds
        results.read_by_first, results.read_by_second = len(first.read), len(second.read)
        results.read_again = (first.read + second.read).total() - len(first.read.keys() | second.read.keys())
        results.missing_for_group = len(sender.acknowledged - (first.read.keys() | second.read.keys()))

    def _check_log(self, address: str, sender: Sender) -> None:
        """Reads the whole topic once more, from outside the group."""
        found: Counter[int] = Counter()
        for key, value in read_all(address):
            number = int(key)
            found[number] += 1
            self.results.wrong_content += sender.values.get(number) != value
        self.results.stored = len(found)
        self.results.stored_twice = found.total() - len(found)
        self.results.missing_in_log = len(sender.acknowledged - found.keys())


def read_all(address: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of the topic, to the end of each partition."""
    settings = {"bootstrap.servers": address, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(ended) < PARTITIONS:
            if time.monotonic() > deadline:
                raise Amiss("the topic could not be read to its end")
            for message in consumer.consume(5000, 0.1):
                if message.error() is None:
                    yield message.key(), message.value()
                else:
                    ended.add(message.partition())
    finally:
        consumer.close()


def table(results: Results) -> Table:
    shown = Table(title="nothing acknowledged is missing" if results.good else "[red]something is missing")
    shown.add_column("what")
    shown.add_column("records", justify="right")
    shown.add_column("", justify="right")

    def row(what: str, count: int, note: str = "", *, bad: bool = False) -> None:
        style = "" if not bad else "[red]" if count else "[green]"
        shown.add_row(what, f"{style}{count:,}", note)

    row("sent by kafka-python", results.sent)
    per_second = results.acknowledged / results.producing if results.producing else 0
    row("acknowledged", results.acknowledged, f"{per_second:,.0f}/s, with the restart")
    row(
        "acknowledged before the daemon was killed",
        results.acknowledged_at_kill,
        f"back in {results.back_after:.2f} s",
    )
    row("read by member 1, before it was killed", results.read_by_first)
    row("read by member 2", results.read_by_second, f"took over after {results.taken_over_after:.1f} s")
    row("read twice, not committed before a kill", results.read_again)
    row("in the log at the end", results.stored)
    shown.add_section()
    row("refused", results.refused, bad=True)
    row("acknowledged, not in the log", results.missing_in_log, bad=True)
    row("acknowledged, not read by the group", results.missing_for_group, bad=True)
    row("in the log twice", results.stored_twice, bad=True)
    row("with other content than was sent", results.wrong_content, bad=True)
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description="Treecast in half a minute.")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    options = parser.parse_args()
    console = Console(stderr=options.json)
    columns = (TextColumn("{task.description:>20}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="treecast-demo-") as folder,
        Progress(*columns, console=console) as progress,
    ):
        acknowledged = progress.add_task("acknowledged", total=options.records)
        read = progress.add_task("read by the group", total=options.records)

        def show(acks: int, reads: int) -> None:
            progress.update(acknowledged, completed=acks)
            progress.update(read, completed=reads)

        demo = Demo(options.records, lambda text: progress.console.print(f"- {text}"), show)
        try:
            results = demo.run(Path(folder))
        except Amiss as error:
            console.print(f"[red]{error}")
            return 1
    if options.json:
        results_json: dict[str, Any] = asdict(results) | {"good": results.good}
        print(json.dumps(results_json))
    else:
        console.print(table(results))
    return 0 if results.good else 1


if __name__ == "__main__":
    sys.exit(main())
