"""`LogPartition`: a partition whose log is on this host. `LocalPartition`: one that this host leads."""

from __future__ import annotations

from asyncio import CancelledError, Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from treecast.middleware.model.buffers import Chunk, in_memory
from treecast.middleware.model.counters import BrokerCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_LEADER_EPOCH, ProducerIdentity, TopicPartition
from treecast.middleware.model.topic_config import INT64_MAX, TopicConfig
from treecast.middleware.storage.flusher import Flusher
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.wire.record_batch import (
    ABORT,
    AT_ONCE,
    COMMIT,
    BatchHeader,
    Unfinished,
    check_batches,
    control_marker,
    read_header,
    read_records,
)

from .active import active_producers
from .batch_sizes import recompressed, stored_codec
from .cluster import PartitionLeader, ReadWaiter
from .heavy_appends import HeavyAppends, hand_on, is_heavy, prepare
from .values import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AbortedTransaction,
    ActiveProducer,
    Appended,
    Isolation,
    OffsetAtTime,
    PartitionRead,
)

_UNCOMMITTED: Final = Isolation.READ_UNCOMMITTED
_FEW = 16  # aborted transactions that are returned without determining where the read ends


class TransactionGuard(Protocol):
    """Knows whether a producer's transaction is open on a partition (KIP-890)."""

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
    ) -> Future[None] | None:
        """Returns None if it is open, or a future if another host has to be asked.

        Raises NOT_IN_TRANSACTION if it is not open.
        """


class AppendTap(Protocol):
    """A listener that is called immediately after every append, on the loop: a stream to other hosts."""

    def appended(self, batches: memoryview, headers: Sequence[BatchHeader]) -> None:
        """`batches` were appended, as they are in the log. No reference to them may be kept."""

    def moved(self) -> None:
        """The log start has advanced."""

    def gone(self) -> None:
        """The partition was deleted or closed."""


