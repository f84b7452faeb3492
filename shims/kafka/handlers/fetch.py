"""Fetch: answered at once where enough can be read, else when enough has come or the wait is over.

Fetch sessions (KIP-227) are not kept: every fetch is a full one and is answered with session id 0, which
the KIP allows; a client that names a session is told that there is none.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future, Task

from treecast.middleware.broker import Cluster, FetchWait, Isolation, PartitionLeader, PartitionRead
from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.errors import Fault, TreecastError

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
from ..pending import Pending, start
from ..versions import FETCH

_log = logging.getLogger("treecast.kafka")


def fetch(
    cluster: Cluster, loop: AbstractEventLoop, header: RequestHeader, frame: memoryview, max_bytes: int
) -> list[Chunk] | Pending:
    request = decode_fetch_request(frame, header.body, header.api_version)
    if request.session_epoch > 0:  # a full fetch has epoch 0 (a session is wished for) or -1 (none is)
        return encode_fetch_response(
            header.correlation_id, header.api_version, [], errors.FETCH_SESSION_ID_NOT_FOUND
        )
    if request.isolation not in (0, 1):
        wrong = TreecastError(Fault.INVALID_REQUEST, f"isolation level {request.isolation}")
        results = [_failed(asked, wrong, header.api_version) for asked in request.partitions]
        return encode_fetch_response(header.correlation_id, header.api_version, results)
    attempt = Attempt(cluster, header, request, max_bytes)
    reading = start(attempt.read(), loop)
    if not isinstance(reading, Task) and attempt.satisfied(0.0 if request.max_wait_ms <= 0 else 1.0):
        return attempt.answer()
    return PendingFetch(loop, attempt, reading if isinstance(reading, Task) else None)


class Attempt:
    """One fetch request, read as often as its wait makes it necessary."""

    def __init__(
        self, cluster: Cluster, header: RequestHeader, request: FetchRequest, max_bytes: int
    ) -> None:
        self._cluster = cluster
        self._header = header
        self._request = request
        self._max_bytes = min(request.max_bytes, max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self.isolation = Isolation(request.isolation)
        self.results: list[FetchResult] = []
        self.leaders: list[PartitionLeader] = []
        self.size = 0
        self.refused = False

    @property
    def max_wait(self) -> float:
        return self._request.max_wait_ms / 1000

    @property
    def missing(self) -> int:
        return self._min_bytes - self.size

    def satisfied(self, time_left: float) -> bool:
        """Whether to answer now: enough bytes, something to refuse, or nothing to wait for."""
        return self.missing <= 0 or self.refused or time_left <= 0 or not self.leaders

    def answer(self) -> list[Chunk]:
        return encode_fetch_response(self._header.correlation_id, self._header.api_version, self.results)

    async def read(self) -> None:
        """Reads every partition, in the request's order.

        The first that has anything gives at least one batch, whatever its size; the others keep to what
        is left of the bounds (KIP-74).
        """
        self.results = []
        self.leaders = []
        self.size = 0
        self.refused = False
        for asked in self._request.partitions:
            try:
                self.results.append(await self._read_one(asked))
            except Exception as error:
                self.refused = True
                self.results.append(_failed(asked, error, self._header.api_version))

    async def _read_one(self, asked: FetchPartition) -> FetchResult:
        leader = self._cluster.partition(asked.topic, asked.partition)
        leader.check_leader_epoch(asked.current_leader_epoch)
        room = min(asked.max_bytes, self._max_bytes - self.size)
        found = leader.read(asked.offset, max(room, 0), self.isolation, at_least_one=self.size == 0)
        if isinstance(found, Future):
            found = await found
        self.size += found.size
        self.leaders.append(leader)
        return _result(asked, found, self.isolation)


def _result(asked: FetchPartition, found: PartitionRead, isolation: Isolation) -> FetchResult:
    aborted = None
    if isolation is Isolation.READ_COMMITTED:
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
    )


def _failed(asked: FetchPartition, error: Exception, version: int) -> FetchResult:
    if isinstance(error, TreecastError):
        return FetchResult(asked.topic, asked.partition, code_for(error, FETCH, version))
    _log.error("reading %s-%d failed", asked.topic, asked.partition, exc_info=error)
    return FetchResult(asked.topic, asked.partition, errors.UNKNOWN_SERVER_ERROR)


class PendingFetch(Pending):
    """A fetch that waits for bytes, and reads again when they have come or its time is over."""

    def __init__(self, loop: AbstractEventLoop, attempt: Attempt, reading: Task[None] | None) -> None:
        super().__init__()
        self._loop = loop
        self._attempt = attempt
        self._deadline = loop.time() + attempt.max_wait
        self._wait: FetchWait | None = None
        self._reading = reading
        if reading is None:
            self._watch(attempt.max_wait)
        else:
            reading.add_done_callback(self._read)

    def _watch(self, time_left: float) -> None:
        attempt = self._attempt
        self._wait = FetchWait(
            self._loop, attempt.leaders, attempt.isolation, attempt.missing, time_left, self._again
        )

    def _again(self) -> None:
        self._wait = None
        if self.deliver is None:
            return
        reading = start(self._attempt.read(), self._loop)
        if isinstance(reading, Task):
            self._reading = reading
            reading.add_done_callback(self._read)
        else:
            self._judge()

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
            _log.exception("a fetch that had waited failed")
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
