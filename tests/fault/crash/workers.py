"""The load: one thread per worker, each with a raw connection, which continues after each kill.

A worker's `step` sends something. When the connection breaks, `broken` notes the unanswered requests, and
`resume` handles them on the next connection: plain producers drop them, the other workers repeat them.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from . import wire
from .oracle import OffsetLedger, Oracle, Outcome, Stream, Transaction, compacted_key
from .values import make_value

PLAIN, IDEMPOTENT, TRANSACTIONAL, COMPACTED = "plain", "idempotent", "transactional", "compacted"
PARTITIONS = 3
IN_FLIGHT = 5  # batches; the broker remembers this many of an idempotent producer (KIP-98)


class Gate:
    """Lets workers run, and knows when all of them have stopped.

    Openings are numbered from 1, and a worker enters each opening once. A worker whose connection breaks
    waits for the next opening, even if the gate was shut and opened again in between.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._opening = 0
        self._open = False
        self._ended = False
        self._running = 0
        self._came_in = 0  # workers that entered during this opening
        self.breaks_are_expected = False

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        with self._changed:
            self._opening += 1
            self._open = True
            self._came_in = 0
            self.breaks_are_expected = False
            self._changed.notify_all()

    def expect_breaks(self) -> None:
        """Announces a kill of the daemon. A connection that breaks earlier is the daemon's fault."""
        self.breaks_are_expected = True

    def wait_until_in(self, workers: int, timeout: float = 60.0) -> None:
        """Waits until this many workers have entered the current opening; raises TimeoutError."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._came_in >= workers, timeout):
                raise TimeoutError(f"{self._came_in} of {workers} workers came in")

    def close(self, timeout: float = 60.0) -> None:
        """Waits until every worker has stopped; raises TimeoutError."""
        with self._changed:
            self._open = False
            if not self._changed.wait_for(lambda: self._running == 0, timeout):
                raise TimeoutError(f"{self._running} workers do not stop")

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def enter(self, last: int) -> int:
        """Waits for an opening after `last`, the worker's previous one. Returns 0 if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or (self._open and self._opening > last))
            if self._ended:
                return 0
            self._running += 1
            self._came_in += 1
            self._changed.notify_all()
            return self._opening

    def leave(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()


@dataclass
class Batch:
    stream: Stream
    first: int
    count: int
    data: bytes


class Worker(threading.Thread):
    """A client that survives its broker."""

    def __init__(self, name: str, address: Callable[[], str], oracle: Oracle, gate: Gate, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.address = address
        self.oracle = oracle
        self.gate = gate
        self.rng = random.Random(f"{seed}-{name}")

    def run(self) -> None:
        opening = 0
        while opening := self.gate.enter(opening):
            try:
                self._session()
            except wire.Broken as error:
                if not self.gate.breaks_are_expected:
                    self.oracle.problem(f"{self.name}: the connection broke while the daemon ran: {error}")
                self.broken()
            except wire.Refused as error:
                self.oracle.problem(f"{self.name}: refused: {error}")
            except Exception as error:
                self.oracle.problem(f"{self.name}: {type(error).__name__}: {error}")
            finally:
                self.gate.leave()

    def _session(self) -> None:
        connection = wire.Connection(self.address())
        try:
            self.resume(connection)
            while self.gate.is_open:
                self.step(connection)
            self.drain(connection)
        finally:
            connection.close()

    def resume(self, connection: wire.Connection) -> None: ...

    def step(self, connection: wire.Connection) -> None: ...

    def drain(self, connection: wire.Connection) -> None: ...

    def broken(self) -> None: ...


class Producer(Worker):
    """Sends pipelined batches to the partitions of one topic."""

    kind = PLAIN
    topic = "plain"
    gapless = False
    transactional_id: str | None = None

    def __init__(self, *arguments: object, acks: int = -1, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.acks = acks
        self.in_flight: deque[Batch] = deque()
        self.streams = [
            self.oracle.stream(
                f"{self.kind}.{self.name}.{number}", (self.topic, number), gapless=self.gapless
            )
            for number in range(PARTITIONS)
        ]

    def make(self, stream: Stream, count: int) -> Batch:
        """Makes the next batch of a stream; from now on its records may be in the log."""
        first = stream.sent
        records = [
            (self.key(stream, number), make_value(stream.name, number, self.rng))
            for number in range(first, first + count)
        ]
        stream.sent += count
        return Batch(stream, first, count, self.encode(stream, first, records))

    def key(self, stream: Stream, number: int) -> bytes | None:
        return b"k%d" % (number % 7) if number % 3 else None

    def encode(self, stream: Stream, first: int, records: list[tuple[bytes | None, bytes | None]]) -> bytes:
        return wire.build_batch(records, self.rng.randrange(5))

    def put(self, connection: wire.Connection, batch: Batch) -> None:
        topic, partition = batch.stream.place
        connection.send(wire.produce(topic, partition, batch.data, self.acks, self.transactional_id))

    def take(self, connection: wire.Connection) -> None:
        """Takes the reply to the oldest batch in flight."""
        code, offset = wire.produced(connection.receive())
        batch = self.in_flight.popleft()
        if code:
            raise wire.Refused(f"{batch.stream.name} from {batch.first}", code)
        self.oracle.ack(batch.stream, batch.first, batch.count, offset)

    def step(self, connection: wire.Connection) -> None:
        while len(self.in_flight) >= IN_FLIGHT:
            self.take(connection)
        batch = self.make(self.rng.choice(self.streams), self.rng.choice((1, 1, 3, 10, 30)))
        self.in_flight.append(batch)
        self.put(connection, batch)

    def drain(self, connection: wire.Connection) -> None:
        while self.in_flight:
            self.take(connection)

    def broken(self) -> None:
        self.in_flight.clear()  # a plain producer never learns the fate of these batches


class IdempotentProducer(Producer):
    """Repeats every unanswered batch with the same sequence numbers."""

    kind = IDEMPOTENT
    topic = "idempotent"
    gapless = True
    producer: tuple[int, int] | None = None

    def resume(self, connection: wire.Connection) -> None:
        if self.producer is None:
            reply = connection.insist("InitProducerId", wire.init_producer(None), wire.top_code)
            self.producer = (reply.producer_id, reply.producer_epoch)
        for batch in self.in_flight:
            self.put(connection, batch)

    def encode(self, stream: Stream, first: int, records: list[tuple[bytes | None, bytes | None]]) -> bytes:
        assert self.producer is not None
        return wire.build_batch(records, self.rng.randrange(5), producer=self.producer, sequence=first)

    def broken(self) -> None: ...


class CompactedProducer(IdempotentProducer):
    """Writes few keys repeatedly into a topic that is compacted continuously."""

    kind = COMPACTED
    topic = "compacted"
    gapless = False

    def key(self, stream: Stream, number: int) -> bytes | None:
        return compacted_key(number)


class TransactionalProducer(Producer):
    """Runs transactions over several partitions, some with a group's offset; commits, aborts or abandons
    them."""

    kind = TRANSACTIONAL
    topic = "transactional"
    group = "group-transactional"

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)
        self.transactional_id = f"id-{self.name}"
        self.producer: tuple[int, int] | None = None
        self.sequences: dict[int, int] = {}
        self.current: Transaction | None = None
        self.added = False
        self.wants_offset = False
        self.decision: bool | None = None
        self.offsets = OffsetLedger(self.group, (self.topic, 0))
        self.number = 0

    def _init(self, connection: wire.Connection) -> None:
        """Gets a new epoch; the broker aborts the transaction that the old one left open."""
        if self.current is not None:
            self.current.outcome = Outcome.ABORTED
            self.oracle.tally.aborted += 1
            self.current, self.decision = None, None
        self.producer = None  # unknown until the reply arrives
        reply = connection.insist("InitProducerId", wire.init_producer(self.transactional_id), wire.top_code)
        self.producer = (reply.producer_id, reply.producer_epoch)
        self.sequences = dict.fromkeys(range(PARTITIONS), 0)
        self.in_flight.clear()

    def resume(self, connection: wire.Connection) -> None:
        if self.producer is None:
            self._init(connection)
        elif self.decision is not None:
            self.oracle.tally.decisions_repeated += 1
            self._end(connection)
        elif self.current is not None and self.rng.random() < 0.4:
            self._init(connection)
        elif self.current is not None:
            self._add(connection)
            for batch in self.in_flight:
                self.put(connection, batch)
            self._finish(connection)

    def encode(self, stream: Stream, first: int, records: list[tuple[bytes | None, bytes | None]]) -> bytes:
        assert self.producer is not None
        partition = stream.place[1]
        sequence = self.sequences[partition]
        self.sequences[partition] += len(records)
        codec = self.rng.randrange(5)
        return wire.build_batch(records, codec, producer=self.producer, sequence=sequence, transactional=True)

    def step(self, connection: wire.Connection) -> None:
        self.number += 1
        self.current = self.oracle.begin(self.number)
        self.wants_offset = self.rng.random() < 0.5
        self._add(connection)
        for _ in range(self.rng.randrange(1, 6)):
            stream = self.rng.choice(self.streams)
            batch = self.make(stream, self.rng.choice((1, 2, 5, 20)))
            for number in range(batch.first, batch.first + batch.count):
                self.oracle.put(self.current, stream, number)
            self.in_flight.append(batch)
            self.put(connection, batch)
        if self.rng.random() < 0.1:
            self.drain_batches(connection)
            self._init(connection)
        else:
            self._finish(connection)

    def _add(self, connection: wire.Connection) -> None:
        assert self.producer is not None
        assert self.transactional_id is not None
        request = wire.add_partitions(self.transactional_id, self.producer, self.topic, range(PARTITIONS))
        connection.insist("AddPartitionsToTxn", request, wire.add_partitions_code)

    def drain_batches(self, connection: wire.Connection) -> None:
        while self.in_flight:
            self.take(connection)

    def _finish(self, connection: wire.Connection) -> None:
        self.drain_batches(connection)
        assert self.producer is not None
        assert self.transactional_id is not None
        if self.wants_offset:
            request = wire.add_offsets(self.transactional_id, self.producer, self.group)
            connection.insist("AddOffsetsToTxn", request, wire.top_code)
            commit = wire.txn_offset_commit(
                self.transactional_id, self.producer, self.group, self.topic, 0, self.number
            )
            connection.insist("TxnOffsetCommit", commit, wire.only_partition_code)
        self._decide(self.rng.random() < 0.7)
        self._end(connection)

    def _decide(self, commit: bool) -> None:
        assert self.current is not None
        self.decision = commit
        self.current.outcome = Outcome.COMMITTING if commit else Outcome.ABORTED
        if commit and self.wants_offset:
            self.offsets.attempted = self.number

    def _end(self, connection: wire.Connection) -> None:
        assert self.producer is not None
        assert self.transactional_id is not None
        assert self.current is not None
        assert self.decision is not None
        request = wire.end_txn(self.transactional_id, self.producer, self.decision)
        connection.insist("EndTxn", request, wire.top_code)
        if self.decision:
            self.current.outcome = Outcome.COMMITTED
            self.oracle.tally.committed += 1
            if self.wants_offset:
                self.offsets.acked = self.number
        else:
            self.oracle.tally.aborted += 1
        self.current, self.decision = None, None

    def drain(self, connection: wire.Connection) -> None: ...

    def broken(self) -> None: ...


class OffsetCommitter(Worker):
    """Commits rising offsets for each partition of a topic, one at a time."""

    group = "group-simple"
    topic = "plain"

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.ledgers = [OffsetLedger(self.group, (self.topic, number)) for number in range(PARTITIONS)]

    def step(self, connection: wire.Connection) -> None:
        ledger = self.rng.choice(self.ledgers)
        ledger.attempted += self.rng.randrange(1, 5)
        request = wire.offset_commit(self.group, self.topic, ledger.place[1], ledger.attempted)
        connection.insist("OffsetCommit", request, wire.only_partition_code)
        ledger.acked = ledger.attempted
        self.oracle.tally.offset_commits += 1
        time.sleep(0.002)


class TopicMaker(Worker):
    """Makes topics, changes a configuration, deletes some: definitions are acknowledged as well."""

    def __init__(self, *arguments: object, **more: object) -> None:
        super().__init__(*arguments, **more)  # type: ignore[arg-type]
        self.must_exist: dict[str, str] = {}  # topic -> retention.ms
        self.must_not_exist: set[str] = set()
        self.unknown: set[str] = set()
        self.number = 0

    def step(self, connection: wire.Connection) -> None:
        self.number += 1
        name, retention = f"made-{self.number}", str(10_000_000 + self.number)
        self.unknown.add(name)
        connection.insist(
            "CreateTopics",
            wire.create_topic(name, 1 + self.number % 3, {"retention.ms": retention}),
            wire.first_topic_code,
        )
        self.unknown.discard(name)
        self.must_exist[name] = retention
        self.oracle.tally.topics_made += 1
        if len(self.must_exist) > 8:
            victim = self.rng.choice(sorted(self.must_exist))
            del self.must_exist[victim]
            self.unknown.add(victim)
            connection.insist("DeleteTopics", wire.delete_topic(victim), wire.first_response_code)
            self.unknown.discard(victim)
            self.must_not_exist.add(victim)
        time.sleep(0.03)
