"""A partition's log as the log of its stream, and the stream at the partition's leader.

A message is one record batch or a few; its sequence is its first offset. Nothing is stored twice: recent
appends stay in memory for a while, because they are sent at once and repairs are requested soon after. All
else is read from the log, in pieces small enough not to block the event loop for long. Records deleted by
retention are skipped as SIZE, those removed by compaction as COMPACTED. Batches are never cut: a log that
begins inside a batch is served from the start of that batch.

Batches appended since a message was last asked for are joined into one message, as far as they fit into one
segment: the overhead of a message, at both ends, equals that of some KiB of payload. A joined message arrives
whole or not at all. A receiver that has, or asks for, a part of it gets its batches one by one.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from treecast.middleware.broker.values import Topic
from treecast.middleware.fabric.origin import Origin
from treecast.middleware.model.buffers import in_memory
from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER
from treecast.middleware.model.topics import TopicName
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.wire.record_batch import LOG_OVERHEAD, BatchHeader
from treecast.middleware.wire.segment import Message
from treecast.middleware.wire.segment_bodies import Expiry, Skipped

from .accounts import Place
from .ports import LedPartition

_log = Log(__name__)

TAIL_BYTES: Final = 4 << 20
BLOCK_BYTES: Final = 32 << 10  # about 150 small batches: 0.1 ms
_BEYOND: Final = 1 << 62  # above any offset
_BASE_AND_LENGTH: Final = struct.Struct(">qi")
_LAST_DELTA: Final = struct.Struct(">i")
_LAST_DELTA_AT: Final = 23


class _Run:
    """Messages in the order of their sequences, all within [first, end)."""

    def __init__(self, first: int, end: int, messages: list[Message]) -> None:
        self.first = first
        self.end = end
        self.messages = messages
        self.sequences = [message.sequence for message in messages]
        self.size = sum([len(message.payload) for message in messages])  # bytes, at its creation

    def at(self, offset: int, head: int = 0) -> int:
        """Returns the index of the message that holds `offset`, or of the first after it."""
        number = max(bisect_right(self.sequences, offset, lo=head) - 1, head)
        if number < len(self.messages) and self.messages[number].end <= offset:
            number += 1
        return number


class StreamMemory:
    """The memory shared by the streams of a host: tails, and blocks read from logs for replays.

    Blocks are few, so that their memory is reused soon. Reading a batch of 1 MB mostly takes 0.08 to 0.15 ms,
    but a tenth of such reads took 0.1 to 1.2 ms, probably because of fresh memory (docs/fabric.md).
    """

    def __init__(self, tail_bytes: int = 64 << 20, block_bytes: int = 8 << 20) -> None:
        self._tail_bytes = tail_bytes
        self._most_in_blocks = block_bytes
        self._in_blocks = 0  # bytes
        self._blocks: dict[_Run, PartitionStreamLog] = {}  # least recently used first
        self._streams: dict[PartitionStreamLog, None] = {}

    def add(self, stream: PartitionStreamLog) -> None:
        self._streams[stream] = None
        self._share()

    def remove(self, stream: PartitionStreamLog) -> None:
        self._streams.pop(stream, None)
        for block in [block for block, owner in self._blocks.items() if owner is stream]:
            self._drop(block)
        self._share()

    def _share(self) -> None:
        """Divides the memory for tails equally. Each stream keeps at least one message."""
        each = min(TAIL_BYTES, self._tail_bytes // max(len(self._streams), 1))
        for stream in self._streams:
            stream.keep(each)

    def used(self, block: _Run, stream: PartitionStreamLog) -> None:
        """Notes the use of `block` and evicts the least recently used blocks."""
        if self._blocks.pop(block, None) is None:
            self._in_blocks += block.size
        self._blocks[block] = stream
        while self._in_blocks > self._most_in_blocks and len(self._blocks) > 1:
            oldest = next(iter(self._blocks))
            self._drop(oldest).forget(oldest)

    def _drop(self, block: _Run) -> PartitionStreamLog:
        self._in_blocks -= block.size
        return self._blocks.pop(block)


class PartitionStreamLog:
    """Implements `fabric.core.log.StreamLog`. The log may grow, and its start may advance, meanwhile."""

    def __init__(
        self,
        log: PartitionLog,
        memory: StreamMemory,
        *,
        tail_bytes: int = TAIL_BYTES,
        block_bytes: int = BLOCK_BYTES,
        join_bytes: int = 0,
        told: bool = True,
    ) -> None:
        """`join_bytes`: the capacity of one segment, the limit for joining batches into a message.

        `told`: whether each growth is reported by `appended`; if not, all is read from the log.
        """
        self.blocks_read = 0
        self.failed_reads = 0  # unreadable records are not skipped: receivers ask for them again
        self._log = log
        self._tail_bytes = tail_bytes
        self._block_bytes = block_bytes
        self._join_bytes = join_bytes
        end = log.end_offset if told else _BEYOND
        self._tail = _Run(end, end, [])
        self._head = 0  # index in the tail; messages before it are dropped
        self._dropped = 0  # bytes of these messages
        self._kept = 0  # bytes in the tail and in `_open`
        self._open: list[bytes] = []  # the batches of the next message, not asked for yet
        self._open_first = self._open_end = end
        self._open_size = 0
        self._blocks: list[_Run] = []
        self._memory = memory

    @property
    def end(self) -> int:
        return self._log.end_offset

    @property
    def oldest(self) -> int:
        return self._log.start_offset

    @property
    def most_bytes(self) -> float:
        """Unlimited: only the topic's retention bounds the log, whatever receivers lack."""
        return NEVER

    def first_at(self, offset: int) -> int:
        """Returns the start for a receiver that wants all from `offset` on: that of the batch holding it."""
        if offset >= self.end:
            return self.end
        found = next(self._from(offset), None)
        return offset if found is None else min(offset, found.sequence)

    # --- appends

    def appended(self, batches: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Adds batches that have been appended to the log."""
        position = 0
        for header in headers:
            size = header.size
            if header.base_offset != self._open_end or self._open_size + size > self._join_bytes:
                self._close()
                self._open_first = header.base_offset
            self._open.append(bytes(batches[position : position + size]))
            self._open_end = header.next_offset
            self._open_size += size
            self._kept += size
            position += size
        self._tail.end = self._log.end_offset
        self._trim_tail()

    def _close(self) -> None:
        """Closes the open message: later batches begin a new one."""
        if not self._open:
            return
        payload = self._open[0] if len(self._open) == 1 else b"".join(self._open)
        self._tail.messages.append(Message(self._open_first, self._open_end - self._open_first, payload))
        self._tail.sequences.append(self._open_first)
        self._open = []
        self._open_first, self._open_size = self._open_end, 0

    def keep(self, tail_bytes: int) -> None:
        """Sets the limit of the tail."""
        self._tail_bytes = tail_bytes
        self._trim_tail()

    def _trim_tail(self) -> None:
        tail = self._tail
        while self._kept > self._tail_bytes and len(tail.messages) - self._head > 1:
            size = len(tail.messages[self._head].payload)
            self._kept -= size
            self._dropped += size
            self._head += 1
            tail.first = tail.messages[self._head].sequence
        if self._dropped >= self._tail_bytes:  # rarely, as it moves the rest of both lists
            del tail.messages[: self._head], tail.sequences[: self._head]
            self._head = self._dropped = 0

    # --- reading

    def entries(self, first: int, end: int) -> Iterator[Message | Skipped]:
        end = min(end, self._log.end_offset)
        start = self._log.start_offset
        if first < start:
            begin = min(self.first_at(start), end)
            if first < begin:
                yield Skipped(first, begin, Expiry.SIZE)
                first = begin
        if first >= end:
            return
        failed = self.failed_reads
        for message in self._from(first):
            if message.sequence >= end:
                break
            if message.sequence > first:
                yield Skipped(first, message.sequence, self._missing(message.sequence))
            if message.end > end:
                yield from [one for one in _messages(message.payload) if one.sequence < end]
                return
            yield message
            first = message.end
            if first >= end:
                return
        if first < end and failed == self.failed_reads:
            yield Skipped(first, end, self._missing(end))

    def newest(self, first: int) -> Message | None:
        self._close()
        last = self._tail.messages[-1] if self._tail.messages else None
        if last is None or last.sequence != first or last.end != self._log.end_offset:
            return None
        return last if first >= self._log.start_offset else None

    def _missing(self, before: int) -> Expiry:
        """Returns why records before `before` are missing; retention may have overtaken a slow receiver."""
        return Expiry.SIZE if before <= self._log.start_offset else Expiry.COMPACTED

    def _from(self, offset: int) -> Iterator[Message]:
        """Yields all messages from `offset` on; of a message that begins earlier, its batches from there."""
        self._close()
        while offset < self._log.end_offset:
            if offset >= self._tail.first:
                run, number = self._tail, self._tail.at(offset, self._head)
            else:
                try:
                    run = self._block(offset)
                except TreecastError as error:
                    self.failed_reads += 1
                    if self.failed_reads & (self.failed_reads - 1) == 0:  # the 1st, 2nd, 4th, 8th, ...
                        _log.error("partition cannot be read for its stream", error=error)
                    return
                number = run.at(offset)
            if number < len(run.messages) and run.messages[number].sequence < offset:
                yield from [one for one in _messages(run.messages[number].payload) if one.end > offset]
                number += 1
            while number < len(run.messages):
                yield run.messages[number]
                number += 1
            offset = max(run.end, offset + 1)

    def _block(self, offset: int) -> _Run:
        for block in reversed(self._blocks):
            if block.first <= offset < block.end:
                self._memory.used(block, self)
                return block
        block = self._read(offset)
        self._blocks.append(block)
        self._memory.used(block, self)
        return block

    def forget(self, block: _Run) -> None:
        """Drops a block that the shared memory has evicted."""
        self._blocks = [other for other in self._blocks if other is not block]

    def _read(self, offset: int) -> _Run:
        """Reads the next block of the log from `offset` on, without records deleted meanwhile."""
        self.blocks_read += 1
        log = self._log
        begin = max(offset, log.start_offset)
        chunks, _ = log.read(begin, self._block_bytes, log.end_offset, at_least_one=True)
        messages: list[Message] = []
        for chunk in chunks:
            messages += _messages(bytes(in_memory(chunk)))
        end = messages[-1].end if messages else log.end_offset
        return _Run(min(offset, messages[0].sequence) if messages else offset, end, messages)

    # --- the partition's log does these itself

    def trim(self, sequence: int, keep_bytes: int = 0) -> None:
        """Does nothing: retention deletes records, and other hosts may ask for records that all have."""

    def trimmed(self, first: int) -> dict[Expiry, int]:
        lost = self._log.start_offset - first
        return {Expiry.SIZE: lost} if lost > 0 else {}

    def expire(self, now: float) -> None:
        pass

    def next_deadline(self) -> float:
        return NEVER


class LedStream:
    """One partition's stream. Implements `broker.partition.AppendTap`."""

    def __init__(
        self,
        topic: Topic,
        partition: LedPartition,
        log: PartitionStreamLog,
        origin: Origin,
        moved: Callable[[LedStream], None],
        ended: Callable[[LedStream], None],
    ) -> None:
        self.topic = topic
        self.name: TopicPartition = partition.name
        self.levels = TopicName.from_kafka(partition.name.topic).levels
        self.place = Place(topic.topic_id, partition.name.partition)
        self.partition = partition
        self.log = log
        self.origin = origin
        self._fabric = origin.fabric
        self._moved = moved
        self._ended = ended

    def appended(self, batches: memoryview, headers: Sequence[BatchHeader]) -> None:
        self.log.appended(batches, headers)
        self._fabric.send_new(self.origin)

    def moved(self) -> None:
        self._moved(self)

    def gone(self) -> None:
        self._ended(self)

    def hosts(self) -> list[int]:
        """Returns the followers."""
        return [peer.host for peer in self.origin.sender.peers]

    def follows(self, host: int) -> bool:
        return self.origin.sender.peers.get(host) is not None


def _messages(data: bytes) -> list[Message]:
    """Returns the batches of a piece of a log, each as a message."""
    found: list[Message] = []
    position = 0
    end = len(data)
    while position < end:
        base, length = _BASE_AND_LENGTH.unpack_from(data, position)
        delta: int = _LAST_DELTA.unpack_from(data, position + _LAST_DELTA_AT)[0]
        following = position + LOG_OVERHEAD + length
        # a piece that is a single batch may be large: avoid the copy
        payload = data[position:following] if following - position < end else data
        found.append(Message(base, delta + 1, payload))
        position = following
    return found