class LogPartition:
    """A partition whose log is on this host, as its readers see it. All calls come from the loop."""

    def __init__(self, name: TopicPartition, log: PartitionLog) -> None:
        self.name = name
        self.log = log
        self._waiters: dict[ReadWaiter, None] = {}
        self._committed_waiters: dict[ReadWaiter, None] = {}
        self.here = True  # neither deleted, closed nor released
        self._gone: Fault | None = None  # the fault that later calls raise

    def reconfigure(self, config: TopicConfig) -> None:
        """Applies a changed topic configuration."""
        self.log.config = config

    # --- reading

    def _wake(self, size: int, end: int, stable: int) -> None:
        """Wakes the waiters. `end` and `stable` are the values before the append of `size` bytes."""
        if self._waiters:
            for waiter in tuple(self._waiters):
                waiter.grown(size)
        if self._committed_waiters:
            self._wake_committed(size, end, stable)

    def _wake_committed(self, size: int, end: int, stable: int) -> None:
        """Wakes the read_committed waiters. `end` and `stable` are the values before the append of `size`
        bytes."""
        after = self.log.stable_offset
        if after == stable:
            return
        if stable != end or after != self.log.end_offset:
            size = 0  # the bytes that became readable are not exactly the appended ones
        for waiter in tuple(self._committed_waiters):
            waiter.grown(size)

    def read(self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool) -> PartitionRead:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
        log = self.log
        end, stable = log.end_offset, log.stable_offset
        if isolation is _UNCOMMITTED:
            chunks, size = log.read(offset, max_bytes, end, at_least_one=at_least_one)
            return PartitionRead(chunks, size, end, stable, log.start_offset)
        chunks, size = log.read(offset, max_bytes, stable, at_least_one=at_least_one)
        aborted = self._aborted(offset, stable, chunks) if size else ()
        return PartitionRead(chunks, size, end, stable, log.start_offset, aborted)

    def _aborted(self, offset: int, stable: int, chunks: Sequence[Chunk]) -> list[AbortedTransaction]:
        """Returns the aborted transactions in `chunks`; a long list is limited to the last batch's end."""
        found = self.log.held.aborted_between(offset, stable)
        if len(found) > _FEW:
            end = end_of(chunks)
            found = [entry for entry in found if entry[1] < end]
        return [AbortedTransaction(*entry) for entry in found]

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        waiters = self._committed_waiters if isolation else self._waiters
        waiters[waiter] = None

    def unwatch(self, waiter: ReadWaiter) -> None:
        self._waiters.pop(waiter, None)
        self._committed_waiters.pop(waiter, None)

    @property
    def watched(self) -> bool:
        """Whether there are waiters."""
        return bool(self._waiters or self._committed_waiters)

    def watches(self, waiter: ReadWaiter) -> bool:
        """Whether `waiter` waits here."""
        return waiter in self._waiters or waiter in self._committed_waiters

    def look_again(self) -> None:
        """Wakes all waiters, which then read again."""
        for waiter in (*self._waiters, *self._committed_waiters):
            waiter.grown(0)

    @property
    def leader_epoch(self) -> int:
        return self.log.leader_epoch

    @property
    def size(self) -> int:
        return self.log.size

    def check_leader_epoch(self, current: int) -> None:
        known = self.log.leader_epoch
        if current in (NO_LEADER_EPOCH, known):
            return
        if current < known:
            raise TreecastError(
                Fault.FENCED_LEADER_EPOCH, f"leader epoch {current} has ended; the current one is {known}"
            )
        raise TreecastError(
            Fault.UNKNOWN_LEADER_EPOCH, f"leader epoch {current} is unknown; the current one is {known}"
        )

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
        log = self.log
        limit = log.stable_offset if isolation else log.end_offset
        if timestamp == EARLIEST_TIMESTAMP:
            return OffsetAtTime(log.start_offset, -1, log.leader_epoch)
        if timestamp == LATEST_TIMESTAMP:
            return OffsetAtTime(limit, -1, log.leader_epoch)
        if timestamp == MAX_TIMESTAMP:
            found = log.max_timestamp_offset()
        elif timestamp < 0:
            raise TreecastError(Fault.INVALID_REQUEST, f"timestamp {timestamp} is invalid")
        else:
            found = log.offset_for_time(timestamp, limit)
        if found is None:
            return OffsetAtTime(-1, -1, NO_LEADER_EPOCH)
        return OffsetAtTime(*found)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        if leader_epoch == self.log.leader_epoch:  # which has no entry in the log until it has written
            return leader_epoch, self.log.end_offset
        return self.log.end_of_epoch(leader_epoch)

    def active_producers(self) -> tuple[ActiveProducer, ...]:
        return active_producers(self.log)

    # --- life

    def clean(self, now_ms: int) -> None:
        """Applies retention, rolls by time, expires idle producers. Raises STORAGE on a disk error."""
        self.log.clean(now_ms)

    def remove(self) -> None:
        """Wakes all waiters, as the topic is deleted. Every later call raises UNKNOWN_TOPIC."""
        self._leave(Fault.UNKNOWN_TOPIC)
        self.log.discard()

    def close(self, now_ms: int) -> None:
        """Wakes all waiters, and flushes. Every later call raises LEADER_UNAVAILABLE.

        Raises STORAGE if the flush fails.
        """
        self._leave(Fault.LEADER_UNAVAILABLE)
        self.log.close(now_ms)

    def release(self) -> PartitionLog:
        """Wakes all waiters, and returns the log to another owner. Every later call raises NOT_LEADER."""
        self._leave(Fault.NOT_LEADER)
        return self.log

    def _leave(self, fault: Fault) -> None:
        self.here, self._gone = False, fault
        waiters = (*self._waiters, *self._committed_waiters)
        self._waiters.clear()
        self._committed_waiters.clear()
        for waiter in waiters:
            waiter.gone()


