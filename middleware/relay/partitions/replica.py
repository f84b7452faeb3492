"""The replica of one partition at a host with interest: its begin, its catching up and its restarts.

    unfollowed --want--> asking --answered--> behind <--> current      all: --leave--> unfollowed

*Asking*: the replica tells the leader its end, and the leader answers where the two logs diverge. The replica
discards its records beyond that offset, and the stream begins there. *Behind*: readers at the replica's end
are sent to the leader. *Current*: the replica has everything that the leader had when it was asked, and
readers wait here. A replica that lacks records and makes no progress is behind until it makes progress again.
After a reconnect, the leader is asked again.

The goal of catching up stays fixed, whatever ends the leader reports to readers meanwhile. Otherwise the
replica would never be current under load, and each record would arrive twice, by the stream and by readers'
calls. For the same reason readers wait for a replica that is catching up if it will soon reach their offset.

The replica obeys a leader that would truncate it only if the leader leads from the disk with which this log
last agreed and the two logs have a common part (`lost_disk.refuses`). Otherwise the replica is *refused*: it
stays unchanged and is not followed until the leader is asked again or the operator begins it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.long_poll import LongPolls
from treecast.middleware.fabric.core.reorder import Delivery, Progress
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import JoinedStream
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.crc import crc32c
from treecast.middleware.wire.record_batch import BatchHeader, read_header
from treecast.middleware.wire.segment import Message

from . import calls
from .lost_disk import refuses
from .ports import PartitionSettings
from .proxy import LeaderProxy
from .stream_log import PartitionStreamLog, StreamMemory

_log = Log(__name__)

_GROWING: Final = 0.5  # s: a replica that received records in this time is catching up
_SOON: Final = 0.25  # s: records expected in this time are not fetched from the leader
_TRIES: Final = 4  # to agree where the logs diverge; a second is needed if a batch spans that offset
_CRC_FROM: Final = 21


class Growth:
    """The growth rate of a log in records per second, over at least a quarter of a second."""

    def __init__(self) -> None:
        self.at = -NEVER  # time of the last growth
        self.speed = 0.0
        self._mark = (0, -NEVER)

    def reached(self, end: int, now: float) -> None:
        before, then = self._mark
        self.at = now
        if now - then > 4 * _SOON:  # too long ago: start a new measurement
            self._mark, self.speed = (end, now), 0.0
        elif now - then >= _SOON:
            self._mark, self.speed = (end, now), (end - before) / (now - then)


class Replica:
    """Follows one partition. Implements `fabric.origin.Sink`. All calls come from the event loop."""

    def __init__(
        self,
        partition: FollowedPartition,
        leader: LeaderProxy,
        fabric: Fabric,
        settings: PartitionSettings,
        counters: RelayCounters,
        clock: Callable[[], float],
        polls: LongPolls,
        changed: Callable[[], None],
        *,
        tail: bool,
        memory: StreamMemory,
        agreed: str,
        on_agreed: Callable[[str], None],
    ) -> None:
        """`clock` returns wall-clock seconds. `changed`: called when `current` changes.

        `agreed`: the data directory of the leader with which this log last agreed. `on_agreed`: called with a
        new one.
        """
        self.partition = partition
        self.refused = ""  # why it is not followed although the leader is available
        self._agreed = agreed
        self._on_agreed = on_agreed
        self.checked = False  # whether its records agreed with the leader's when last asked
        self.current = False
        self.joined: JoinedStream | None = None
        self.known_end = 0  # lower bound of the leader's log end
        self._goal = 0  # the end at which it is current
        self._growth = Growth()
        self._waited_for = False  # whether readers wait here although it is not current
        self._leader = leader
        self._fabric = fabric
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._polls = polls
        self._changed = changed
        self._tail = tail
        self._memory = memory
        self._start = 0  # start of the leader's log
        self._wanted = False
        self._task: asyncio.Task[None] | None = None
        self._failures = 0  # consecutive chunks that could not be appended
        self._progress = (-1, 0.0)  # (end, when it was first seen)
        self._grown_at = 0.0  # the loop's time of the last records, or when the stream was joined

    @property
    def begun(self) -> bool:
        """Whether it holds records of the leader or was checked: an unchecked empty replica tells nothing."""
        return self.checked or self.partition.log.end_offset > 0

    # --- life

    def want(self) -> None:
        """Begins to follow, or asks the leader again after a reconnect."""
        self._wanted = True
        if self._task is None and self._leader.up:
            self._task = asyncio.get_running_loop().create_task(
                self._follow(), name=f"follow {self.partition.name}"
            )

    def leave(self) -> None:
        """Stops following; the records stay."""
        self._wanted = False
        self.checked = False
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._leave_stream()

    def _leave_stream(self) -> None:
        joined, self.joined = self.joined, None
        if joined is not None:
            joined.leave()
        self._set_current(False)

    def _set_current(self, current: bool) -> None:
        if current != self.current:
            self.current = current
            self._changed()

    # --- asking the leader

    async def _follow(self, pause: float = 0.0) -> None:
        try:
            await asyncio.sleep(pause)
            while self._wanted and self.partition.here and self._leader.up:
                try:
                    await self._begin()
                    return
                except TreecastError as error:
                    pause = min(max(2 * pause, self._settings.retry_first), self._settings.retry_longest)
                    _log.info("leader cannot be followed", partition=self.partition.name, error=error)
                await asyncio.sleep(pause)
        finally:
            if self._task is asyncio.current_task():
                self._task = None

    async def _begin(self) -> None:
        for _ in range(_TRIES):
            log = self.partition.log
            entries = log.epoch_entries
            receiving = self.joined.key[1:] if self.joined is not None else None
            progress = self.joined.progress if self.joined is not None else None
            # -1: it has never had a record, and begins wherever the leader and its policy say.
            end = log.end_offset if log.end_offset or entries else -1
            answer = await self._leader.follow(
                end,
                entries,
                tail=self._tail,
                receiving=receiving,
                progress=progress,
                agreed=self._agreed,
            )
            if self._take(answer, end):
                self._counters.follows += 1
                return
        raise TreecastError(Fault.INTERNAL, "the leader and this replica do not agree where their logs part")

    def _take(self, answer: calls.FollowResponse, end: int) -> bool:
        """Applies the leader's answer. Returns False if the leader has to be asked again.

        This is so if the replica does not end where the stream begins.
        """
        self.known_end = max(self.known_end, answer.end)
        self._start = answer.log_start
        if answer.kept and self.joined is not None:
            self.checked = True
            return True
        self._leave_stream()
        # Compared after the stream was left, which may have appended while the leader was asked.
        if self.partition.log.end_offset > max(end, 0):
            return False  # the replica has grown meanwhile, so the answer is outdated
        if self._refuses(answer):
            return True
        self._cut(answer)
        # It was cut in the middle of a batch, and begins earlier than the answer says.
        if self.partition.log.end_offset != answer.begin:
            return False
        self._join(answer)
        return True

    def _refuses(self, answer: calls.FollowResponse) -> bool:
        """Whether the replica refuses the truncation in the answer. Unfollows the leader if so."""
        log = self.partition.log
        if not refuses(
            log.start_offset,
            log.end_offset,
            answer.begin,
            restart=answer.restart,
            stranger=bool(self._agreed) and not answer.knows,
        ):
            self.refused = ""
            return False
        self.checked = False
        self._counters.refused_replicas += 1
        begin = log.start_offset if answer.restart else answer.begin
        self.refused = (
            f"host {self._leader.host} leads it without {begin} to {log.end_offset}, which are here: this"
            " copy is kept, and not followed"
        )
        _log.error(
            "replica is refused",
            partition=self.partition.name,
            reason=self.refused,
            advice="choose with `treecast partitions promote` or `rebuild`",
        )
        self._leader.unfollow()
        self._changed()
        return True

    def _cut(self, answer: calls.FollowResponse) -> None:
        """Discards the records that are not the leader's."""
        log, begin = self.partition.log, answer.begin
        now_ms = int(self._clock() * 1000)
        if answer.restart:
            if (log.start_offset, log.end_offset) != (begin, begin):
                if log.end_offset:
                    self._counters.restarted_replicas += 1
                    _log.warning("replica starts over", partition=self.partition.name, offset=begin)
                self.partition.restart(begin, now_ms)
        elif begin < log.end_offset:
            self._counters.truncations += 1
            before = log.end_offset
            self.partition.truncate(begin, now_ms)
            _log.warning(
                "replica is cut: the leader does not have these records",
                partition=self.partition.name,
                first=log.end_offset,
                end=before,
            )

    def _join(self, answer: calls.FollowResponse) -> None:
        self.checked = True
        if answer.directory != self._agreed:
            self._agreed = answer.directory
            self._on_agreed(answer.directory)
        self.known_end = max(answer.end, answer.begin)  # replaces the value from an earlier leader life
        self._move_start()
        self.joined = self._fabric.join(
            self._leader.host,
            answer.stream,
            answer.epoch,
            self,
            progress=Progress(answer.begin, answer.begin),
            settings=self._fabric.waiting_settings,  # only the leader has some records
            held=PartitionStreamLog(self.partition.log, self._memory, told=False),
        )
        self._goal = self.known_end
        self._grown_at = self._now()
        self._set_current(self.partition.log.end_offset >= self._goal)

    # --- advances of the leader's log start

    def leader_starts_at(self, offset: int) -> None:
        self._start = max(self._start, offset)
        try:
            self._move_start()
        except TreecastError as error:
            _log.warning("replica retries", partition=self.partition.name, error=error)

    def _move_start(self) -> None:
        log = self.partition.log
        if log.start_offset < self._start <= log.end_offset:
            self.partition.advance_start(self._start, int(self._clock() * 1000))

    # --- deliveries of the stream

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Appends a whole chunk at once. Waiting readers are notified once and answered before other work.

        Readers that wait at the log's end are answered before the append, the others after it.
        """
        data, headers = gathered(deliveries)
        partition = self.partition
        try:
            self._polls.hold()
            try:
                partition.show(data, headers)
            finally:
                self._polls.let_go()
            self._polls.hold()
            try:
                partition.append_replicated(data, headers, int(self._clock() * 1000))
            finally:
                self._polls.let_go()
        finally:
            partition.forget_fresh()
        self._failures = 0
        self._grown_at = self._now()
        self._counters.replicated_batches += len(headers)
        self._counters.replicated_bytes += len(data)
        end = self.partition.log.end_offset
        if self._start > self.partition.log.start_offset:
            self._move_start()
        if not self.current:
            self._growth.reached(end, self._now())
            if end >= self._goal:
                self._set_current(True)

    def failed(self, error: Exception) -> None:
        """Handles a chunk that could not be appended: joins the stream again at the replica's end, after a
        pause."""
        self.joined = None
        self._counters.failed_chunks += 1
        self._failures += 1
        _log.error("records of a stream cannot be taken", partition=self.partition.name, error=error)
        self._set_current(False)
        self._again(min(self._settings.retry_first * 2.0**self._failures, self._settings.retry_longest))

    def _again(self, pause: float) -> None:
        if self._task is None and self._wanted and self.partition.here:
            self._task = asyncio.get_running_loop().create_task(
                self._follow(pause), name=f"follow {self.partition.name}"
            )

    # --- progress

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def growing(self) -> bool:
        """Whether it is catching up: records have arrived within `_GROWING`."""
        return self.checked and self._now() - self._growth.at < _GROWING

    @property
    def quiet(self) -> bool:
        """Whether the leader was heard for a while after its last records."""
        if self.joined is None:
            return False
        return self._now() - self.joined.silence - self._grown_at >= self._settings.quiet

    def reaches(self, offset: int) -> bool:
        """Whether it is catching up and will soon reach `offset`. If so, the reader must wait here."""
        if not self.growing or offset - self.partition.log.end_offset > self._growth.speed * _SOON:
            return False
        self._waited_for = True
        return True

    def _stalled(self, waited: float) -> bool:
        """Whether readers should go to the leader after `waited` seconds without progress.

        A stream whose origin is heard is only slow: what readers fetched meanwhile would cross the network a
        second time and take the stream's share of it.
        """
        silent = self.joined is None or self.joined.silence >= self._settings.stall
        return waited >= (self._settings.stall if silent else self._settings.follow_again)

    def check(self, now: float) -> None:
        """Handles a replica that lacks records but makes no progress. `now`: the loop's time."""
        if self._waited_for and not self.growing:
            self._waited_for = False
            self._changed()
        end = self.partition.log.end_offset
        lag = self.joined.lag if self.joined is not None else 0
        if (
            self.refused
            or not self._leader.up
            or (lag == 0 and end >= self.known_end)
            or end != self._progress[0]
        ):
            self._progress = (end, now)
            return
        waited = now - self._progress[1]
        if self.current and self._stalled(waited):
            self._counters.stalled_replicas += 1
            self.known_end = max(self.known_end, end + 1)
            self._goal = end + 1
            self._set_current(False)
        if waited >= self._settings.follow_again:
            self._progress = (end, now)
            self._leave_stream()
            self.want()


