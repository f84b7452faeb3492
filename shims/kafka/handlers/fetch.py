"""Fetch: answers at once if enough can be read, else when enough has arrived or the wait is over.

Fetch sessions (KIP-227) are not kept. Every fetch is a full fetch and is answered with session id 0, which
the KIP allows. An incremental fetch gets FETCH_SESSION_ID_NOT_FOUND. Each read looks up topics that are named
by ids (KIP-516), because another topic may have taken the name since the last one.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, Task, ensure_future
from typing import Final
from uuid import UUID

from treecast.middleware.broker import (
    Definitions,
    FetchWait,
    FilteredReads,
    Isolation,
    Leaders,
    LongPolls,
    PartitionLeader,
    PartitionRead,
    TopicSchemas,
)
from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.counters import FaceCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log

from .. import errors
from ..codec import (
    FetchPartition,
    FetchRequest,
    FetchResult,
    RequestHeader,
    decode_fetch_request,
    encode_fetch_response,
)
from ..errors import code_for
from ..internal import visible_partition, visible_topic_by_id
from ..session import Pending
from ..starting import start
from ..versions import FETCH

_log = Log("treecast.kafka")

_COMMITTED: Final = Isolation.READ_COMMITTED
_ISOLATIONS: Final = (Isolation.READ_UNCOMMITTED, _COMMITTED)


class TopicNames:
    """The names of topics by the bytes of their ids, kept until any topic changes."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._revision = -1
        self._names: dict[bytes, str] = {}

    def of(self, topic_id: bytes) -> str:
        """Raises UNKNOWN_TOPIC_ID if there is no such topic."""
        revision = self._definitions.revision
        if revision != self._revision:
            self._revision = revision
            self._names.clear()
        name = self._names.get(topic_id)
        if name is None:
            name = visible_topic_by_id(self._definitions, UUID(bytes=topic_id)).name
            self._names[topic_id] = name
        return name


def fetch(
    leaders: Leaders,
    names: TopicNames,
    schemas: TopicSchemas,
    polls: LongPolls,
    counters: FaceCounters,
    header: RequestHeader,
    frame: memoryview,
    max_bytes: int,
) -> list[Chunk] | Pending:
    request = decode_fetch_request(frame, header.body, header.api_version)
    if request.session_epoch > 0:  # incremental; a full fetch has epoch 0 (wants a session) or -1
        return encode_fetch_response(
            header.correlation_id, header.api_version, [], errors.FETCH_SESSION_ID_NOT_FOUND
        )
    try:
        attempt = Attempt(leaders, names, schemas, header, request, max_bytes, counters)
    except TreecastError as wrong:
        results = [_failed(asked, wrong, header.api_version) for asked in request.partitions]
        return encode_fetch_response(header.correlation_id, header.api_version, results)
    reading = attempt.read(polls.loop)
    if reading is None and attempt.satisfied(0.0 if request.max_wait_ms <= 0 else 1.0):
        return attempt.answer()
    return PendingFetch(polls, attempt, reading)


