"""The records that every host must have read: ledgers of producers and consumers, compared record by record.
Pure.

A *lane* is one producer's records for one partition, numbered from 0. The producer notes (sequence, offset)
of each acknowledgement, each consumer (sequence, offset) of each record. Both keep the count, the last
numbers, and a running CRC in order. Equal summaries mean the same records, each once, in the same order, at
the same offsets.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

_PAIR = struct.Struct("<QQ")
_HEAD = struct.Struct("<IId")  # producer, sequence, time of sending (s, the machine's steady clock)
HEAD_SIZE = _HEAD.size


def make_value(producer: int, sequence: int, now: float, size: int) -> bytes:
    """Returns `size` bytes that state the producer, the sequence and the time."""
    return _HEAD.pack(producer, sequence, now).ljust(max(size, HEAD_SIZE), b".")


def read_value(value: bytes) -> tuple[int, int, float]:
    """Returns producer, sequence and time. Raises ValueError for values of other writers."""
    if len(value) < HEAD_SIZE or value[HEAD_SIZE:].strip(b"."):
        raise ValueError(f"invented: {value[:40]!r}")
    producer, sequence, sent = _HEAD.unpack_from(value)
    return producer, sequence, sent


@dataclass(slots=True)
class Lane:
    """The summary of a lane. `wrong` counts breaks in the sequence: a repeat, a gap, a decreasing offset."""

    count: int = 0
    sequence: int = -1
    offset: int = -1
    crc: int = 0
    wrong: int = 0
    first_wrong: str = ""

    def note(self, sequence: int, offset: int) -> None:
        if sequence != self.sequence + 1 or offset <= self.offset:
            self.wrong += 1
            self.first_wrong = self.first_wrong or (
                f"{sequence} at {offset} after {self.sequence} at {self.offset}"
            )
        self.count += 1
        self.sequence = sequence
        self.offset = offset
        self.crc = zlib.crc32(_PAIR.pack(sequence, offset), self.crc)

    def note_run(self, sequence: int, offset: int, records: int, checksum: int) -> None:
        """Notes a batch of consecutive `records`: its first numbers, and the checksum of its bytes."""
        if sequence != self.sequence + 1 or offset <= self.offset:
            self.wrong += 1
            self.first_wrong = self.first_wrong or (
                f"{records} from {sequence} at {offset} after {self.sequence} at {self.offset}"
            )
        self.count += records
        self.sequence = sequence + records - 1
        self.offset = offset + records - 1
        self.crc = zlib.crc32(_PAIR.pack(checksum, offset), self.crc)


@dataclass
class Ledger:
    """All lanes of one process, by `producer/topic-partition`."""

    lanes: dict[str, Lane] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def lane(self, producer: int, place: str) -> Lane:
        key = f"{producer}/{place}"
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane()
        return lane

    @property
    def count(self) -> int:
        return sum(lane.count for lane in self.lanes.values())

    def as_json(self) -> dict[str, object]:
        return {"lanes": {key: asdict(lane) for key, lane in self.lanes.items()}, "problems": self.problems}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Ledger:
        lanes, problems = value["lanes"], value["problems"]
        assert isinstance(lanes, dict)
        assert isinstance(problems, list)
        return cls({key: Lane(**lane) for key, lane in lanes.items()}, list(problems))


def merged(ledgers: list[Ledger]) -> Ledger:
    """Merges ledgers of different producers."""
    whole = Ledger()
    for ledger in ledgers:
        whole.lanes.update(ledger.lanes)
        whole.problems += ledger.problems
    return whole


def differences(acknowledged: Ledger, read: Ledger, who: str) -> list[str]:
    """Returns where the records that `who` read differ from the acknowledged ones, one line per lane."""
    found = [f"{who}: {problem}" for problem in read.problems]
    for key in sorted(acknowledged.lanes.keys() | read.lanes.keys()):
        sent, got = acknowledged.lanes.get(key, Lane()), read.lanes.get(key, Lane())
        if got.wrong:
            found.append(f"{who} {key}: {got.wrong} records do not follow, first {got.first_wrong}")
        elif got.count != sent.count:
            found.append(f"{who} {key}: {got.count} records read, {sent.count} acknowledged")
        elif got != sent:
            found.append(f"{who} {key}: read up to {got.sequence} at {got.offset} with another digest")
    return found
