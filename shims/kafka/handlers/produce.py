"""Produce: appended at once, in the order of the request; answered at once where nothing has to wait."""

from __future__ import annotations

import logging
import struct
from asyncio import AbstractEventLoop, Future, TimerHandle
from typing import Final

from treecast.middleware.broker import Appended, Cluster
from treecast.middleware.model.buffers import Chunk
from treecast.middleware.model.errors import Fault, TreecastError
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
from ..pending import Pending, Refused
from ..schema import decode_request, encode_response
from ..versions import PRODUCE

_log = logging.getLogger("treecast.kafka")

_ACKS = (-1, 0, 1)
_ATTRIBUTES_LOW_BYTE: Final = 22  # of a batch: the attributes are its bytes 21 and 22
_LENGTH_AT: Final = 8  # of a batch: its size after this field
_LENGTH: Final = struct.Struct(">i")
_FIRST_WITH_ZSTD: Final = 7  # KIP-110


def produce(
    cluster: Cluster, loop: AbstractEventLoop, header: RequestHeader, frame: memoryview
) -> list[Chunk] | Pending:
    """Appends every partition's batches. With acks=0 there is no answer, and an error closes."""
    request = decode_produce_request(frame, header.body, header.api_version)
    version = header.api_version
    if request.acks not in _ACKS:
        return _answer(header, [_refused_acks(asked, request.acks) for asked in request.partitions])
    results: list[ProduceResult] = []
    waiting: list[tuple[int, Future[Appended]]] = []
    for index, asked in enumerate(request.partitions):
        outcome = _append(cluster, request, asked, version)
        if isinstance(outcome, Future):
            waiting.append((index, outcome))
            results.append(ProduceResult(asked.topic, asked.partition))
        else:
            results.append(outcome)
    if request.acks == 0:
        return _unanswered(results, waiting)
    if waiting:
        return PendingProduce(loop, header, results, waiting, request.timeout_ms / 1000)
    return _answer(header, results)


def _answer(header: RequestHeader, results: list[ProduceResult]) -> list[Chunk]:
    return [encode_produce_response(header.correlation_id, header.api_version, results)]


def _refused_acks(asked: ProducedPartition, acks: int) -> ProduceResult:
    return ProduceResult(
        asked.topic,
        asked.partition,
        errors.INVALID_REQUIRED_ACKS,
        error_message=f"acks is {acks}: 0, 1 and -1 are known",
    )


def _append(
    cluster: Cluster, request: ProduceRequest, asked: ProducedPartition, version: int
) -> ProduceResult | Future[Appended]:
    try:
        records = asked.records
        if records is None or len(records) == 0:
            raise TreecastError(Fault.INVALID_RECORD, "no record batch")
        _check_form(records, version)
        leader = cluster.partition(asked.topic, asked.partition)
        appended = leader.append(records, request.acks, request.transactional_id)
    except Exception as error:
        return _failed(asked.topic, asked.partition, error, version)
    return appended if isinstance(appended, Future) else _appended(asked.topic, asked.partition, appended)


def _check_form(records: memoryview, version: int) -> None:
    """What Produce 3 and later allow of a partition's records: one batch, of magic 2 (`ProduceRequest`)."""
    if len(records) < HEADER_SIZE:
        return  # cut off, as the broker will say
    if records[MAGIC_AT] != MAGIC:
        raise TreecastError(
            Fault.INVALID_RECORD, f"a batch has magic {records[MAGIC_AT]}, only magic {MAGIC} is allowed"
        )
    length: int = _LENGTH.unpack_from(records, _LENGTH_AT)[0]
    if length + LOG_OVERHEAD < len(records):
        raise TreecastError(Fault.INVALID_RECORD, "only one record batch per partition is allowed")
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
        return ProduceResult(topic, partition, code_for(error, PRODUCE, version), error_message=error.detail)
    _log.error("appending to %s-%d failed", topic, partition, exc_info=error)
    return ProduceResult(topic, partition, errors.UNKNOWN_SERVER_ERROR, error_message=Fault.INTERNAL.value)


def _unanswered(results: list[ProduceResult], waiting: list[tuple[int, Future[Appended]]]) -> list[Chunk]:
    """acks=0: an error that is known already closes the connection, as that is all a client can be told."""
    for _, future in waiting:
        future.add_done_callback(_forget)
    for result in results:
        if result.error_code != errors.NONE:
            raise Refused(f"produce with acks=0 refused: {result.error_message}")
    return []


def _forget(future: Future[Appended]) -> None:
    if not future.cancelled() and future.exception() is not None:
        _log.warning("a batch that nobody waits for was refused: %s", future.exception())


class PendingProduce(Pending):
    """A Produce of which some appends wait: for an fsync, or for another host."""

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
        """The appends go on; their producer asks again, and its sequence numbers tell the repeat."""
        late = TreecastError(Fault.TIMED_OUT)
        for index, future in self._missing.items():
            future.add_done_callback(_forget)
            asked = self._results[index]
            self._results[index] = _failed(asked.topic, asked.partition, late, self._header.api_version)
        self._missing.clear()
        self.finish(_answer(self._header, self._results))


def refuse_old_produce(header: RequestHeader, frame: memoryview) -> list[Chunk]:
    """Produce 0-2 carry formats before magic 2: each partition gets UNSUPPORTED_VERSION."""
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
