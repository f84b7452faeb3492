"""Produce: appends at once, in the order of the request; answers at once unless an append has to wait."""

from __future__ import annotations

import struct
from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Collection
from functools import partial
from typing import Final

from treecast.middleware.broker import Appended, Leaders, takes_runs
from treecast.middleware.broker.access import CheckedLeaders
from treecast.middleware.model.budget import WorkBudget
from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.logs import Log
from treecast.middleware.model.records import Compression
from treecast.middleware.wire.record_batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
)

from .. import errors
from ..codec import (
    ProducedPartition,
    ProduceRequest,
    ProduceResult,
    RequestHeader,
    decode_produce_request,
    encode_produce_response,
)
from ..errors import code_for
from ..internal import internal_partition, not_writable
from ..schema import decode_request, encode_response
from ..session import Pending, Refused
from ..versions import PRODUCE

_log = Log("treecast.kafka")

_ACKS = (-1, 0, 1)
_ATTRIBUTES_LOW_BYTE: Final = 22  # in a batch: the attributes are bytes 21 and 22
_START: Final = struct.Struct(">qi")  # of a batch: its base offset, the number of bytes after these fields
_LAST_DELTA_AT: Final = 23  # in a batch: the offset of its last record, relative to its first
_LAST_DELTA: Final = struct.Struct(">i")
_PRODUCER_AT: Final = 43  # in a batch: the producer and the sequence number of the first record
_PRODUCER: Final = struct.Struct(">qhi")  # id (-1: not idempotent), epoch, first sequence
_SEQUENCES: Final = 0x7FFF_FFFF  # the largest sequence number, after which they wrap to 0
_FIRST_WITH_ZSTD: Final = 7  # KIP-110

_NONE: Final[frozenset[tuple[str, int]]] = frozenset()
_TWICE: Final = TreecastError(Fault.INVALID_REQUEST, "the request names the partition more than once")

RUN_BYTES: Final = 256 * 1024  # the most that is appended with one write
JOIN_BELOW: Final = 64 * 1024  # larger batches gain less from joining than the copy costs


def produce(
    leaders: Leaders, loop: AbstractEventLoop, header: RequestHeader, frame: memoryview, work: WorkBudget
) -> list[Chunk] | Pending:
    """Appends every partition's batches. With acks=0 there is no answer; an error closes the connection.

    A request for several partitions is served in several passes of the loop once the work budget is spent.
    """
    request = decode_produce_request(frame, header.body, header.api_version)
    if len(request.partitions) == 1:
        return serve(leaders, loop, header, request)
    return StepwiseProduce(leaders, loop, header, request, work).begin(frame)


def serve(
    leaders: Leaders, loop: AbstractEventLoop, header: RequestHeader, request: ProduceRequest
) -> list[Chunk] | Pending:
    """As `produce`, for a decoded request."""
    if request.acks not in _ACKS:
        return _answer(header, [_refused_acks(asked, request.acks) for asked in request.partitions])
    repeated = _repeated(request.partitions) if len(request.partitions) > 1 else _NONE
    results: list[ProduceResult] = []
    waiting: list[tuple[int, Future[Appended]]] = []
    for asked in request.partitions:
        _append_next(leaders, header, request, asked, repeated, results, waiting)
    return _outcome(loop, header, request, results, waiting)


def _append_next(
    leaders: Leaders,
    header: RequestHeader,
    request: ProduceRequest,
    asked: ProducedPartition,
    repeated: Collection[tuple[str, int]],
    results: list[ProduceResult],
    waiting: list[tuple[int, Future[Appended]]],
) -> None:
    """Appends to the next partition of a request, and adds what becomes of it to `results` and `waiting`."""
    if repeated and (asked.topic, asked.partition) in repeated:
        results.append(_failed(asked.topic, asked.partition, _TWICE, header.api_version))
        return
    outcome = _append(leaders, request, asked, header.api_version)
    if isinstance(outcome, Future):
        waiting.append((len(results), outcome))
        results.append(ProduceResult(asked.topic, asked.partition))
    else:
        results.append(outcome)


