"""The replica of one partition at a host with interest: how it is begun, brought on, and begun again.

    unfollowed --want--> asking --answered--> behind <--> current      all: --leave--> unfollowed

*Asking*: the leader is told where the replica ends, and says where the two logs part; what the replica has
beyond that goes, and the stream begins there. *Behind*: readers at its end are sent to the leader.
*Current*: it has had all that the leader had when it was asked, and readers wait at it. A replica that makes
no progress though there is more is behind again. When the connection comes back, the leader is asked again.

What the leader tells readers meanwhile does not move the goal: under load it would never be reached, and
each record would come twice, by the stream and by readers' calls. For the same reason a replica that is
behind, and is being brought on, is waited for by readers whom it reaches soon.

A leader that would cut what is here is obeyed only where it leads from the disk with which this log agreed
last, and the two logs have something in common (`lost_disk.refuses`). Else the replica is *refused*: it stays
as it is and is not followed, until the leader is asked again or the operator has it begun anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.long_poll import LongPolls
from treecast.middleware.fabric.core.outcomes import Delivery, Progress
from treecast.middleware.fabric.core.settings import NEVER
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.origin import JoinedStream
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.wire.crc import crc32c
from treecast.middleware.wire.record_batch import BatchHeader, read_header
from treecast.middleware.wire.segment_assembly import Message

from . import calls
from .lost_disk import refuses
from .ports import PartitionSettings
from .proxy import LeaderProxy
from .stream_log import PartitionStreamLog, StreamMemory

_log = logging.getLogger(__name__)

_GROWING: Final = 0.5  # s: a replica that got something in them is being brought on
_SOON: Final = 0.25  # s: what comes so soon, the leader is not asked for
_TRIES: Final = 4  # to agree where the logs part; one, and another where a batch lies across that
_CRC_FROM: Final = 21


class Growth:
    """How fast a log grows: records per second, over a quarter of a second at least."""

    def __init__(self) -> None:
        self.at = -NEVER  # when it grew last
        self.speed = 0.0
        self._mark = (0, -NEVER)

    def reached(self, end: int, now: float) -> None:
        before, then = self._mark
        self.at = now
        if now - then > 4 * _SOON:  # a new beginning
            self._mark, self.speed = (end, now), 0.0
        elif now - then >= _SOON:
            self._mark, self.speed = (end, now), (end - before) / (now - then)


class Replica:
    """Follows one partition. Implements `fabric.origin.Sink`. All calls come from the loop."""

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
        """`clock` gives wall-clock seconds. `changed` is called when `current` changes.

        `agreed`: the data directory of the leader with which this log agreed last; `on_agreed` is told of
        another.
        """
        self.partition = partition
        self.refused = ""  # why it is not followed, though the leader is there
        self._agreed = agreed
        self._on_agreed = on_agreed
        self.checked = False  # all it has is what the leader had, when it was last asked
        self.current = False
        self.joined: JoinedStream | None = None
        self.known_end = 0  # the leader's log was at least so long
        self._goal = 0  # at which it is current
        self._growth = Growth()
        self._waited_for = False  # by readers, though it is not current
        self._leader = leader
        self._fabric = fabric
        self._settings = settings
        self._counters = counters
        self._clock = clock
        self._polls = polls
        self._changed = changed
        self._tail = tail
        self._memory = memory
        self._start = 0  # where the leader's log begins
        self._wanted = False
        self._task: asyncio.Task[None] | None = None
        self._failures = 0  # chunks in a row that could not be taken
        self._progress = (-1, 0.0)  # an end, and when it was first seen

    @property
    def begun(self) -> bool:
        """Whether it is what the leader once had: an empty one may be of a leader that has much."""
        return self.checked or self.partition.log.end_offset > 0

    # --- life

    def want(self) -> None:
        """Begins to follow, or asks the leader again: the connection to it is there anew."""
        self._wanted = True
        if self._task is None and self._leader.up:
            self._task = asyncio.get_running_loop().create_task(
                self._follow(), name=f"follow {self.partition.name}"
            )

    def leave(self) -> None:
        """Follows no more; what is here stays."""
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
                    _log.info("%s cannot be followed: %s", self.partition.name, error)
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
            end = log.end_offset if log.end_offset or entries else -1
            answer = await self._leader.follow(
                end, entries, tail=self._tail, receiving=receiving, progress=progress
            )
            if self._take(answer, end):
                self._counters.follows += 1
                return
        raise TreecastError(Fault.INTERNAL, "the leader and this replica do not agree where their logs part")

    def _take(self, answer: calls.FollowResponse, end: int) -> bool:
        """Whether the replica ends where the stream begins; else the leader is to be asked again."""
        self.known_end = max(self.known_end, answer.end)
        self._start = answer.log_start
        if answer.kept and self.joined is not None:
            self.checked = True
            return True
        self._leave_stream()
        if self.partition.log.end_offset > max(end, 0):
            return False  # others have brought it on meanwhile: the answer is about less than is here
        if self._refuses(answer):
            return True
        self._cut(answer)
        if self.partition.log.end_offset != answer.begin:
            return False
        self._join(answer)
        return True

    def _refuses(self, answer: calls.FollowResponse) -> bool:
        """Whether what is here is kept against the leader's word. It sends no stream to who refuses."""
        log = self.partition.log
        if not refuses(
            log.start_offset,
            log.end_offset,
            answer.begin,
            restart=answer.restart,
            leader=answer.directory,
            agreed=self._agreed,
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
            "%s: %s; `treecast partitions promote` and `rebuild` decide", self.partition.name, self.refused
        )
        self._leader.unfollow()
        self._changed()
        return True

    def _cut(self, answer: calls.FollowResponse) -> None:
        """Lets go of what is not the leader's."""
        log, begin = self.partition.log, answer.begin
        now_ms = int(self._clock() * 1000)
        if answer.restart:
            if (log.start_offset, log.end_offset) != (begin, begin):
                if log.end_offset:
                    self._counters.restarted_replicas += 1
                    _log.warning("%s is begun anew at %d", self.partition.name, begin)
                self.partition.restart(begin, now_ms)
        elif begin < log.end_offset:
            self._counters.truncations += 1
            before = log.end_offset
            self.partition.truncate(begin, now_ms)
            _log.warning(
                "%s: %d to %d is not the leader's, and goes", self.partition.name, log.end_offset, before
            )

    def _join(self, answer: calls.FollowResponse) -> None:
        self.checked = True
        if answer.directory != self._agreed:
            self._agreed = answer.directory
            self._on_agreed(answer.directory)
        self.known_end = max(answer.end, answer.begin)  # what it knew of another life of the leader is void
        self._move_start()
        self.joined = self._fabric.join(
            self._leader.host,
            answer.stream,
            answer.epoch,
            self,
            progress=Progress(answer.begin, answer.begin),
            # what its leader alone has is waited for, however long that takes
            settings=replace(self._fabric.stream_settings, give_up_after=NEVER),
            held=PartitionStreamLog(self.partition.log, self._memory, told=False),
        )
        self._goal = self.known_end
        self._set_current(self.partition.log.end_offset >= self._goal)

    # --- the leader's log begins later

    def leader_starts_at(self, offset: int) -> None:
        self._start = max(self._start, offset)
        try:
            self._move_start()
        except TreecastError as error:
            _log.warning("%s: %s", self.partition.name, error)

    def _move_start(self) -> None:
        log = self.partition.log
        if log.start_offset < self._start <= log.end_offset:
            self.partition.advance_start(self._start, int(self._clock() * 1000))

    # --- what the stream brings

    def deliver(self, deliveries: list[Delivery]) -> None:
        """A whole chunk with one append; waiting readers are told once, and answered before anything else:
        those who wait at the end before the append, the others after it."""
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
        """A chunk could not be taken: the stream is begun again at the replica's end, after a while."""
        self.joined = None
        self._counters.failed_chunks += 1
        self._failures += 1
        _log.error("%s: what its stream brought cannot be taken: %s", self.partition.name, error)
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
        """Whether it is behind, and being brought on."""
        return self.checked and self._now() - self._growth.at < _GROWING

    def reaches(self, offset: int) -> bool:
        """Whether it is behind, and will have what is before `offset` soon. The reader waits here then."""
        if not self.growing or offset - self.partition.log.end_offset > self._growth.speed * _SOON:
            return False
        self._waited_for = True
        return True

    def check(self, now: float) -> None:
        """Sees to a replica that gets nothing though there is more. `now`: the loop's time."""
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
        if waited >= self._settings.stall and self.current:
            self._counters.stalled_replicas += 1
            self._goal = self.known_end = max(self.known_end, end + 1)
            self._set_current(False)
        if waited >= self._settings.follow_again:
            self._progress = (end, now)
            self._leave_stream()
            self.want()


