"""Compaction by key: only the last record of each key stays. Rules and terms are those of Kafka's cleaner.

A round reads the dirty part (from the log's cleaned offset up to a limit) and remembers the last offset of
each key there, for up to `compaction_keys` keys. Then it copies all segments up to there without the records
that a later one of the same key replaces, and without keyless ones. It never touches the last segment,
anything from the last stable offset on, or records younger than min.compaction.lag.ms.

- Offsets, sequences, epochs and codecs stay. An unchanged batch is copied as it is.
- A record without a value (tombstone) stays for delete.retention.ms after its first cleaning: its batch
  then carries the delete horizon in its base timestamp field (KIP-534). Markers follow the same rule, once no
  record of their transaction is left. Records of aborted transactions are dropped at once.
- The last batch of each known producer stays, even if empty: its sequence number must survive.

`plan` and `install` are called on the loop. `CompactionPlan.run` is for a thread: it reads sealed segments
through its own descriptors and writes `.cleaned` files. `swap` describes how those replace segments of the
log.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from treecast.middleware.model.records import Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.record_batch import BatchHeader, read_records, rebuild_batch

from . import swap
from .aborted import AbortedEntry, encode_entry
from .cleaned_transactions import CleanedTransactions
from .disk import Disk, refused, write_all
from .index import SegmentIndexes, empty_indexes
from .replay import read_marker
from .scan import BatchScanner
from .segment import Segment, stem

if TYPE_CHECKING:
    from .log import PartitionLog

_BUFFER: Final = 1024 * 1024
_DIGEST: Final = 16
_MAX_POSITION: Final = 2**31 - 1

Pause = Callable[[], None]


class Stopped(Exception):
    """The round was stopped, or its segments no longer exist."""


class Source:
    """A sealed segment, with the values that a thread may use."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.base_offset = segment.base_offset
        self.next_offset = segment.next_offset
        self.path = segment.file.path
        self.size = segment.size
        self.modified_ms = segment.modified_ms()