class BatchRules:
    """The rules of a topic's configuration for a single batch."""

    def __init__(self, topic: str, config: TopicConfig) -> None:
        self._topic = topic
        self._compacted = config.cleanup_compact
        self._stamps = config.log_append_time
        self._before_ms = config.timestamp_before_max_ms
        self._after_ms = config.timestamp_after_max_ms

    def allow(self, header: BatchHeader, now_ms: int) -> bool:
        """Whether all records of the batch may be stored; `refusal` tells which may not."""
        if self._compacted and header.first_keyless >= 0:
            return False
        if self._stamps:
            return True
        if header.max_timestamp - now_ms > self._after_ms:
            return False
        return self._before_ms == INT64_MAX or now_ms - header.min_timestamp <= self._before_ms

    def check(self, header: BatchHeader, now_ms: int) -> None:
        """Raises INVALID_RECORD or INVALID_TIMESTAMP if `allow` is false, without naming records."""
        if not self.allow(header, now_ms):
            keyless = self._compacted and header.first_keyless >= 0
            raise TreecastError(Fault.INVALID_RECORD if keyless else Fault.INVALID_TIMESTAMP)

    def refusal(
        self, batches: memoryview, headers: list[BatchHeader], wrong: BatchHeader, now_ms: int
    ) -> TreecastError:
        """Returns INVALID_RECORD or INVALID_TIMESTAMP with each offending record (KIP-467)."""
        position = 0
        for header in headers:
            if header is wrong:
                break
            position += header.size
        records = read_records(batches, position, wrong)
        keyless = [index for index, one in enumerate(records) if self._compacted and one.key is None]
        if keyless:
            detail = f"topic {self._topic} is compacted, record {keyless[0]} has no key"
            why = f"topic {self._topic} is compacted, and this record has no key"
            return TreecastError(Fault.INVALID_RECORD, detail, [(index, why) for index in keyless])
        late = [
            (index, self._wrong_time(one.timestamp, now_ms))
            for index, one in enumerate(records)
            if not (self._stamps or -self._after_ms <= now_ms - one.timestamp <= self._before_ms)
        ]
        reason = late[0][1] if late else ""
        return TreecastError(Fault.INVALID_TIMESTAMP, reason, late)

    def _wrong_time(self, timestamp: int, now_ms: int) -> str:
        return (
            f"timestamp {timestamp} is not between {self._before_ms} ms before and {self._after_ms} ms"
            f" after the broker's time {now_ms}"
        )