def gathered(deliveries: Sequence[Delivery]) -> tuple[bytes, list[BatchHeader]]:
    """The batches of a chunk, in one piece. CORRUPT_BATCH where one is not what its sequence says."""
    headers: list[BatchHeader] = []
    for delivery in deliveries:
        _read_batches(delivery.message, headers)
    if len(deliveries) == 1:
        return deliveries[0].message.payload, headers
    return b"".join([delivery.message.payload for delivery in deliveries]), headers


def _read_batches(message: Message, headers: list[BatchHeader]) -> None:
    """Adds the headers of a message's batches. CORRUPT_BATCH."""
    payload, offset, position = message.payload, message.sequence, 0
    view = memoryview(payload)
    while position < len(payload):
        header = read_header(payload, position)
        end = position + header.size
        if header.base_offset != offset or header.size <= _CRC_FROM or end > len(payload):
            raise TreecastError(
                Fault.CORRUPT_BATCH, f"a batch of {header.base_offset} came at {offset} of {message.sequence}"
            )
        if crc32c(view[position + _CRC_FROM : end]) != header.crc:
            raise TreecastError(Fault.CORRUPT_BATCH, f"the batch at {offset} fails its CRC-32C")
        headers.append(header)
        offset, position = header.next_offset, end
    if offset != message.end:
        raise TreecastError(
            Fault.CORRUPT_BATCH, f"the batches of {message.sequence} end at {offset}, not {message.end}"
        )