class Cleaned:
    """A group of segments and the result of cleaning it."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.base_offset = sources[0].base_offset
        self.size = 0
        self.indexes: SegmentIndexes = empty_indexes(self.base_offset)
        self.first_timestamp = -1


class KeyOffsets:
    """The last offset of each key, for at most `limit` keys. Long keys are stored as BLAKE2 digests."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.end = 0  # the offset after the last one that was read
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Records the offset. Returns False, without recording, if there is no room."""
        short = key if len(key) < _DIGEST else hashlib.blake2b(key, digest_size=_DIGEST).digest()
        if len(self._offsets) >= self.limit and short not in self._offsets:
            return False
        self._offsets[short] = offset
        self.end = offset + 1
        return True

    def last(self, key: bytes) -> int:
        """Returns the last offset of the key; -1 if it was not seen."""
        short = key if len(key) < _DIGEST else hashlib.blake2b(key, digest_size=_DIGEST).digest()
        return self._offsets.get(short, -1)


class CompactionPlan:
    """One round for one log. `run` fills `done`; `stop` ends it early with `Stopped`."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        config: TopicConfig,
        sources: list[Source],
        first_dirty: int,
        limit: int,
        keys: int,
        aborted: list[AbortedEntry],
        producers: dict[int, tuple[int, int]],
        now_ms: int,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.config = config
        self.sources = sources
        self.first_dirty = first_dirty
        self.limit = limit
        self.now_ms = now_ms
        self.done: list[Cleaned] = []
        self.stopped = False
        self.offsets = KeyOffsets(keys)
        self._aborted = aborted
        self._producers = producers  # id -> (last data offset or -1, epoch)

    def stop(self) -> None:
        self.stopped = True

    def run(self, pause: Pause) -> None:
        """Reads, writes and forces to the disk. Raises OSError, TreecastError or Stopped; the next open or
        round then removes leftovers. Calls `pause` after each batch, to let other threads run.
        """
        try:
            self._remember_keys(pause)
            transactions = CleanedTransactions(self._aborted)
            for group in self._groups():
                self.done.append(_GroupCleaner(self, group, transactions, pause).run())
            if self.done:
                self.disk.sync_directory(self.directory)
        except FileNotFoundError as error:
            raise Stopped(str(error)) from error

    def check_stop(self) -> None:
        if self.stopped:
            raise Stopped("told to stop")

    def _remember_keys(self, pause: Pause) -> None:
        """Fills the key map from the dirty part; the map's end is the end of this round."""
        transactions = CleanedTransactions(self._aborted)
        self.offsets.end = self.first_dirty
        for source in self.sources:
            if source.next_offset <= self.first_dirty:
                continue
            with _Reading(source.path, source.size) as scanner:
                header = scanner.next()
                while header is not None:
                    if not self._remember_batch(header, scanner.batch(header), transactions):
                        return
                    self.check_stop()
                    pause()
                    header = scanner.next()
        self.offsets.end = max(self.offsets.end, self.limit)

    def _remember_batch(
        self, header: BatchHeader, data: memoryview, transactions: CleanedTransactions
    ) -> bool:
        """Adds a batch's keys. Returns False if the map is full."""
        if header.control:
            transactions.drops_marker(header, read_marker(data, 0, header))
        elif not transactions.drops_data(header) and header.last_offset >= self.first_dirty:
            for record in read_records(data, 0, header):
                if (
                    record.key is not None
                    and record.offset >= self.first_dirty
                    and not self.offsets.put(record.key, record.offset)
                ):
                    return False
        self.offsets.end = max(self.offsets.end, header.next_offset)
        return True

    def _groups(self) -> list[list[Source]]:
        """Returns the segments that the round covers, grouped into neighbours that fit into one segment
        together.
        """
        groups: list[list[Source]] = []
        size = 0
        for source in self.sources:
            if source.base_offset >= self.offsets.end:
                break
            fits = (
                groups
                and size + source.size <= self.config.segment_bytes
                and source.next_offset - groups[-1][0].base_offset <= _MAX_POSITION
            )
            if fits:
                groups[-1].append(source)
                size += source.size
            else:
                groups.append([source])
                size = source.size
        return groups

    def keeps(self, record: Record, header: BatchHeader) -> bool:
        """Returns whether a data record stays."""
        if record.offset >= self.offsets.end:
            return True
        if record.key is None or self.offsets.last(record.key) > record.offset:
            return False
        if record.value is not None or not header.delete_horizon:
            return True
        return header.base_timestamp > self.now_ms

    def ends_producer(self, header: BatchHeader) -> bool:
        """Returns whether this batch holds its producer's latest sequence (or epoch)."""
        known = self._producers.get(header.producer_id)
        if known is None:
            return False
        last_offset, epoch = known
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.control and header.producer_epoch == epoch


class _Reading:
    """A context manager with a scanner on its own descriptor."""

    def __init__(self, path: str, size: int) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._scanner = BatchScanner(self._descriptor, 0, size, whole=True)
        self._size = size

    def __enter__(self) -> BatchScanner:
        return self._scanner

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        os.close(self._descriptor)


