"""The invariants after a kill: a pure ledger of sent and acknowledged records, compared with the records
read.

Workers write to the ledger while the daemon runs; after each restart the reader passes it every record.
Nothing here does I/O, so that tests can pass it broken logs.

| stream of        | may be missing                | may be there twice | order      |
| ---------------- | ----------------------------- | ------------------ | ---------- |
| plain            | records never acknowledged    | never (no retries) | increasing |
| idempotent       | nothing once sent (retried)   | never              | gapless    |
| transactional    | records never acknowledged    | never              | increasing |
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .values import NotOurs, read_value

Place = tuple[str, int]  # topic, partition


@dataclass
class Stream:
    """One producer's records in one partition, numbered from 0."""

    name: str
    place: Place
    gapless: bool = False
    sent: int = 0
    acked: dict[int, int] = field(default_factory=dict)  # sequence -> offset
    seen: dict[int, int] = field(default_factory=dict)
    unchecked: set[int] = field(default_factory=set)  # acknowledged since the last check
    last_seen: int = -1


class Outcome(enum.Enum):
    OPEN = "open"
    COMMITTING = "committing"  # the decision was sent, its answer has not arrived
    COMMITTED = "committed"
    ABORTED = "aborted"  # from the moment when only an abort can follow


@dataclass
class Transaction:
    number: int
    outcome: Outcome = Outcome.OPEN
    records: set[tuple[str, int]] = field(default_factory=set)  # stream, sequence


@dataclass
class Tally:
    """Counts for the summary."""

    acked: dict[str, int] = field(default_factory=dict)  # by kind of producer
    verified: int = 0
    reread: int = 0
    unknown_found: int = 0  # not acknowledged before the kill but stored, which is allowed
    unknown_gone: int = 0
    repeats_answered: int = 0  # retried batches that were already stored, answered with their first offset
    committed: int = 0
    aborted: int = 0
    decisions_repeated: int = 0
    offset_commits: int = 0
    topics_made: int = 0
    compacted_away: int = 0  # the maximum at one check
    group_read: int = 0

    def add(self, other: Tally) -> None:
        for name, value in vars(other).items():
            if isinstance(value, dict):
                for kind, count in value.items():
                    self.acked[kind] = self.acked.get(kind, 0) + count
            elif name == "compacted_away":
                self.compacted_away = max(self.compacted_away, value)
            else:
                setattr(self, name, getattr(self, name) + value)


