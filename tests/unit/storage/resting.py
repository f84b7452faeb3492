"""A daemon's resting logs, for tests: kept, stopped, killed, and observed."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from treecast.middleware.model.identity import ProducerIdentity
from treecast.middleware.storage import replicate
from treecast.middleware.storage.compaction import compact
from treecast.middleware.storage.disk import Disk
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.storage.segment import SharedFiles
from treecast.middleware.storage.summaries import LogSummaries

Kit = Any
LOG = "00000000000000000000.log"


class House:
    """A daemon's logs with their summaries: `logs` and `summaries` under one directory."""

    def __init__(self, kit: Kit, path: Path, disk: Disk | None = None) -> None:
        self.kit, self.path, self.disk = kit, path, disk
        (path / "logs").mkdir(parents=True, exist_ok=True)
        self.open: dict[str, PartitionLog] = {}
        self.begin()

    def begin(self) -> None:
        summaries = LogSummaries.open(str(self.path / "summaries"), str(self.path / "logs"))
        disk = self.disk or self.kit.FaultyDisk()
        self.shared = SharedFiles(disk, open_files=16, summaries=summaries)
        self.kept = summaries

    @property
    def summaries(self) -> LogSummaries:
        assert self.kept is not None
        return self.kept

    def log(self, name: str = "t-0", config: Any = None) -> PartitionLog:
        if name not in self.open:
            self.open[name] = self.kit.open(self.path / "logs" / name, config, shared=self.shared)
        return self.open[name]

    def stop(self, now_ms: int = 1000) -> None:
        for log in self.open.values():
            log.close(now_ms)
        if self.kept is not None:
            self.kept.save()
        self.leave()

    def leave(self) -> None:
        """Drops everything without a save, as a kill does."""
        self.open.clear()
        if self.kept is not None:
            self.kept.close()

    def restart(self) -> None:
        self.stop()
        self.begin()

    def kill(self) -> None:
        self.leave()
        self.begin()


class Told(NamedTuple):
    """The values of a log that users see before they read it."""

    start: int
    end: int
    stable: int
    epoch: int
    epochs: list[tuple[int, int]]
    size: int
    hangs: bool
    flushed: int


def told(log: PartitionLog) -> Told:
    return Told(
        log.start_offset,
        log.end_offset,
        log.stable_offset,
        log.leader_epoch,
        log.epoch_entries,
        log.size,
        log.has_open_transactions,
        log.flushed_offset,
    )


def known(log: PartitionLog) -> list[tuple[int, ...]]:
    """Returns the state of all its producers."""
    return [
        (
            *(one.producer_id, one.epoch, one.coordinator_epoch, one.transaction_start),
            *[number for batch in one.batches for number in (batch.last_sequence, batch.last_offset)],
        )
        for one in sorted(log.producers, key=lambda one: one.producer_id)
    ]


@contextmanager
def nothing_opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails if a file is opened or a directory listed."""

    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError(f"{args[0]} is opened")

    with monkeypatch.context() as patched:
        patched.setattr("builtins.open", refuse)
        patched.setattr(os, "open", refuse)
        patched.setattr(os, "listdir", refuse)
        yield


class Drill:
    """Runs random operations on a log."""

    def __init__(self, kit: Kit, house: House, seed: int, *, cuts: bool = True) -> None:
        """`cuts`: also truncates the log, as a replica does."""
        self.cuts = cuts
        self.kit, self.house, self.random = kit, house, random.Random(seed)
        self.config = kit.config(
            {
                "segment.bytes": self.random.choice([600, 4000, 1 << 20]),
                "index.interval.bytes": self.random.choice([0, 4096]),
                "cleanup.policy": self.random.choice(["delete", "compact", "compact,delete"]),
                "retention.bytes": self.random.choice([-1, 2000]),
                "min.cleanable.dirty.ratio": "0.01",
            }
        )
        self.sequences: dict[int, int] = {}
        self.now_ms = 1000
        self.open()

    def open(self) -> PartitionLog:
        self.log = self.house.log(config=self.config)
        return self.log

    def some(self) -> None:
        for _ in range(self.random.randint(1, 12)):
            self.now_ms += 10
            getattr(self, self.random.choice(["append", "append", "produce", "marker", "epoch", "less"]))()

    def append(self) -> None:
        pairs = [(b"k%d" % self.random.randrange(4), b"v" * self.random.randrange(80)) for _ in range(3)]
        self.kit.append(self.log, self.kit.keyed(*pairs, timestamp=self.now_ms), now_ms=self.now_ms)

    def produce(self) -> None:
        producer = self.random.randrange(3)
        sequence = self.sequences.get(producer, 0)
        made = self.kit.keyed(
            (b"p", b"v"),
            timestamp=self.now_ms,
            producer=ProducerIdentity(producer, 0),
            base_sequence=sequence,
            transactional=producer > 0,
        )
        self.kit.append(self.log, made, now_ms=self.now_ms)
        self.sequences[producer] = sequence + 1

    def marker(self) -> None:
        for producer in self.log.producers.open_transactions():
            ends = self.kit.marker(ProducerIdentity(producer, 0), committed=self.random.random() < 0.5)
            self.kit.append(self.log, ends, now_ms=self.now_ms)

    def epoch(self) -> None:
        self.log.begin_epoch(self.log.leader_epoch + 1)

    def less(self) -> None:
        self.log.roll(self.now_ms)
        self.log.flush(self.now_ms, checkpoint=self.random.random() < 0.5)
        compact(self.log, self.now_ms)
        self.log.clean(self.now_ms)
        if self.cuts and self.random.random() < 0.3:
            replicate.truncate_to(
                self.log, self.random.randint(self.log.start_offset, self.log.end_offset), self.now_ms
            )
            self.sequences = {one.producer_id: one.last_sequence + 1 for one in self.log.producers}