class _GroupCleaner:
    """Copies one group of segments into `.cleaned` files."""

    def __init__(
        self, plan: CompactionPlan, group: list[Source], transactions: CleanedTransactions, pause: Pause
    ) -> None:
        self._plan = plan
        self._result = Cleaned(group)
        self._transactions = transactions
        self._pause = pause
        self._buffer = bytearray()
        self._written = 0
        self._descriptor = -1

    def run(self) -> Cleaned:
        plan, result = self._plan, self._result
        path = stem(plan.directory, result.base_offset)
        disk = plan.disk
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            disk.unlink(path + suffix + swap.CLEANED)
        self._descriptor = disk.open(path + ".log" + swap.CLEANED, create=True)
        try:
            for source in result.sources:
                self._copy(source)
            self._spill()
            disk.sync(self._descriptor)
            modified = max(source.modified_ms for source in result.sources) / 1000
            os.utime(self._descriptor, (modified, modified))
        finally:
            disk.close(self._descriptor)
        result.size = self._written
        result.indexes.finish()
        aborted = b"".join(map(encode_entry, self._take_aborted()))
        disk.write_new(path + ".index" + swap.CLEANED, result.indexes.offsets.data, sync=True)
        disk.write_new(path + ".timeindex" + swap.CLEANED, result.indexes.times.data, sync=True)
        disk.write_new(path + ".txnindex" + swap.CLEANED, aborted, sync=True)
        return result

    def _take_aborted(self) -> list[AbortedEntry]:
        """Returns the entries whose markers are in this group, and clears the list."""
        kept, self._transactions.kept = self._transactions.kept, []
        return kept

    def _copy(self, source: Source) -> None:
        with _Reading(source.path, source.size) as scanner:
            header = scanner.next()
            while header is not None:
                data = scanner.batch(header)
                batch = self._cleaned(header, data)
                if batch is not None:
                    self._add(header, batch)
                self._plan.check_stop()
                self._pause()
                header = scanner.next()
            if scanner.position != source.size:
                raise Stopped(f"{source.path} is damaged at byte {scanner.position}")

    def _add(self, header: BatchHeader, batch: memoryview | bytes) -> None:
        position = self._written + len(self._buffer)
        if position == 0:
            self._result.first_timestamp = header.max_timestamp
        if position + len(batch) > _MAX_POSITION:
            raise Stopped("the cleaned segment would be too large")
        interval = self._plan.config.index_interval_bytes
        self._result.indexes.note(header.last_offset, header.max_timestamp, position, len(batch), interval)
        self._buffer += batch
        if len(self._buffer) >= _BUFFER:
            self._spill()

    def _spill(self) -> None:
        write_all(self._plan.disk, self._descriptor, self._buffer, self._written)
        self._written += len(self._buffer)
        self._buffer = bytearray()

    def _cleaned(self, header: BatchHeader, data: memoryview) -> memoryview | bytes | None:
        """Returns the rest of a batch: the batch itself, a smaller one, or None."""
        plan = self._plan
        if header.control:
            unused = self._transactions.drops_marker(header, read_marker(data, 0, header))
            due = header.delete_horizon and header.base_timestamp <= plan.now_ms
            drop, waits = unused and due, unused
        else:
            drop, waits = self._transactions.drops_data(header), False
        needed = header.producer_id >= 0 and plan.ends_producer(header)
        if drop and not needed:
            return None
        records = [] if drop else read_records(data, 0, header)
        kept = records if header.control else [r for r in records if plan.keeps(r, header)]
        if not kept:
            return rebuild_batch(header, [], None) if needed else None
        waits = waits or (not header.control and any(record.value is None for record in kept))
        horizon = header.base_timestamp if header.delete_horizon else None
        if waits and horizon is None:
            return rebuild_batch(header, kept, plan.now_ms + plan.config.delete_retention_ms)
        return data if len(kept) == header.count else rebuild_batch(header, kept, horizon)


# --- on the loop


def plan(log: PartitionLog, now_ms: int) -> CompactionPlan | None:
    """Returns a round for `log`, or None if there is nothing to do or it is not possible."""
    config = log.config
    if not config.cleanup_compact or log.closed or not log.compactable or log.durability.failed:
        return None
    first_dirty = max(log.cleaned_offset, log.start_offset)
    limit = _first_uncleanable(log, first_dirty, now_ms)
    segments = [segment for segment in log.held.all if segment.next_offset <= limit]
    dirty = [segment for segment in segments if segment.next_offset > first_dirty]
    if not dirty or not _worth_it(log, segments, dirty, now_ms):
        return None
    return CompactionPlan(
        log.directory,
        log.shared.disk,
        config,
        [Source(segment) for segment in segments],
        first_dirty,
        dirty[-1].next_offset,
        log.settings.compaction_keys,
        [entry for segment in log.held.all for entry in segment.aborted],
        {known.producer_id: (known.last_offset, known.epoch) for known in log.producers},
        now_ms,
    )


