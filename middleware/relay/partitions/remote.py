"""`RemotePartition`: a partition that another host leads, as seen by the faces of this host.

Writes go to the leader, in order. Reads are served from the replica if it has the records, else by the
leader. Only the leader answers OFFSET_OUT_OF_RANGE and the latest offset. While it cannot be reached, readers
continue with the replica.
"""

from __future__ import annotations

import asyncio
import struct
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from treecast.middleware.broker.batch_sizes import grows_too_large
from treecast.middleware.broker.cluster import ReadWaiter
from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.partition import BatchRules
from treecast.middleware.broker.values import (
    LATEST_TIMESTAMP,
    ActiveProducer,
    Appended,
    Isolation,
    OffsetAtTime,
    PartitionRead,
    Topic,
)
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import NO_LEADER_EPOCH, ProducerIdentity, TopicPartition
from treecast.middleware.storage.log import PartitionLog
from treecast.middleware.wire.record_batch import (
    AT_ONCE,
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Unfinished,
    check_batches,
)

from .ports import PartitionSettings
from .proxy import LeaderProxy
from .replica import Replica
from .watches import Watches

T = TypeVar("T")

_LENGTH: Final = struct.Struct(">i")  # length of a batch after this field
_LENGTH_AT: Final = 8
_LAST_DELTA: Final = struct.Struct(">i")  # last offset delta of a batch
_LAST_DELTA_AT: Final = 23


