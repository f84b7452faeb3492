"""`CopySession` decides what an answer of a leader means for the copy of a partition. It does no I/O.

The copy ends where Kafka's log agrees with it. Each fetch names the epoch of the copy's last record, and the
leader then says where the logs part (KIP-595): it had less, and another record stands where ours does. A
leader that answers with an epoch older than one already known is not obeyed: it may be a broker that was cut
off.

    cut: to the smaller of the leader's end of the epoch named, and the copy's own end of that epoch
    out of range: the leader's bounds are asked for, and the copy is placed between them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.crc import crc32c
from treecast.middleware.wire.record_batch import LOG_OVERHEAD, MAGIC, BatchHeader, read_header
from treecast.shims.kafka import errors
from treecast.shims.kafka.codec_client import Fetched

from .session_table import TABLE, Event, State, Step

_LENGTH_AT: Final = 8
_CRC_FROM: Final = 21
_MOVED: Final = frozenset(
    {
        errors.LEADER_NOT_AVAILABLE,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.FENCED_LEADER_EPOCH,
        errors.UNKNOWN_LEADER_EPOCH,
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.UNKNOWN_TOPIC_ID,
        103,  # INCONSISTENT_TOPIC_ID: another topic has the name now
        errors.KAFKA_STORAGE_ERROR,
    }
)


class Bounds(Struct, frozen=True):
    """The first offset and the end of the leader's log, as its readers see them."""

    start: int
    end: int


class Append(Struct, frozen=True):
    """Append these batches at the copy's end, where they begin or follow. `start`: the leader's log start."""

    batches: bytes
    headers: list[BatchHeader]
    start: int


class Cut(Struct, frozen=True):
    """Remove what the copy has from `offset` on: the leader has other records there, or none."""

    offset: int


class Restart(Struct, frozen=True):
    """Remove all: the leader's log begins at `offset`, behind the copy's end. `missed`: offsets never
    copied."""

    offset: int
    missed: int


class Advance(Struct, frozen=True):
    """The leader's log now begins at `start`."""

    start: int


class Ask(Struct, frozen=True):
    """`bounds`: of the leader's log; else the cluster, for the leader."""

    bounds: bool


Action = Append | Cut | Restart | Advance | Ask


