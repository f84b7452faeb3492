"""One life of a data directory: repeated load, kill, restart and checks, then a thorough end."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from treecast.middleware.daemon.process import DaemonFailed, DaemonProcess

from . import wire
from .librdkafka import GroupLedger, GroupMember, LibrdkafkaProducer, read_partitions
from .oracle import OffsetLedger, Oracle, Place
from .workers import (
    PARTITIONS,
    CompactedProducer,
    Gate,
    IdempotentProducer,
    OffsetCommitter,
    Producer,
    TopicMaker,
    TransactionalProducer,
    Worker,
)

# Small segments and sparse indexes make it likely that a kill interrupts a roll, an index or a compaction.
TOPICS = {
    "plain": {"segment.bytes": "300000"},
    "idempotent": {"segment.bytes": "100000", "index.interval.bytes": "512"},
    "transactional": {"segment.bytes": "60000"},
    "librdkafka": {"segment.bytes": "200000", "message.timestamp.type": "LogAppendTime"},
    "compacted": {
        "segment.bytes": "30000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
FSYNC = ("interval", "never", "batch")
LAST_LOAD = 0.5  # seconds, at the end of a life


@dataclass
class Cycle:
    """The kills of one cycle. Times in s; `during_start` counts from the start of the restart, None: no
    second kill."""

    number: int
    load_for: float
    during_start: float | None

    @classmethod
    def of(cls, seed: int, number: int) -> Cycle:
        rng = random.Random(f"{seed}-{number}")
        load = rng.choice((rng.uniform(0.0, 0.1), rng.uniform(0.1, 1.0), rng.uniform(0.1, 1.0)))
        start = rng.uniform(0.0, 1.0) if rng.random() < 0.2 else None
        return cls(number, load, start)


@dataclass
class Times:
    restarts: list[float] = field(default_factory=list)
    kills: int = 0
    kills_during_start: int = 0


class Episode:
    """`python` runs the daemon. Raises DaemonFailed if the daemon does not come back."""

    def __init__(self, folder: Path, seed: int, number: int, python: str, fsync: str | None) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.seed = seed * 1000 + number
        self.fsync = fsync or FSYNC[number % len(FSYNC)]
        self.oracle = Oracle()
        self.times = Times()
        self.usual_start = 0.7  # seconds
        flags = ["--fsync", self.fsync, "--log-format", "json", "--admin", "off", "--control", "off"]
        self.daemon = DaemonProcess(folder / "data", flags, python=python)
        self.daemon.log_path = folder / "daemon.log"
        self.gate = Gate()
        self.workers: list[Worker] = []
        self.members: list[GroupMember] = []
        self.members_ledger = GroupLedger()

    # --- life

    def begin(self) -> None:
        self.daemon.start()
        self.daemon.pin_ports()
        address = self.daemon.kafka
        connection = wire.Connection(address)
        for topic, config in TOPICS.items():
            request = wire.create_topic(topic, PARTITIONS, {"retention.ms": "-1", **config})
            connection.insist("CreateTopics", request, wire.first_topic_code)
        connection.close()
        self._make_workers(address)
        for worker in (*self.workers, self.librdkafka, *self.members):
            worker.start()

    def _make_workers(self, address: str) -> None:
        common = {"address": lambda: address, "oracle": self.oracle, "gate": self.gate, "seed": self.seed}
        self.transactional = TransactionalProducer("transactional", **common)
        self.committer = OffsetCommitter("committer", **common)
        self.topic_maker = TopicMaker("topics", **common)
        self.workers = [
            Producer("acks1", **common, acks=1),
            Producer("acksall", **common),
            IdempotentProducer("one", **common),
            IdempotentProducer("two", **common),
            CompactedProducer("keys", **common),
            self.transactional,
            self.committer,
            self.topic_maker,
        ]
        self.librdkafka = LibrdkafkaProducer(address, self.oracle, self.gate, self.seed)
        self.members = [GroupMember(address, n, self.members_ledger, self.seed) for n in (1, 2)]

    def run(self, cycle: Cycle, *, damage: bool = False) -> None:
        """Runs load until the kill, restarts, and checks that every acknowledged record is stored.

        `damage` removes data in between, to prove that the check notices it.
        """
        self.gate.open()
        time.sleep(cycle.load_for)
        self.gate.expect_breaks()
        self.daemon.kill()
        self.times.kills += 1
        self.gate.close()
        with self.members_ledger.lock:
            acked = dict(self.members_ledger.acked)
        if damage:
            self._damage()
        self._restart(cycle)
        self.verify(acked)

    def _damage(self) -> None:
        """Cuts off the last third of the newest segment of a partition with acknowledged records."""
        newest = max((self.daemon.data / "logs" / "idempotent-0").glob("*.log"))
        with newest.open("r+b") as log:
            log.truncate(newest.stat().st_size * 2 // 3)

    def _restart(self, cycle: Cycle) -> None:
        if cycle.during_start is not None:
            self.daemon.start(wait=False)
            time.sleep(cycle.during_start * self.usual_start)
            self.daemon.kill()
            self.times.kills += 1
            self.times.kills_during_start += 1
        begun = time.monotonic()
        self.daemon.start()
        self.usual_start = time.monotonic() - begun
        self.times.restarts.append(self.usual_start)

    # --- checks

    def verify(self, members_acked: dict[int, int]) -> None:
        """Reads everything that is new since the last check, and all small topics completely."""
        oracle, address = self.oracle, self.daemon.kafka
        new = {place: position for place, position in oracle.positions.items() if place[0] != "compacted"}
        oracle.read_up_to(
            read_partitions(
                address,
                new,
                "read_uncommitted",
                lambda place, offset, _, value: oracle.see(place, offset, value),
            )
        )
        self._verify_transactions(final=False)
        self._verify_compacted()
        connection = wire.Connection(address)
        self._verify_offsets(connection, members_acked)
        self._verify_topics(connection)
        connection.close()

    def _verify_transactions(self, *, final: bool) -> None:
        oracle = self.oracle
        starts = {
            ("transactional", n): oracle.committed_positions.get(("transactional", n), 0)
            for n in range(PARTITIONS)
        }
        ends = read_partitions(
            self.daemon.kafka,
            starts,
            "read_committed",
            lambda place, offset, _, value: oracle.see_committed(place, offset, value),
        )
        oracle.committed_up_to(ends, final=final)

    def _verify_compacted(self) -> None:
        found: dict[Place, list[tuple[int, bytes, bytes | None]]] = {
            ("compacted", n): [] for n in range(PARTITIONS)
        }
        ends = read_partitions(
            self.daemon.kafka,
            dict.fromkeys(found, 0),
            "read_uncommitted",
            lambda place, offset, key, value: found[place].append((offset, key, value)),
        )
        for place, records in found.items():
            self.oracle.check_compacted(place, records, ends[place])

    def _verify_offsets(self, connection: wire.Connection, members_acked: dict[int, int]) -> None:
        ledgers: Sequence[OffsetLedger] = [*self.committer.ledgers, self.transactional.offsets]
        for ledger in ledgers:
            topic, partition = ledger.place
            offset, metadata = self._committed(connection, ledger.group, topic)[partition]
            ledger.check(self.oracle, offset)
            if offset >= 0 and metadata != f"m{offset}":
                self.oracle.problem(f"{ledger.group}: the metadata of {offset} is {metadata!r}")
        found = self._committed(connection, GroupMember.group, GroupMember.topic)
        with self.members_ledger.lock:
            attempted = dict(self.members_ledger.attempted)
        for partition, (offset, _) in found.items():
            place = (GroupMember.topic, partition)
            OffsetLedger(
                GroupMember.group, place, members_acked.get(partition, -1), attempted.get(partition, -1)
            ).check(self.oracle, offset)

    def _committed(self, connection: wire.Connection, group: str, topic: str) -> dict[int, tuple[int, str]]:
        request = wire.offset_fetch(group, topic, range(PARTITIONS))
        return wire.fetched_offsets(connection.insist("OffsetFetch", request, wire.top_code))

    def _verify_topics(self, connection: wire.Connection) -> None:
        maker = self.topic_maker
        there = wire.retention_by_topic(connection, [*maker.must_exist, *maker.must_not_exist])
        for topic, retention in maker.must_exist.items():
            if there.get(topic) != retention:
                self.oracle.problem(f"topic {topic}: retention.ms is {there.get(topic)}, not {retention}")
        for topic in maker.must_not_exist:
            if topic in there:
                self.oracle.problem(f"topic {topic} was deleted but exists")

    # --- the end

    def end(self, patience: float = 60.0) -> None:
        """Waits for all workers to finish, and reads every log completely once more."""
        oracle = self.oracle
        self._settle(patience)
        if left := self.librdkafka.finish(patience):
            oracle.problem(f"librdkafka: {left} records were never answered")
        with self.members_ledger.lock:
            acked = dict(self.members_ledger.acked)
        self.verify(acked)
        self._verify_transactions(final=True)
        for place, end in oracle.positions.items():
            if place[0] == "transactional" and oracle.committed_positions[place] != end:
                stop = oracle.committed_positions[place]
                oracle.problem(f"{place}: readers of what is committed stop at {stop} of {end}")
        self._verify_members(patience)
        self._reread()
        for stream in oracle.streams.values():
            oracle.tally.unknown_gone += stream.sent - len(stream.seen) if stream.place[0] == "plain" else 0
            if stream.gapless and len(stream.acked) != stream.sent:
                oracle.problem(
                    f"{stream.name}: {stream.sent - len(stream.acked)} records were never acknowledged"
                )

    def _settle(self, patience: float) -> None:
        """Lets every worker in once more, so that it resolves requests that the last kill left open.

        The load runs until the gate is shut. No kill happens now, so no answer may be missing.
        """
        self.gate.open()
        self.gate.wait_until_in(len(self.workers) + 1, patience)  # plus one for librdkafka's producer
        time.sleep(LAST_LOAD)
        self.gate.close(patience)

    def _wait(self, condition: Callable[[], bool], patience: float) -> bool:
        deadline = time.monotonic() + patience
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
        return condition()

    def _verify_members(self, patience: float) -> None:
        """Checks that the group reaches the end of its topic and that its members have read every record."""
        topic = GroupMember.topic
        wanted = {n: self.oracle.positions[topic, n] for n in range(PARTITIONS)}

        def reached() -> bool:
            with self.members_ledger.lock:
                return all(self.members_ledger.acked.get(n, 0) >= end for n, end in wanted.items())

        if not self._wait(reached, patience):
            self.oracle.problem(f"{GroupMember.group}: committed {self.members_ledger.acked}, of {wanted}")
        for number in wanted:
            there = set(self.oracle.digests.get((topic, number), {}))
            read = self.members_ledger.read.get(number, set())
            self.oracle.tally.group_read += len(read)
            if there - read:
                self.oracle.problem(
                    f"{GroupMember.group}: did not read {sorted(there - read)[:5]} of {number}"
                )
            if read - there:
                self.oracle.problem(
                    f"{GroupMember.group}: read {sorted(read - there)[:5]} of {number}, which are not stored"
                )

    def _reread(self) -> None:
        places = {place: 0 for place in self.oracle.positions if place[0] != "compacted"}
        seen: dict[Place, set[int]] = {place: set() for place in places}

        def show(place: Place, offset: int, _: bytes | None, value: bytes | None) -> None:
            seen[place].add(offset)
            self.oracle.see_again(place, offset, value)

        read_partitions(self.daemon.kafka, places, "read_uncommitted", show)
        for place, offsets in seen.items():
            if missing := set(self.oracle.digests.get(place, {})) - offsets:
                self.oracle.problem(
                    f"{place}: {len(missing)} records were read before, from {min(missing)} on"
                )

    def close(self, *, keep: Path | None = None) -> None:
        """Stops everything; moves the data directory and the log to `keep` if it is given."""
        self.gate.end()
        for member in self.members:
            member.end()
        try:
            if self.daemon.running:
                code = self.daemon.stop()
                if code != 0:
                    self.oracle.problem(f"the daemon ended with code {code} after SIGTERM")
        finally:
            for member in self.members:
                member.join(20)
            if keep is not None:
                shutil.rmtree(keep, ignore_errors=True)
                shutil.copytree(self.folder, keep)
            shutil.rmtree(self.daemon.scratch, ignore_errors=True)
            shutil.rmtree(self.folder, ignore_errors=True)


__all__ = ["Cycle", "DaemonFailed", "Episode"]