def _outcome(
    loop: AbstractEventLoop,
    header: RequestHeader,
    request: ProduceRequest,
    results: list[ProduceResult],
    waiting: list[tuple[int, Future[Appended]]],
) -> list[Chunk] | Pending:
    if request.acks == 0:
        return _unanswered(results, waiting)
    if waiting:
        return PendingProduce(loop, header, results, waiting, request.timeout_ms / 1000)
    return _answer(header, results)


def _repeated(partitions: list[ProducedPartition]) -> Collection[tuple[str, int]]:
    """Returns the partitions that a request names more than once. Kafka's broker takes the last batch of such
    a partition, drops the others and reports no error; here all of them are refused."""
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for asked in partitions:
        place = (asked.topic, asked.partition)
        (repeated if place in seen else seen).add(place)
    return repeated


def _answer(header: RequestHeader, results: list[ProduceResult]) -> list[Chunk]:
    return [encode_produce_response(header.correlation_id, header.api_version, results)]


def _refused_acks(asked: ProducedPartition, acks: int) -> ProduceResult:
    return ProduceResult(
        asked.topic,
        asked.partition,
        errors.INVALID_REQUIRED_ACKS,
        error_message=f"acks is {acks}; it must be 0, 1 or -1",
    )


def _append(
    leaders: Leaders, request: ProduceRequest, asked: ProducedPartition, version: int
) -> ProduceResult | Future[Appended]:
    try:
        records = asked.records
        if records is None or len(records) == 0:
            raise TreecastError(Fault.INVALID_RECORD, "no record batch")
        _check_form(records, version)
        if request.transactional_id is not None and isinstance(leaders, CheckedLeaders):
            leaders.check_transaction(request.transactional_id)
        leader = leaders.partition(asked.topic, asked.partition)
        appended = leader.append(records, request.acks, request.transactional_id)
    except Exception as error:
        # Do not bind `error` to a second name: the reference cycle through its traceback would keep it, and
        # the unpacked data, alive until a garbage collection.
        if internal_partition(asked.topic, asked.partition) is not None:
            return _failed(asked.topic, asked.partition, not_writable(asked.topic), version)
        return _failed(asked.topic, asked.partition, error, version)
    return appended if isinstance(appended, Future) else _appended(asked.topic, asked.partition, appended)