class CopySession:
    """The state of one partition. `end` and `start` are the copy's, told by each call."""

    def __init__(self, own_end_of: Callable[[int], int]) -> None:
        """`own_end_of`: leader epoch -> the copy's end of that epoch or the one before it."""
        self.state = State.LOST
        self.leader = -1
        self.epoch = -1  # the highest leader epoch that is known
        self.high_watermark = -1
        self.trouble = ""  # why it is not fetched; empty if it is
        self._own_end_of = own_end_of

    # --- what is learnt

    def led(self, leader: int, epoch: int) -> list[Action]:
        """The cluster names the partition's leader; -1: there is none."""
        if epoch < self.epoch:
            self.trouble = (
                f"broker answers with leader epoch {epoch}, and {self.epoch} is known: it is not obeyed"
            )
            return self._take(Event.OLD)
        moved = leader != self.leader and self.leader >= 0
        self.leader, self.epoch = leader, epoch
        if leader < 0:
            self.trouble = "the partition has no leader in the Kafka cluster"
            return self._take(Event.FAILED) if self.state is not State.LOST else []
        if self.state is State.LOST:
            self.trouble = ""
        if moved and self.state is State.SEEKING:
            self._take(Event.MOVED)
        return self._take(Event.LED)

    def fetched(self, answer: Fetched, end: int, start: int) -> list[Action]:
        """An answer of the leader to a fetch at `end`."""
        if answer.error_code:
            return self._refused(answer.error_code, answer)
        if answer.diverging is not None:
            return self._take(Event.PARTED, self._parted(answer.diverging))
        self.high_watermark = answer.high_watermark
        self.trouble = ""
        found = whole_batches(answer.records, end) if answer.records is not None else (b"", [])
        if found[1]:
            return self._take(Event.RECORDS, Append(found[0], found[1], answer.log_start_offset))
        advance = Advance(answer.log_start_offset) if answer.log_start_offset > start else None
        return self._take(Event.NOTHING, advance)

    def bounds(self, found: Bounds, end: int) -> list[Action]:
        """The leader's bounds, after a fetch out of them at `end`."""
        placed: Action | None = None
        if end < found.start:
            placed = Restart(found.start, found.start - end)
        elif end > found.end:
            placed = Cut(found.end)
        return self._take(Event.BOUNDS, placed)

    def failed(self, reason: str) -> list[Action]:
        """The leader cannot be reached or read."""
        self.trouble = reason
        return self._take(Event.FAILED)

    def gone(self) -> list[Action]:
        """The topic is no longer followed."""
        return self._take(Event.GONE)

    # --- the table

    def _take(self, event: Event, action: Action | None = None) -> list[Action]:
        self.state, step = TABLE[self.state, event]
        if step is Step.ASK_LEADER:
            return [Ask(bounds=False)]
        if step is Step.ASK_BOUNDS:
            return [Ask(bounds=True)]
        wanted = step in (Step.APPEND, Step.CUT, Step.PLACE) or event is Event.NOTHING
        return [action] if action is not None and wanted and self.state is State.FETCHING else []

    def _parted(self, diverging: tuple[int, int]) -> Cut:
        epoch, end = diverging
        return Cut(max(min(end, self._own_end_of(epoch)), 0))

    def _refused(self, code: int, answer: Fetched) -> list[Action]:
        if code == errors.OFFSET_OUT_OF_RANGE:
            return self._take(Event.OUT_OF_RANGE)
        if answer.leader is not None and answer.leader[1] < self.epoch:
            self.trouble = (
                f"broker names leader epoch {answer.leader[1]}, and {self.epoch} is known: it is not obeyed"
            )
            return self._take(Event.OLD)
        self.trouble = f"the leader refuses to be read: error {code} ({errors.fault_of(code).value})"
        return self._take(Event.MOVED if code in _MOVED else Event.FAILED)


def whole_batches(records: memoryview, end: int) -> tuple[bytes, list[BatchHeader]]:
    """Returns (bytes, headers) of the whole batches that reach beyond offset `end`.

    A broker may cut the last batch off, and may begin before the offset that was asked for. Raises
    CORRUPT_BATCH.
    """
    headers: list[BatchHeader] = []
    position, first, size = 0, -1, len(records)
    while position + LOG_OVERHEAD <= size:
        length = int.from_bytes(records[position + _LENGTH_AT : position + LOG_OVERHEAD], "big", signed=True)
        following = position + LOG_OVERHEAD + length
        if length <= _CRC_FROM - LOG_OVERHEAD:
            raise TreecastError(Fault.CORRUPT_BATCH, f"the Kafka cluster sent a batch of {length} bytes")
        if following > size:
            break
        header = read_header(records, position)
        if header.magic != MAGIC:
            raise TreecastError(
                Fault.UNSUPPORTED_BATCH_FORMAT,
                f"the batch at {header.base_offset} has magic {header.magic}: only 2 is followed",
            )
        if crc32c(records[position + _CRC_FROM : following]) != header.crc:
            raise TreecastError(Fault.CORRUPT_BATCH, f"the batch at {header.base_offset} fails its CRC-32C")
        if header.next_offset > end:
            first = position if first < 0 else first
            headers.append(header)
        position = following
    return (bytes(records[first:position]), headers) if first >= 0 else (b"", [])


def end_in(entries: Sequence[tuple[int, int]], epoch: int, end: int) -> int:
    """Returns where the copy's records of `epoch`, or of the epoch before it, end.

    `entries`: (leader epoch, its first offset), oldest first; `end`: the copy's. 0 if all epochs are later.
    """
    for number in range(len(entries) - 1, -1, -1):
        if entries[number][0] <= epoch:
            return entries[number + 1][1] if number + 1 < len(entries) else end
    return 0