class RemotePartition:
    """Implements `broker.cluster.PartitionLeader`. All calls come from the event loop."""

    def __init__(
        self,
        name: TopicPartition,
        leader: LeaderProxy,
        epoch: int,
        settings: PartitionSettings,
        counters: RelayCounters,
        wanted: Callable[[RemotePartition], None],
        down_since: Callable[[int], float],
        topic: Callable[[], Topic | None],
        clock: Callable[[], float],
    ) -> None:
        """`epoch`: the coordinator's. `wanted`: called at a fetch while there is no replica.

        `down_since` returns the loop's time since which a host has been disconnected. `topic` returns the
        current definition. `clock` returns wall-clock seconds.
        """
        self.name = name
        self.leader = leader
        self.replica: Replica | None = None
        self.used = 0.0  # the loop's time of the last fetch
        self._epoch = epoch
        self._settings = settings
        self._counters = counters
        self._wanted = wanted
        self._down_since = down_since
        self._topic = topic
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.here = True  # until `leave`
        self._gone: Fault | None = None
        self._watches = Watches(leader)

    # --- state

    @property
    def leader_epoch(self) -> int:
        return self._epoch if self.leader.epoch is None else self.leader.epoch

    @property
    def size(self) -> int:
        return self.replica.partition.log.size if self.replica is not None else 0

    @property
    def heard(self) -> int:
        """The highest end of the leader's log that this host has learnt of."""
        replica, heard = self.replica, self.leader.heard
        if replica is None or replica.refused:
            return heard
        joined = replica.joined
        of_stream = joined.next + joined.lag if joined is not None else 0
        return max(heard, replica.known_end, of_stream, replica.partition.log.end_offset)

    @property
    def current(self) -> bool:
        """Whether a replica here has followed the leader until now, or until that was gone, and its log was
        quiet then.
        """
        replica = self.replica
        return replica is not None and replica.current and not replica.refused and replica.quiet

    @property
    def watched(self) -> bool:
        """Whether a reader waits for records."""
        replica = self.replica
        return bool(self._watches) or (replica is not None and replica.partition.watched)

    def check_leader_epoch(self, current: int) -> None:
        """Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if `current` is not the leader's epoch.

        Accepts any epoch until an answer of the leader has told its own.
        """
        known = self.leader.epoch
        if current in (NO_LEADER_EPOCH, known) or known is None:
            return
        if current < known:
            raise TreecastError(
                Fault.FENCED_LEADER_EPOCH, f"leader epoch {current} has ended; the current one is {known}"
            )
        raise TreecastError(
            Fault.UNKNOWN_LEADER_EPOCH, f"leader epoch {current} is unknown; the current one is {known}"
        )

    def _reach(self) -> None:
        """Raises LEADER_UNAVAILABLE if the leader is known to be away, or the fault given to `leave`."""
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
        if not self.leader.up and self._away():
            raise TreecastError(
                Fault.LEADER_UNAVAILABLE,
                f"host {self.leader.host}, which leads {self.name}, cannot be reached",
            )

    def _away(self) -> bool:
        return self._loop.time() - self._down_since(self.leader.host) > self._settings.down_grace

    # --- writing

    def append(
        self, batches: memoryview, acks: int, transactional_id: str | None
    ) -> Appended | Future[Appended]:
        self._reach()
        size, records = len(batches), 0
        if size > HEADER_SIZE:
            if _LENGTH.unpack_from(batches, _LENGTH_AT)[0] + LOG_OVERHEAD < size:
                records = self._check_all(batches)
            else:
                records = _LAST_DELTA.unpack_from(batches, _LAST_DELTA_AT)[0] + 1
        self._counters.forwarded_appends += 1
        self._counters.forwarded_bytes += len(batches)
        # A copy: the bytes are in the face's receive buffer, and the call lasts beyond this turn.
        return self.leader.produce(bytes(batches), acks, transactional_id, records)

    def _check_all(self, batches: memoryview) -> int:
        """Checks several batches before they are forwarded. Returns their number of records.

        After a refusal here the sender sends each batch alone; a refusal by the leader would apply to all.
        """
        topic = self._topic()
        if topic is None:
            return 0
        config = topic.config
        rules, records = BatchRules(topic.name, config), 0
        now_ms = int(self._clock() * 1000)
        for header in _checked(batches, config.max_message_bytes):
            rules.check(header, now_ms)
            if grows_too_large(header, config):
                raise TreecastError(Fault.BATCH_TOO_LARGE)
            records += header.last_offset_delta + 1
        return records

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None] | None:
        self._reach()
        return self.leader.append_marker(producer, committed=committed, coordinator_epoch=coordinator_epoch)

    def delete_before(self, offset: int) -> int | Future[int]:
        self._reach()
        return self.leader.delete_before(offset)

    # --- reading

    def read(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> PartitionRead | Future[PartitionRead]:
        if self._gone is not None:
            raise TreecastError(self._gone, f"partition {self.name} is no longer on this host")
        self.used = self._loop.time()
        replica = self.replica
        if replica is None:
            self._wanted(self)
            replica = self.replica
        if replica is not None:
            found = self._from_replica(replica, offset, max_bytes, isolation, at_least_one)
            if found is not None:
                return found
        self._reach()
        asked = self.leader.fetch(offset, max_bytes, isolation, at_least_one=at_least_one)
        asked.add_done_callback(partial(self._note, isolation))
        return asked

    def _from_replica(
        self, replica: Replica, offset: int, max_bytes: int, isolation: Isolation, at_least_one: bool
    ) -> PartitionRead | None:
        """Returns records of the replica, or None if the leader has to be asked."""
        if not replica.checked and not (replica.begun and not self.leader.up):
            return None
        if replica.refused:
            return None  # its records differ from the leader's
        partition, log = replica.partition, replica.partition.log
        if log.start_offset <= offset < partition.readable_end:
            return self._read_here(partition, offset, max_bytes, isolation, at_least_one)
        if offset < log.end_offset:
            # Before the replica's start: only the leader may say that an offset is out of range.
            return None
        known = replica.current and offset <= max(replica.known_end, partition.readable_end)
        here = known or not self.leader.up or replica.reaches(offset)
        return _nothing_yet(log, max(self.heard, offset)) if here else None

    def _read_here(
        self,
        partition: FollowedPartition,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        at_least_one: bool,
    ) -> PartitionRead | None:
        """Returns what the replica has, or None if it does not have `offset` after all."""
        try:
            found = partition.read(offset, max_bytes, isolation, at_least_one=at_least_one)
        except TreecastError as error:
            if error.fault is Fault.OFFSET_OUT_OF_RANGE:  # its files hold less than it said while it rested
                return None
            raise
        self._counters.local_reads += 1
        self._counters.local_read_bytes += found.size
        return found

    def _note(self, isolation: Isolation, asked: Future[PartitionRead]) -> None:
        """Notes the watermarks in the leader's answer to a fetch."""
        if asked.cancelled() or asked.exception() is not None:
            return
        found = asked.result()
        self._counters.proxied_reads += 1
        self._counters.proxied_read_bytes += found.size
        self._watches.told(found)
        if self.replica is not None:
            self.replica.known_end = max(self.replica.known_end, found.high_watermark)

    # --- waiting for records

    def watch(self, waiter: ReadWaiter, isolation: Isolation) -> None:
        replica = self.replica
        if replica is None or not self._waits_here(replica):
            self._watches.add(waiter, isolation)
            return
        replica.partition.watch(waiter, isolation)
        log = replica.partition.log
        readable = log.stable_offset if isolation else log.end_offset
        if readable > self._watches.known(isolation) >= 0:
            # the replica may have grown since the leader's answer
            self._watches.forget(isolation)
            self._loop.call_soon(self._look_again, waiter)

    def _waits_here(self, replica: Replica) -> bool:
        if replica.refused:
            return False
        here = replica.current or replica.growing
        return (replica.checked and here) or (replica.begun and not self.leader.up)

    def _look_again(self, waiter: ReadWaiter) -> None:
        replica = self.replica
        if replica is not None and replica.partition.watches(waiter):
            waiter.grown(0)

    def unwatch(self, waiter: ReadWaiter) -> None:
        if self._watches.waiters:
            self._watches.remove(waiter)
        if self.replica is not None:
            self.replica.partition.unwatch(waiter)

    def look_again(self) -> None:
        """Wakes the readers that wait for an unavailable leader: they read the replica or are refused."""
        self._watches.wake()

    def changed(self) -> None:
        """Wakes the readers that wait at the wrong place after `Replica.current` has changed."""
        self._watches.wake()
        if self.replica is not None and not self.replica.current:
            self.replica.partition.look_again()

    # --- offsets

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime | Future[OffsetAtTime]:
        here = partial(self._here_for_time, timestamp, isolation)
        if not self.leader.up and self._away():
            return here()
        asked = self.leader.offset_for_time(timestamp, isolation)
        if timestamp == LATEST_TIMESTAMP:
            asked.add_done_callback(self._note_latest)
        return self._or_here(asked, here)

    def _here_for_time(self, timestamp: int, isolation: Isolation) -> OffsetAtTime:
        return self._own().partition.offset_for_time(timestamp, isolation)

    def _note_latest(self, asked: Future[OffsetAtTime]) -> None:
        if self.replica is not None and not asked.cancelled() and asked.exception() is None:
            self.replica.known_end = max(self.replica.known_end, asked.result().offset)

    def end_of_epoch(self, leader_epoch: int) -> tuple[int, int] | Future[tuple[int, int]]:
        here = partial(self._here_end_of_epoch, leader_epoch)
        if not self.leader.up and self._away():
            return here()
        return self._or_here(self.leader.end_of_epoch(leader_epoch), here)

    def active_producers(self) -> Future[tuple[ActiveProducer, ...]]:
        self._reach()
        return self.leader.active_producers()

    def _here_end_of_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """Returns the end of an epoch whose end is in the replica. Else raises LEADER_UNAVAILABLE.

        Only the leader knows the end of the newest epoch: a reader that is ahead of the replica would take
        the replica's end for a loss and go back.
        """
        log = self._own().partition.log
        found = log.end_of_epoch(leader_epoch)
        if not log.epoch_entries or found[0] in (NO_LEADER_EPOCH, log.epoch_entries[-1][0]):
            raise TreecastError(
                Fault.LEADER_UNAVAILABLE,
                f"host {self.leader.host}, which leads {self.name}, must be asked for the end of"
                " this epoch: try again later",
            )
        return found

    def _own(self) -> Replica:
        if self.replica is None or self.replica.refused:
            raise TreecastError(
                Fault.LEADER_UNAVAILABLE,
                f"host {self.leader.host}, which leads {self.name}, cannot be reached, and this"
                " host has no copy",
            )
        return self.replica

    def _or_here(self, asked: Future[T], here: Callable[[], T]) -> Future[T]:
        """Returns a future with the leader's answer, or with `here` if the leader does not answer."""
        answer: Future[T] = self._loop.create_future()
        asked.add_done_callback(partial(_settle, answer, here))
        return answer

    # --- life

    def leave(self, fault: Fault) -> None:
        """Ends the use of the partition: the topic is deleted or the partition has another leader."""
        self.here, self._gone = False, fault
        if self.replica is not None:
            self.replica.leave()
        self._watches.gone()


def _checked(batches: memoryview, max_bytes: int) -> list[BatchHeader]:
    """As `check_batches`, and refuses what decompresses to so much that it has to be sent alone."""
    try:
        return check_batches(batches, max_bytes, at_once=AT_ONCE)
    except Unfinished:
        raise TreecastError(Fault.BATCH_TOO_LARGE) from None


def _nothing_yet(log: PartitionLog, end: int) -> PartitionRead:
    """Returns the empty answer to a fetch between the replica's end and the leader's.

    `end`: of the leader's log, as far as it is known. An end below a reader's offset would tell it that
    records are lost, and only the leader may say so.
    """
    return PartitionRead([], 0, end, log.stable_offset, log.start_offset)


def _settle(answer: Future[T], here: Callable[[], T], asked: Future[T]) -> None:
    if answer.done():
        asked.cancelled() or asked.exception()
        return
    if asked.cancelled():
        answer.cancel()
        return
    error = asked.exception()
    if error is None:
        answer.set_result(asked.result())
        return
    if isinstance(error, TreecastError) and error.fault in (Fault.LEADER_UNAVAILABLE, Fault.TIMED_OUT):
        try:
            answer.set_result(here())
            return
        except TreecastError as own:
            error = own
    answer.set_exception(error)
    answer.exception()  # retrieved, so that asyncio logs nothing if the caller has gone