def gathered(deliveries: Sequence[Delivery]) -> tuple[bytes, list[BatchHeader]]:
    """Returns (the batches of a chunk in one piece, their headers).

    Raises CORRUPT_BATCH if a batch does not match its sequence or fails its CRC-32C.
    """
    headers: list[BatchHeader] = []
    for delivery in deliveries:
        _read_batches(delivery.message, headers)
    if len(deliveries) == 1:
        return deliveries[0].message.payload, headers
    return b"".join([delivery.message.payload for delivery in deliveries]), headers


def _read_batches(message: Message, headers: list[BatchHeader]) -> None:
    """Adds the headers of a message's batches to `headers`. Raises CORRUPT_BATCH."""
    payload, offset, position = message.payload, message.sequence, 0
    view = memoryview(payload)
    while position < len(payload):
        header = read_header(payload, position)
        end = position + header.size
        if header.base_offset != offset or header.size <= _CRC_FROM or end > len(payload):
            raise TreecastError(
                Fault.CORRUPT_BATCH,
                f"batch {header.base_offset} arrived at offset {offset} of message {message.sequence}",
            )
        if crc32c(view[position + _CRC_FROM : end]) != header.crc:
            raise TreecastError(Fault.CORRUPT_BATCH, f"the batch at {offset} fails its CRC-32C")
        headers.append(header)
        offset, position = header.next_offset, end
    if offset != message.end:
        raise TreecastError(
            Fault.CORRUPT_BATCH, f"the batches of {message.sequence} end at {offset}, not {message.end}"
        )