class LocalPartition(LogPartition):
    """A partition that this host leads: implements `cluster.PartitionLeader`."""

    def __init__(
        self,
        name: TopicPartition,
        log: PartitionLog,
        flusher: Flusher,
        guard: TransactionGuard,
        counters: BrokerCounters,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(name, log)
        self._flusher = flusher
        self._guard = guard
        self._counters = counters
        self._clock = clock
        self._tap: AppendTap | None = None
        self._verifying: dict[int, Future[None]] = {}  # by producer id; its later batches wait as well
        self._outdated: set[Future[None]] = set()  # requests that were made before a marker came
        self._heavy = HeavyAppends(flusher)
        self.reconfigure(log.config)

    def reconfigure(self, config: TopicConfig) -> None:
        super().reconfigure(config)
        self._max_bytes = config.max_message_bytes
        self._rules = BatchRules(self.name.topic, config)
        self._compression = stored_codec(config)  # None: as the producer sent it

    def tap(self, tap: AppendTap | None) -> None:
        """Reports appends to `tap` from now on, in place of any earlier tap."""
        self._tap = tap

    # --- writing

    @property
    def waits(self) -> bool:
        """Whether a new append has to wait for an earlier one that a thread prepares."""
        return self._heavy.preparing or len(self._heavy.behind) > 0

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        """As `cluster.PartitionLeader`. A repeated idempotent batch gets the result of the first append.

        Several batches of which one is too heavy for the loop are refused: each has to be appended alone.
        """
        heavy = self._heavy
        if heavy.preparing or heavy.behind:
            return self._append_behind(batches, acks, transactional_id)
        return self._append_now(batches, acks, transactional_id)

    def _append_now(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        try:
            headers = check_batches(batches, self._max_bytes, at_once=AT_ONCE)
        except Unfinished:
            headers = None
        codec = self._compression
        if headers is None or (codec is not None and is_heavy(headers, codec)):
            return self._append_prepared(batches, acks, transactional_id)
        return self._append_checked(batches, headers, acks, transactional_id)

    def _append_checked(
        self, batches: memoryview, headers: list[BatchHeader], acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        first = headers[0]
        if first.producer_id >= 0 and (self._verifying or first.transactional):
            verified = self._unverified(first, transactional_id)
            if verified is not None:
                return self._append_later(verified, bytearray(batches), headers, acks, transactional_id)
        return self._append(batches, headers, acks)

    def _append_prepared(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Future[Appended]:
        """Checks and recompresses a batch on a thread, then appends it."""
        if read_header(batches, 0).size < len(batches):
            raise TreecastError(Fault.BATCH_TOO_LARGE, "such a large batch has to be appended alone")
        copy = memoryview(bytearray(batches))
        work = partial(prepare, copy, self._max_bytes, self._compression)
        append = partial(self._append_checked, acks=acks, transactional_id=transactional_id)
        return self._heavy.prepare(work, append)

    def _append_behind(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Future[Appended]:
        """Appends after the heavy batch that is prepared now. Several batches are checked at once, since
        their sender has to learn of a refusal in this call."""
        if read_header(batches, 0).size < len(batches):
            now_ms = int(self._clock() * 1000)
            try:
                for header in check_batches(batches, self._max_bytes, at_once=AT_ONCE):
                    self._rules.check(header, now_ms)
            except Unfinished:
                raise TreecastError(
                    Fault.BATCH_TOO_LARGE, "such a large batch has to be appended alone"
                ) from None
        again = partial(self._append_now, memoryview(bytearray(batches)), acks, transactional_id)
        return self._heavy.wait(again)

    def _append(
        self, batches: memoryview, headers: list[BatchHeader], acks: int
    ) -> Appended | Future[Appended]:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
        now_ms = int(self._clock() * 1000)
        if headers[0].producer_id >= 0 or len(headers) > 1:
            repeated = self._check_producer(headers)
            if repeated is not None:
                self._counters.duplicate_batches += 1
                return self._answer(Appended(repeated, -1, self.log.start_offset), acks, now_ms)
        for header in headers:
            if not self._rules.allow(header, now_ms):
                raise self._rules.refusal(batches, headers, header, now_ms)
        if self._compression is not None:
            batches, headers = recompressed(batches, headers, self._compression, self._max_bytes)
        return self._answer(self._store(batches, headers, now_ms), acks, now_ms)

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
        now_ms = int(self._clock() * 1000)
        asked = self._verifying.pop(producer.producer_id, None)
        if asked is not None:  # its answer may be about the transaction that ends here
            self._outdated.add(asked)
            asked.add_done_callback(self._outdated.discard)
        state = self.log.producers.get(producer.producer_id)
        if state is not None and state.transaction_start >= 0:
            self.log.producers.check_marker(producer.producer_id, producer.epoch, coordinator_epoch)
            marker = bytearray(
                control_marker(
                    COMMIT if committed else ABORT,
                    producer,
                    coordinator_epoch=coordinator_epoch,
                    timestamp=now_ms,
                )
            )
            self._store(memoryview(marker), [read_header(marker, 0)], now_ms)
        return self._flusher.acknowledged(self.log, now_ms)

    def _unverified(self, header: BatchHeader, transactional_id: str | None) -> Future[None] | None:
        """Returns the verification that a batch has to wait for, or None.

        The transaction's home is asked once per transaction, at its first batch. Later batches of the same
        producer wait for the same answer.
        """
        waiting = self._verifying.get(header.producer_id)
        if waiting is not None:
            return waiting
        known = self.log.producers.get(header.producer_id)
        if not header.transactional or (
            known is not None and known.epoch == header.producer_epoch and known.transaction_start >= 0
        ):
            return None
        if self._gone is not None or self.log.producers.check(header) is not None:
            return None  # refused or a repeat in any case
        if transactional_id is None:
            raise TreecastError(
                Fault.INVALID_TRANSACTION_STATE, "a transactional batch without a transactional id"
            )
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        verified = self._guard.verify(transactional_id, producer, self.name)
        if verified is not None:
            self._verifying[header.producer_id] = verified
        return verified

    def _append_later(
        self,
        verified: Future[None],
        batches: bytearray,
        headers: list[BatchHeader],
        acks: int,
        transactional_id: str | None,
    ) -> Future[Appended]:
        """Appends the batches after verification. The order of the calls is kept, because callbacks of one
        future run in the order in which they were added."""
        answer: Future[Appended] = verified.get_loop().create_future()
        verified.add_done_callback(partial(self._verified, answer, batches, headers, acks, transactional_id))
        return answer

    def _verified(
        self,
        answer: Future[Appended],
        batches: bytearray,
        headers: list[BatchHeader],
        acks: int,
        transactional_id: str | None,
        verified: Future[None],
    ) -> None:
        producer_id = headers[0].producer_id
        if self._verifying.get(producer_id) is verified:
            del self._verifying[producer_id]
        try:
            if verified in self._outdated:
                if not verified.cancelled():
                    verified.exception()  # retrieved only to silence asyncio's warning
                appended = self.append(memoryview(batches), acks, transactional_id)
            else:
                verified.result()
                appended = self._append(memoryview(batches), headers, acks)
        except CancelledError:
            answer.cancel()
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if isinstance(appended, Appended):
                if not answer.done():
                    answer.set_result(appended)
            else:
                appended.add_done_callback(partial(hand_on, answer))

    def _check_producer(self, headers: list[BatchHeader]) -> int | None:
        """Returns the base offset of the batch that a single batch repeats, or None to append all.

        Several batches must either follow each other in sequence, from one idempotent producer, or come
        from producers that are not idempotent. Otherwise raises INVALID_RECORD.
        """
        first = headers[0]
        for number in range(1, len(headers)):
            header = headers[number]
            if header.producer_id != first.producer_id or (
                header.producer_id >= 0 and not header.follows(headers[number - 1])
            ):
                raise TreecastError(
                    Fault.INVALID_RECORD,
                    "an idempotent producer's batches are out of order",
                )
        repeated = self.log.producers.check(first)
        if repeated is not None and len(headers) > 1:
            raise TreecastError(Fault.INVALID_RECORD, "a repeated batch was sent together with other batches")
        return repeated

    def _store(self, batches: memoryview, headers: list[BatchHeader], now_ms: int) -> Appended:
        log = self.log
        end, stable = log.end_offset, log.stable_offset
        stored = log.append(batches, headers, now_ms)
        if self._tap is not None:
            self._tap.appended(batches, headers)
        self._wake(len(batches), end, stable)
        return Appended(stored.base_offset, stored.log_append_time, log.start_offset)

    def _answer(self, appended: Appended, acks: int, now_ms: int) -> Appended | Future[Appended]:
        """Returns the result at once if no flush is needed, else a future that completes after it."""
        if acks == 0 or not self.log.flush_needed:
            return appended
        flushed = self._flusher.acknowledged(self.log, now_ms)
        if flushed is None:
            return appended
        answer: Future[Appended] = flushed.get_loop().create_future()
        flushed.add_done_callback(partial(_pass_on, answer, appended))
        return answer

    # --- life

    def delete_before(self, offset: int) -> int:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
        before = self.log.start_offset
        start = self.log.delete_before(offset)
        if self._tap is not None and start != before:
            self._tap.moved()
        return start

    def clean(self, now_ms: int) -> None:
        """Applies retention, rolls by time, expires idle producers. Raises STORAGE on a disk error."""
        before = self.log.start_offset
        try:
            self.log.clean(now_ms)
        finally:
            if self._tap is not None and self.log.start_offset != before:
                self._tap.moved()

    def _leave(self, fault: Fault) -> None:
        super()._leave(fault)
        tap, self._tap = self._tap, None
        if tap is not None:
            tap.gone()


def takes_runs(leader: PartitionLeader) -> bool:
    """Whether `leader` accepts several batches of one idempotent producer in one call.

    The caller has to learn of a refusal at once, to append each batch alone then. A leader on another host
    refuses too late for that.
    """
    return isinstance(leader, LocalPartition) and not leader.waits


def _pass_on(answer: Future[Appended], appended: Appended, flushed: Future[None]) -> None:
    if answer.done():  # the caller no longer waits
        flushed.cancelled() or flushed.exception()
    elif flushed.cancelled():
        answer.cancel()
    elif (error := flushed.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(appended)


def end_of(chunks: Sequence[Chunk]) -> int:
    """Returns the offset after the last batch of `chunks`; a batch may span two chunks."""
    data = b"".join(map(in_memory, chunks))
    position = 0
    while True:
        header = read_header(data, position)
        position += header.size
        if position >= len(data):
            return header.next_offset