def _check_form(records: memoryview, version: int) -> None:
    """Raises TreecastError unless `records` are one batch of magic 2, as Produce 3 and later require.

    Source: Kafka's `ProduceRequest`, and `UnifiedLog` for the base offset.
    """
    if len(records) < HEADER_SIZE:
        raise TreecastError(Fault.INVALID_RECORD, "the data ends inside a batch header")
    if records[MAGIC_AT] != MAGIC:
        raise TreecastError(
            Fault.INVALID_RECORD, f"a batch has magic {records[MAGIC_AT]}, only magic {MAGIC} is allowed"
        )
    base_offset: int
    length: int
    base_offset, length = _START.unpack_from(records)
    if length + LOG_OVERHEAD < len(records):
        raise TreecastError(Fault.INVALID_RECORD, "only one record batch per partition is allowed")
    if length + LOG_OVERHEAD > len(records):
        raise TreecastError(
            Fault.INVALID_RECORD, f"a batch of {length + LOG_OVERHEAD} bytes is cut off at {len(records)}"
        )
    if base_offset != 0:
        raise TreecastError(Fault.INVALID_RECORD, f"a batch has base offset {base_offset}, it must be 0")
    if version < _FIRST_WITH_ZSTD and records[_ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK == Compression.ZSTD:
        raise TreecastError(Fault.UNSUPPORTED_COMPRESSION, f"zstd needs Produce {_FIRST_WITH_ZSTD} or later")


def _appended(topic: str, partition: int, appended: Appended) -> ProduceResult:
    return ProduceResult(
        topic,
        partition,
        errors.NONE,
        appended.base_offset,
        appended.log_append_time,
        appended.log_start_offset,
    )


def _failed(topic: str, partition: int, error: BaseException, version: int) -> ProduceResult:
    if isinstance(error, TreecastError):
        return ProduceResult(
            topic,
            partition,
            code_for(error, PRODUCE, version),
            error_message=error.detail,
            record_errors=error.records,
        )
    _log.error("append failed", trace=error, partition=f"{topic}-{partition}")
    return ProduceResult(topic, partition, errors.UNKNOWN_SERVER_ERROR, error_message=Fault.INTERNAL.value)


def _unanswered(results: list[ProduceResult], waiting: list[tuple[int, Future[Appended]]]) -> list[Chunk]:
    """Returns no answer, for acks=0.

    Raises Refused for an error that is already known: a closed connection is the only sign a client can get.
    """
    for _, future in waiting:
        future.add_done_callback(_forget)
    for result in results:
        if result.error_code != errors.NONE:
            raise Refused(f"produce with acks=0 refused: {result.error_message}")
    return []


def _forget(future: Future[Appended]) -> None:
    if not future.cancelled() and future.exception() is not None:
        _log.warning("batch without acknowledgement was refused", error=future.exception())


class StepwiseProduce(Pending):
    """A Produce request for several partitions. Later requests of the connection wait until its appends are
    done, so that the order of batches is kept."""

    def __init__(
        self,
        leaders: Leaders,
        loop: AbstractEventLoop,
        header: RequestHeader,
        request: ProduceRequest,
        work: WorkBudget,
    ) -> None:
        super().__init__()
        self._leaders = leaders
        self._loop = loop
        self._header = header
        self._request = request
        self._work = work
        self._partitions = request.partitions
        self._repeated = _repeated(request.partitions)
        self._results: list[ProduceResult] = []
        self._waiting: list[tuple[int, Future[Appended]]] = []
        self._last: Pending | None = None

    def begin(self, frame: memoryview) -> list[Chunk] | Pending:
        """Serves what the budget allows. The rest is served from a copy of the frame."""
        if self._request.acks not in _ACKS:
            return serve(self._leaders, self._loop, self._header, self._request)
        if self._step():
            return _outcome(self._loop, self._header, self._request, self._results, self._waiting)
        copy = decode_produce_request(
            memoryview(bytearray(frame)), self._header.body, self._header.api_version
        )
        self._partitions = copy.partitions
        self._work.later(self._go_on)
        return self

    def _step(self) -> bool:
        """Appends until the budget is spent. Returns whether all partitions are done."""
        partitions, results = self._partitions, self._results
        began = self._work.now()
        while len(results) < len(partitions):
            asked = partitions[len(results)]
            _append_next(
                self._leaders, self._header, self._request, asked, self._repeated, results, self._waiting
            )
            if len(results) < len(partitions) and self._work.spent_since(began):
                return False
        return True

    def _go_on(self) -> None:
        if not self._step():
            self._work.later(self._go_on)
            return
        try:
            outcome = _outcome(self._loop, self._header, self._request, self._results, self._waiting)
        except Refused as refused:
            _log.warning("request refused", error=refused)
            self.finish(None)
            return
        if not isinstance(outcome, Pending):
            self.finish(outcome)
        elif self.deliver is None:  # the connection has closed
            outcome.abandon()
        else:
            self._last = outcome
            outcome.deliver = self._done

    def _done(self, _: Pending, buffers: list[Chunk] | None) -> None:
        self.finish(buffers)

    def abandon(self) -> None:
        super().abandon()
        if self._last is not None:
            self._last.abandon()


class PendingProduce(Pending):
    """A Produce request of which some appends wait for an fsync or for another host."""

    pipelined = True

    def __init__(
        self,
        loop: AbstractEventLoop,
        header: RequestHeader,
        results: list[ProduceResult],
        waiting: list[tuple[int, Future[Appended]]],
        timeout: float,
    ) -> None:
        super().__init__()
        self._header = header
        self._results = results
        self._missing = dict(waiting)
        self._timer: TimerHandle = loop.call_later(max(timeout, 0.0), self._time_out)
        for _, future in waiting:
            future.add_done_callback(self._one_done)

    def _one_done(self, _: Future[Appended]) -> None:
        done = [index for index, future in self._missing.items() if future.done()]
        for index in done:
            self._results[index] = self._result(index, self._missing.pop(index))
        if done and not self._missing:
            self._timer.cancel()
            self.finish(_answer(self._header, self._results))

    def _result(self, index: int, future: Future[Appended]) -> ProduceResult:
        topic, partition = self._results[index].topic, self._results[index].partition
        if future.cancelled():
            error: BaseException | None = TreecastError(Fault.NOT_LEADER)
        else:
            error = future.exception()
        if error is not None:
            return _failed(topic, partition, error, self._header.api_version)
        return _appended(topic, partition, future.result())

    def abandon(self) -> None:
        super().abandon()
        self._timer.cancel()

    def _time_out(self) -> None:
        """Ends the unfinished appends with TIMED_OUT. They continue; sequence numbers expose a retry."""
        late = TreecastError(Fault.TIMED_OUT)
        for index, future in self._missing.items():
            future.add_done_callback(_forget)
            asked = self._results[index]
            self._results[index] = _failed(asked.topic, asked.partition, late, self._header.api_version)
        self._missing.clear()
        self.finish(_answer(self._header, self._results))


class ProduceRun:
    """Small batches for one partition that arrived in one chunk, in consecutive requests.

    They are joined and appended with one write. One write of 256 KiB costs the file system about half as much
    as sixteen smaller ones, and is kept in larger pages, from which a fetch is also sent at lower cost
    (docs/benchmarks.md). If the joined append is refused, each batch is appended alone and gets its own
    answer.

    Call `finish` before the chunk's memory is reused, and before any other request is served.
    """

    def __init__(self, loop: AbstractEventLoop, work: WorkBudget) -> None:
        self._loop = loop
        self._work = work
        self._joined: list[JoinedProduce] = []
        self._room = memoryview(b"")  # allocated on first use
        self._size = 0

    @property
    def empty(self) -> bool:
        return not self._joined

    def add(self, leaders: Leaders, header: RequestHeader, frame: memoryview) -> list[Chunk] | Pending:
        """Returns the answer to a request that cannot be joined, else a `Pending` that `finish` serves."""
        request = decode_produce_request(frame, header.body, header.api_version)
        records = _joinable(request, header.api_version)
        if records is None:
            self.finish(leaders)
            if len(request.partitions) > 1:
                return StepwiseProduce(leaders, self._loop, header, request, self._work).begin(frame)
            return serve(leaders, self._loop, header, request)
        one = JoinedProduce(header, request, records)
        end = self._size + len(records)
        if self._joined and (end > RUN_BYTES or not one.follows(self._joined[-1])):
            self.finish(leaders)
            end = len(records)
        if len(self._room) == 0:
            self._room = memoryview(bytearray(RUN_BYTES))
        self._room[self._size : end] = records
        self._size = end
        self._joined.append(one)
        return one

    def finish(self, leaders: Leaders) -> None:
        """Appends and answers the added requests. Does nothing if there are none."""
        joined, self._joined = self._joined, []
        size, self._size = self._size, 0
        if len(joined) > 1:
            self._append(leaders, joined, size)
        elif joined:
            joined[0].append_alone(leaders, self._loop)

    def _append(self, leaders: Leaders, joined: list[JoinedProduce], size: int) -> None:
        first = joined[0]
        try:
            leader = leaders.partition(first.asked.topic, first.asked.partition)
            if first.producer_id >= 0 and not takes_runs(leader):
                raise TreecastError(Fault.INVALID_RECORD)
            appended = leader.append(self._room[:size], first.request.acks, None)
        except Exception:  # refused or failed: appending each alone shows which one is at fault
            for one in joined:
                one.append_alone(leaders, self._loop)
            return
        before = 0
        for one in joined:
            if isinstance(appended, Future):
                one.wait(self._loop, _shifted(appended, before))
            else:
                one.appended(_later(appended, before))
            before += one.count


class JoinedProduce(Pending):
    """A request of a run: one partition's batch of `count` records."""

    pipelined = True

    def __init__(self, header: RequestHeader, request: ProduceRequest, records: memoryview) -> None:
        super().__init__()
        self.request = request
        self.asked = request.partitions[0]
        self.count: int = 1 + _LAST_DELTA.unpack_from(records, _LAST_DELTA_AT)[0]
        producer = _PRODUCER.unpack_from(records, _PRODUCER_AT)
        self.producer_id: int = producer[0]
        self.epoch: int = producer[1]
        self.sequence: int = producer[2]
        self._header = header
        self._waiting: Pending | None = None

    def follows(self, before: JoinedProduce) -> bool:
        """Whether this batch may be appended directly after `before`."""
        return (
            self.asked.topic == before.asked.topic
            and self.asked.partition == before.asked.partition
            and self.request.acks == before.request.acks
            and self.producer_id == before.producer_id
            and (self.producer_id < 0 or self._continues(before))
        )

    def _continues(self, before: JoinedProduce) -> bool:
        """Whether the idempotent producer of both batches sent nothing in between."""
        return self.epoch == before.epoch and self.sequence == (before.sequence + before.count) & _SEQUENCES

    def appended(self, appended: Appended) -> None:
        self.finish(_answer(self._header, [_appended(self.asked.topic, self.asked.partition, appended)]))

    def append_alone(self, leaders: Leaders, loop: AbstractEventLoop) -> None:
        answer = serve(leaders, loop, self._header, self.request)
        if isinstance(answer, Pending):
            self._hand_on(answer)
        else:
            self.finish(answer)

    def wait(self, loop: AbstractEventLoop, future: Future[Appended]) -> None:
        result = ProduceResult(self.asked.topic, self.asked.partition)
        timeout = self.request.timeout_ms / 1000
        self._hand_on(PendingProduce(loop, self._header, [result], [(0, future)], timeout))

    def _hand_on(self, waiting: Pending) -> None:
        if self.deliver is None:  # the connection has closed
            waiting.abandon()
            return
        self._waiting = waiting
        waiting.deliver = self._waited

    def _waited(self, waiting: Pending, buffers: list[Chunk] | None) -> None:
        self.finish(buffers)

    def abandon(self) -> None:
        super().abandon()
        if self._waiting is not None:
            self._waiting.abandon()


def _joinable(request: ProduceRequest, version: int) -> memoryview | None:
    """Returns the records of a request that may be joined with others, or None.

    Such a request has one small batch of valid form, is acknowledged, and is outside of transactions.
    """
    if len(request.partitions) != 1 or request.acks not in (-1, 1) or request.transactional_id is not None:
        return None
    records = request.partitions[0].records
    if records is None or not HEADER_SIZE <= len(records) <= JOIN_BELOW:
        return None
    try:
        _check_form(records, version)
    except TreecastError:
        return None
    return records


def _later(appended: Appended, records: int) -> Appended:
    """Returns the result for a batch that begins `records` records after the start of the append."""
    return Appended(appended.base_offset + records, appended.log_append_time, appended.log_start_offset)


def _shifted(appended: Future[Appended], records: int) -> Future[Appended]:
    answer: Future[Appended] = appended.get_loop().create_future()
    appended.add_done_callback(partial(_pass_on, answer, records))
    return answer


def _pass_on(answer: Future[Appended], records: int, appended: Future[Appended]) -> None:
    if appended.cancelled():
        answer.cancel()
        return
    error = appended.exception()
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(_later(appended.result(), records))


def refuse_old_produce(header: RequestHeader, frame: memoryview) -> list[Chunk]:
    """Answers Produce 0-2, which carry formats before magic 2, with UNSUPPORTED_VERSION per partition."""
    version = header.api_version
    request = decode_request(PRODUCE, version, frame[header.body :])
    if request.acks == 0:
        raise Refused(f"Produce {version} with acks=0")
    row = {"error_code": errors.UNSUPPORTED_VERSION, "base_offset": -1}
    topics = [
        {
            "name": topic.name,
            "partition_responses": [row | {"index": part.index} for part in topic.partition_data],
        }
        for topic in request.topic_data
    ]
    return [encode_response(PRODUCE, version, header.correlation_id, {"responses": topics})]