class Attempt:
    """One fetch request, read again after each wait. Raises INVALID_REQUEST if the request is invalid."""

    def __init__(
        self,
        leaders: Leaders,
        names: TopicNames,
        schemas: TopicSchemas,
        header: RequestHeader,
        request: FetchRequest,
        max_bytes: int,
        counters: FaceCounters,
    ) -> None:
        if request.isolation not in (0, 1):
            raise TreecastError(Fault.INVALID_REQUEST, f"isolation level {request.isolation}")
        self._leaders = leaders
        self._names = names
        self._header = header
        self._request = request
        self._max_bytes = min(request.max_bytes, max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self.isolation = _ISOLATIONS[request.isolation]
        self._filtered = None
        if request.filter is not None:
            self._filtered = FilteredReads(request.filter, counters, schemas)
        self.results: list[FetchResult] = []
        self.leaders: list[PartitionLeader] = []
        self._leader: PartitionLeader | None = None  # the one that was read last
        self.size = 0
        self.refused = False

    @property
    def max_wait(self) -> float:
        return self._request.max_wait_ms / 1000

    @property
    def missing(self) -> int:
        return self._min_bytes - self.size

    def satisfied(self, time_left: float) -> bool:
        """Whether to answer now: enough bytes, an error, no time left, or nothing to wait for."""
        return self.missing <= 0 or self.refused or time_left <= 0 or not self.leaders

    def answer(self) -> list[Chunk]:
        return encode_fetch_response(self._header.correlation_id, self._header.api_version, self.results)

    def read(self, loop: AbstractEventLoop) -> Task[None] | None:
        """Reads every partition, in the request's order. If one has to wait, returns a task that continues.

        The first partition with data gives at least one batch, whatever its size. The others keep to what is
        left of the limits (KIP-74).
        """
        self.results = []
        self.leaders = []
        self.size = 0
        self.refused = False
        found = self._read_on()
        if found is None:
            return None
        waiting = start(self._wait(found), loop)
        return waiting if isinstance(waiting, Task) else None

    def _read_on(self) -> Future[PartitionRead] | None:
        """Reads up to the first partition that has to wait, and returns the future of its read.

        That partition is the one after the last result.
        """
        partitions = self._request.partitions
        while len(self.results) < len(partitions):
            asked = partitions[len(self.results)]
            try:
                found = self._ask(asked)
                if isinstance(found, Future):
                    return found
                self._take(asked, found)
            except Exception as error:
                self._refuse(asked, error)
        return None

    async def _wait(self, found: Future[PartitionRead] | None) -> None:
        while found is not None:
            asked = self._request.partitions[len(self.results)]
            try:
                self._take(asked, await found)
            except Exception as error:
                self._refuse(asked, error)
            found = self._read_on()

    def _ask(self, asked: FetchPartition) -> PartitionRead | Future[PartitionRead]:
        if asked.topic_id:
            asked.topic = self._names.of(asked.topic_id)
        try:
            leader = self._leaders.partition(asked.topic, asked.partition)
        except TreecastError:
            leader = visible_partition(self._leaders, asked.topic, asked.partition)
        self._leader = leader
        leader.check_leader_epoch(asked.current_leader_epoch)
        room = min(asked.max_bytes, self._max_bytes - self.size)
        found = leader.read(asked.offset, max(room, 0), self.isolation, at_least_one=self.size == 0)
        if self._filtered is None or (isinstance(found, PartitionRead) and found.size == 0):
            return found
        return ensure_future(self._filter(self._filtered, asked, found))

    async def _filter(
        self, filtered: FilteredReads, asked: FetchPartition, found: PartitionRead | Future[PartitionRead]
    ) -> PartitionRead:
        read = await found if isinstance(found, Future) else found
        return await filtered.filtered(asked.topic, asked.partition, read)

    def _take(self, asked: FetchPartition, found: PartitionRead) -> None:
        self.results.append(_result(asked, found, self.isolation))
        self.size += found.size
        if self._leader is not None:
            self.leaders.append(self._leader)

    def _refuse(self, asked: FetchPartition, error: Exception) -> None:
        self.refused = True
        self.results.append(_failed(asked, error, self._header.api_version))


def _result(asked: FetchPartition, found: PartitionRead, isolation: Isolation) -> FetchResult:
    aborted = None
    if isolation is _COMMITTED:
        aborted = [(transaction.producer_id, transaction.first_offset) for transaction in found.aborted]
    return FetchResult(
        asked.topic,
        asked.partition,
        errors.NONE,
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        found.chunks,
        aborted,
        topic_id=asked.topic_id,
    )


def _failed(asked: FetchPartition, error: Exception, version: int) -> FetchResult:
    if isinstance(error, TreecastError):
        code = code_for(error, FETCH, version)
        return FetchResult(asked.topic, asked.partition, code, topic_id=asked.topic_id)
    _log.error("read failed", trace=error, partition=f"{asked.topic}-{asked.partition}")
    return FetchResult(asked.topic, asked.partition, errors.UNKNOWN_SERVER_ERROR, topic_id=asked.topic_id)


class PendingFetch(Pending):
    """A fetch that waits for bytes, and reads again when they have arrived or its time is over."""

    def __init__(self, polls: LongPolls, attempt: Attempt, reading: Task[None] | None) -> None:
        super().__init__()
        self._polls = polls
        self._loop = polls.loop
        self._attempt = attempt
        self._deadline = self._loop.time() + attempt.max_wait
        self._wait: FetchWait | None = None
        self._reading = reading
        if reading is None:
            self._watch(attempt.max_wait)
        else:
            reading.add_done_callback(self._read)

    def _watch(self, time_left: float) -> None:
        attempt = self._attempt
        self._wait = FetchWait(
            self._polls, attempt.leaders, attempt.isolation, attempt.missing, time_left, self._again
        )

    def _again(self) -> None:
        self._wait = None
        if self.deliver is None:
            return
        self._reading = self._attempt.read(self._loop)
        if self._reading is None:
            self._judge()
        else:
            self._reading.add_done_callback(self._read)

    def _read(self, reading: Task[None]) -> None:
        self._reading = None
        if not reading.cancelled() and self.deliver is not None:
            self._judge()

    def _judge(self) -> None:
        try:
            time_left = self._deadline - self._loop.time()
            if self._attempt.satisfied(time_left):
                self.finish(self._attempt.answer())
            else:
                self._watch(time_left)
        except Exception:
            _log.exception("waiting fetch failed")
            self.finish(None)

    def hurry(self) -> None:
        self._deadline = 0.0
        if self._wait is not None:
            self._wait.cancel()
            self._again()

    def abandon(self) -> None:
        super().abandon()
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
        if self._reading is not None:
            self._reading.cancel()
