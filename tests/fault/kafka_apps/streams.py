"""Kafka Streams with processing.guarantee=exactly_once_v2: a copy, and counts in a state store."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bench.peers.kafka.jars import class_path

from .records import Feeder, Reader, make_topics
from .site import Account, App, Worker, account

INSTANCES = 2
PARTITIONS = 4
SOURCE, TARGET, COUNTS = "source", "target", "counts"


@dataclass
class Streams(App):
    """Two instances of Count.java."""

    name = "Kafka Streams"

    def start(self) -> None:
        address = self.daemon("daemon").kafka
        make_topics(address, {SOURCE: PARTITIONS, TARGET: PARTITIONS, COUNTS: PARTITIONS})
        self.feeder = Feeder(address, SOURCE, PARTITIONS, self.rate)
        self._source, self.reader, self._counts = (
            Reader(address, topic) for topic in (SOURCE, TARGET, COUNTS)
        )
        classes = self.folder / "classes"
        source = Path(__file__).with_name("Count.java")
        compiler = ["javac", "-encoding", "UTF-8", "-cp", class_path(), "-d", str(classes), str(source)]
        subprocess.run(compiler, check=True)
        for number in range(INSTANCES):
            words = ["Count", address, "count", SOURCE, TARGET, COUNTS, str(self.folder / f"state-{number}")]
            words.append("exactly_once_v2" if self.once else "at_least_once")
            self.workers.append(Worker(f"instance-{number}", words, self.folder, str(classes)))
            self.workers[-1].start()

    def accounts(self) -> list[Account]:
        self.reader.look()
        copied = [value for _, value in self.reader.records]
        return [
            account("copy", self.feeder.values, copied, exact=True),
            self._of_counts(),
        ]

    def _of_counts(self) -> Account:
        """Compares the last count of each digit with the number of records."""
        self._source.look()
        self._counts.look()
        there_are = Counter(value[-1:] for _, value in self._source.records)
        counted = {key: int(value) for key, value in self._counts.records}
        short = sum(max(0, there_are[digit] - counted.get(digit, 0)) for digit in there_are)
        over = sum(max(0, counts - there_are[digit or b""]) for digit, counts in counted.items())
        return Account("counts", there_are.total(), sum(counted.values()), short, over, exact=True)
