"""Kafka load for the scenarios about disks: the records sent, and the records that a host holds at the
end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .result import Options, Result
from .site import Site, Worker, workers

PARTITIONS = 2
PATIENCE_S = 180.0

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True)
class Ack:
    """The record is at an offset; the acknowledgement arrived at `at` (s)."""

    place: Place
    offset: int
    producer: int
    sequence: int
    at: float


def acks_of(file: Path, producer: int) -> Iterator[Ack]:
    """Reads the acknowledgements that a producer has written."""
    for line in file.read_text().splitlines():
        topic, partition, offset, sequence, at = line.split()
        yield Ack((topic, int(partition)), int(offset), producer, int(sequence), float(at))


class Load:
    """`topics`: each host's topic, by the host that leads it."""

    def __init__(self, site: Site, options: Options, folder: Path, result: Result) -> None:
        self.site = site
        self.options = options
        self.result = result
        self.topics = {host: f"load-{host}" for host in site.names}
        self._folder = folder
        self._files: list[Path] = []

    def create_topics(self) -> None:
        for host, topic in self.topics.items():
            self.site.create_topic(topic, PARTITIONS, host)

    def reader(self, role: str, host: str) -> Worker:
        """Starts a reader of all topics."""
        file = self._folder / f"{role}-{host}.txt"
        words = [role, self.site.daemons[host].kafka, file, "--partitions", PARTITIONS]
        return Worker(self.site, host, "disk_client.py", *words, "--topics", *self.topics.values())

    def producer(self, host: str, *topics: str, size: int = 200) -> Worker:
        number = len(self._files)
        file = self._folder / f"acks-{number}.txt"
        self._files.append(file)
        rate = self.options.rate / (len(self.site.names) + 1)
        words = ["produce", self.site.daemons[host].kafka, file, "--partitions", PARTITIONS, "--size", size]
        limits = ["--number", number, "--rate", rate]
        return Worker(self.site, host, "disk_client.py", *words, "--topics", *topics, *limits)

    def acks(self) -> Iterator[Ack]:
        for number, file in enumerate(self._files):
            yield from acks_of(file, number)

    def audited(self, host: str) -> dict[Place, dict[int, tuple[int, int]]]:
        """Returns (producer, sequence) by offset, as the host holds them at the end."""
        audit = self.reader("audit", host)
        with workers(audit):
            self.result.problems += audit.result(PATIENCE_S).problems
        found: dict[Place, dict[int, tuple[int, int]]] = {}
        for line in (self._folder / f"audit-{host}.txt").read_text().splitlines():
            topic, partition, offset, producer, sequence = line.split()
            found.setdefault((topic, int(partition)), {})[int(offset)] = (int(producer), int(sequence))
        return found