def _first_uncleanable(log: PartitionLog, first_dirty: int, now_ms: int) -> int:
    """Returns the first offset that must stay.

    Replaces only segments that the checkpoint covers completely, so that recovery's position in the segment
    that it names stays valid.
    """
    limit = min(log.durability.checkpointed_base, log.held.active.base_offset, log.stable_offset)
    lag = log.config.min_compaction_lag_ms
    if lag > 0:
        for segment in log.held.all:
            if segment.next_offset > first_dirty and segment.max_timestamp > now_ms - lag:
                return min(limit, segment.base_offset)
    return limit


def _worth_it(log: PartitionLog, segments: list[Segment], dirty: list[Segment], now_ms: int) -> bool:
    """Returns whether the dirty ratio is reached or max.compaction.lag.ms has passed."""
    total = sum(segment.size for segment in segments)
    if total and sum(segment.size for segment in dirty) / total >= log.config.min_cleanable_dirty_ratio:
        return True
    oldest = dirty[0].oldest_timestamp()
    return oldest >= 0 and now_ms - oldest > log.config.max_compaction_lag_ms


def install(log: PartitionLog, finished: CompactionPlan) -> bool:
    """Replaces the old segments by the cleaned ones. Returns False if the log changed too much meanwhile
    (retention took a segment, or it was closed). Raises STORAGE if the disk refuses.
    """
    sources = [source.segment for cleaned in finished.done for source in cleaned.sources]
    present = {id(segment) for segment in log.held.all}
    if log.closed or not all(id(segment) in present for segment in sources):
        discard(finished)
        return False
    try:
        for cleaned in finished.done:
            _replace(log, cleaned)
    except OSError as error:
        log.counters.write_errors += 1
        raise refused(error, f"replace segments in {log.directory}") from error
    log.cleaned_offset = max(log.cleaned_offset, finished.offsets.end)
    log.counters.compactions += 1
    log.durability.directory_dirty = True
    log.durability.write_checkpoint()
    return True


def _replace(log: PartitionLog, cleaned: Cleaned) -> None:
    disk, directory = log.shared.disk, log.directory
    swap.decide(directory, cleaned.base_offset, disk)
    for source in cleaned.sources:
        log.doomed.append(swap.remove_segment(directory, source.base_offset, disk))
    swap.promote(directory, cleaned.base_offset, disk)
    path = stem(directory, cleaned.base_offset) + ".log"
    segment = Segment(log.shared, directory, cleaned.base_offset, log.shared.pool.file(path), cleaned.size)
    segment.next_offset = cleaned.sources[-1].next_offset
    segment.first_timestamp = cleaned.first_timestamp
    segment.sealed = True
    segment.adopt_indexes(cleaned.indexes)
    log.replace_segments([source.segment for source in cleaned.sources], segment)


def discard(finished: CompactionPlan) -> None:
    """Removes the files that a round wrote."""
    for cleaned in finished.done:
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            finished.disk.unlink(stem(finished.directory, cleaned.base_offset) + suffix + swap.CLEANED)


def compact(log: PartitionLog, now_ms: int) -> bool:
    """Runs a whole round on the calling thread. Returns whether anything was done."""
    round_ = plan(log, now_ms)
    if round_ is None:
        return False
    try:
        round_.run(_no_pause)
    except OSError as error:
        raise refused(error, f"compact {log.directory}") from error
    return install(log, round_)


def _no_pause() -> None:
    pass