class Oracle:
    """Everything that the daemon must still hold during one life of a data directory."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.problems: list[str] = []
        self.positions: dict[Place, int] = {}
        self.committed_positions: dict[Place, int] = {}
        self.digests: dict[Place, dict[int, int]] = {}
        self.transactions: dict[int, Transaction] = {}
        self.owner: dict[tuple[str, int], Transaction] = {}
        self.visible: set[tuple[str, int]] = set()
        self.unsettled: set[int] = set()
        self.tally = Tally()

    def problem(self, text: str) -> None:
        self.problems.append(text)

    # --- reports of workers

    def stream(self, name: str, place: Place, *, gapless: bool = False) -> Stream:
        self.positions.setdefault(place, 0)
        return self.streams.setdefault(name, Stream(name, place, gapless))

    def ack(self, stream: Stream, first: int, count: int, base_offset: int) -> None:
        """Notes that `count` records from sequence `first` on were acknowledged at `base_offset`."""
        kind = stream.name.split(".")[0]
        for step in range(count):
            sequence, offset = first + step, base_offset + step
            seen = stream.seen.get(sequence)
            if seen is not None and seen != offset:
                self.problem(f"{stream.name} {sequence}: acknowledged at {offset}, but stored at {seen}")
            if sequence in stream.acked:
                self.problem(f"{stream.name} {sequence}: acknowledged twice")
            if seen is None:
                stream.unchecked.add(sequence)
            stream.acked[sequence] = offset
        self.tally.acked[kind] = self.tally.acked.get(kind, 0) + count
        if stream.seen.get(first) is not None:
            self.tally.repeats_answered += 1

    def begin(self, number: int) -> Transaction:
        self.transactions[number] = transaction = Transaction(number)
        self.unsettled.add(number)
        return transaction

    def put(self, transaction: Transaction, stream: Stream, sequence: int) -> None:
        transaction.records.add((stream.name, sequence))
        self.owner[stream.name, sequence] = transaction

    # --- reports of the reader

    def see(self, place: Place, offset: int, value: bytes | None) -> None:
        """Takes a record that was not read before, in the order of offsets."""
        self.tally.verified += 1
        self.digests.setdefault(place, {})[offset] = zlib.crc32(value or b"")
        try:
            name, sequence = read_value(value)
        except NotOurs as error:
            self.problem(f"{place} {offset}: invented: {error}")
            return
        stream = self.streams.get(name)
        if stream is None or stream.place != place or sequence >= stream.sent:
            self.problem(f"{place} {offset}: invented: {name} {sequence} was never sent there")
            return
        if sequence in stream.seen:
            self.problem(
                f"{place} {offset}: {name} {sequence} is there twice, first at {stream.seen[sequence]}"
            )
            return
        self._check_order(stream, sequence, offset)
        acked = stream.acked.get(sequence)
        if acked is None:
            self.tally.unknown_found += 1
        elif acked != offset:
            self.problem(f"{place} {offset}: {name} {sequence} was acknowledged at {acked}")
        stream.seen[sequence] = offset
        stream.unchecked.discard(sequence)
        stream.last_seen = sequence

    def _check_order(self, stream: Stream, sequence: int, offset: int) -> None:
        if sequence < stream.last_seen:
            self.problem(f"{stream.place} {offset}: {stream.name} {sequence} stands after {stream.last_seen}")
        elif stream.gapless and sequence != stream.last_seen + 1:
            self.problem(f"{stream.place} {offset}: {stream.name} goes from {stream.last_seen} to {sequence}")

    def see_again(self, place: Place, offset: int, value: bytes | None) -> None:
        """Takes a record that was read before: it must be unchanged."""
        self.tally.reread += 1
        if self.digests.get(place, {}).get(offset) != zlib.crc32(value or b""):
            self.problem(f"{place} {offset}: is not what was read before")

    def read_up_to(self, ends: Mapping[Place, int]) -> None:
        """Checks, after all partitions were shown up to `ends`, that every acknowledged record was among
        them."""
        for place, end in ends.items():
            if end < self.positions.get(place, 0):
                self.problem(f"{place}: ends at {end}, but was read up to {self.positions[place]}")
            self.positions[place] = end
        for stream in self.streams.values():
            if stream.place not in ends:
                continue
            for sequence in sorted(stream.unchecked):
                where = f"acknowledged at {stream.acked[sequence]}, the log ends at {ends[stream.place]}"
                self.problem(f"{stream.place}: lost {stream.name} {sequence}, {where}")
            stream.unchecked.clear()

    def see_committed(self, place: Place, offset: int, value: bytes | None) -> None:
        """Takes a record as a reader of committed transactions gets it."""
        try:
            key = read_value(value)
        except NotOurs as error:
            self.problem(f"{place} {offset}: invented: {error}")
            return
        transaction = self.owner.get(key)
        if transaction is None:
            self.problem(f"{place} {offset}: {key} is in no transaction")
        elif transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            state = f"transaction {transaction.number} is {transaction.outcome.value}"
            self.problem(f"{place} {offset}: {key} is shown, but {state}")
        if key in self.visible:
            self.problem(f"{place} {offset}: {key} is shown twice to readers of what is committed")
        self.visible.add(key)

    def committed_up_to(self, positions: Mapping[Place, int], *, final: bool = False) -> None:
        """Checks that committed transactions are complete below the positions that their readers reached."""
        self.committed_positions.update(positions)
        for number in sorted(self.unsettled):
            transaction = self.transactions[number]
            if transaction.outcome in (Outcome.OPEN, Outcome.COMMITTING):
                if final:
                    self.problem(f"transaction {number} is still {transaction.outcome.value} at the end")
                continue
            if transaction.outcome is Outcome.ABORTED or self._settles(transaction, final):
                self.unsettled.discard(number)

    def _settles(self, transaction: Transaction, final: bool) -> bool:
        whole = True
        for name, sequence in transaction.records:
            stream = self.streams[name]
            offset = stream.acked[sequence]
            if (name, sequence) in self.visible:
                continue
            if final or offset < self.committed_positions.get(stream.place, 0):
                where = f"transaction {transaction.number} is committed, but hides"
                self.problem(f"{stream.place}: {where} {name} {sequence} at {offset}")
            else:
                whole = False
        return whole

    # --- compacted topics

    def check_compacted(
        self, place: Place, records: Iterable[tuple[int, bytes, bytes | None]], end: int
    ) -> None:
        """Takes a whole compacted partition as (offset, key, value). The newest record of each key must be
        there."""
        latest: dict[bytes, int] = {}
        found = 0
        last = -1
        for offset, key, value in records:
            found += 1
            if offset <= last:
                self.problem(f"{place} {offset}: stands after {last}")
            last = offset
            latest[key] = offset
            self._check_compacted_record(place, offset, value)
        for stream in self.streams.values():
            if stream.place == place:
                self._check_latest(stream, latest, end)
        self.tally.compacted_away = max(self.tally.compacted_away, end - found)

    def _check_compacted_record(self, place: Place, offset: int, value: bytes | None) -> None:
        try:
            name, sequence = read_value(value)
        except NotOurs as error:
            self.problem(f"{place} {offset}: invented: {error}")
            return
        stream = self.streams.get(name)
        if stream is None or stream.place != place or sequence >= stream.sent:
            self.problem(f"{place} {offset}: invented: {name} {sequence} was never sent there")
        elif stream.acked.get(sequence, offset) != offset:
            self.problem(f"{place} {offset}: {name} {sequence} was acknowledged at {stream.acked[sequence]}")
        elif stream.seen.setdefault(sequence, offset) != offset:
            self.problem(f"{place} {offset}: {name} {sequence} stood at {stream.seen[sequence]} before")

    def _check_latest(self, stream: Stream, latest: Mapping[bytes, int], end: int) -> None:
        newest: dict[bytes, tuple[int, int]] = {}
        for sequence, offset in stream.acked.items():
            key = compacted_key(sequence)
            newest[key] = max(newest.get(key, (-1, -1)), (offset, sequence))
        for key, (offset, sequence) in newest.items():
            if latest.get(key, -1) < offset:
                self.problem(
                    f"{stream.place}: lost {stream.name} {sequence}, the newest of {key!r}, acknowledged at"
                    f" {offset}; the newest there is at {latest.get(key)}, the log ends at {end}"
                )
        stream.unchecked.clear()


COMPACTED_KEYS = 37


def compacted_key(sequence: int) -> bytes:
    """Returns the key of a compacted stream's record."""
    return b"key-%d" % (sequence % COMPACTED_KEYS)


@dataclass
class OffsetLedger:
    """The offsets that one committer, in order, committed for one partition of a group. -1: none."""

    group: str
    place: Place
    acked: int = -1
    attempted: int = -1

    def check(self, oracle: Oracle, committed: int) -> None:
        """After a restart the offset is at least the last acknowledged one, and one that was requested."""
        if committed < self.acked:
            oracle.problem(f"{self.group} {self.place}: went back from {self.acked} to {committed}")
        elif committed > self.attempted:
            oracle.problem(
                f"{self.group} {self.place}: says {committed}, only {self.attempted} was asked for"
            )
