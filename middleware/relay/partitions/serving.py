"""At a partition's leader: serves the calls of other hosts like those of its own clients."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable
from typing import Final, TypeVar

from treecast.middleware.broker.values import ActiveProducer, Appended, Isolation, OffsetAtTime, PartitionRead
from treecast.middleware.fabric.channel import Methods, Nothing, Reply
from treecast.middleware.model.buffers import Buffer, in_memory
from treecast.middleware.model.errors import Fault, TreecastError

from . import calls
from .leading import Led
from .ports import LedPartition

MOST_FETCHED: Final = 8 << 20  # bytes of one answer, unless a single batch is larger
WATCH_SECONDS: Final = 20.0
_NOTHING: Final = b""

T = TypeVar("T")


class Serving:
    """Serves the calls about led partitions, methods 42-48 and 54."""

    def __init__(self, led: Led, methods: Methods) -> None:
        self._led = led
        methods.register(calls.PRODUCE, self.produce)
        methods.register(calls.FETCH, self.fetch)
        methods.register(calls.WATCH, self.watch, cancellable=True)
        methods.register(calls.OFFSET, self.offset)
        methods.register(calls.EPOCH_END, self.epoch_end)
        methods.register(calls.DELETE, self.delete)
        methods.register(calls.MARKER, self.marker)
        methods.register(calls.PRODUCERS, self.producers)

    def produce(
        self, host: int, request: calls.ProduceRequest, body: memoryview
    ) -> Reply[calls.ProduceResponse] | Awaitable[Reply[calls.ProduceResponse]]:
        partition = self._led.find(request.partition)
        if request.acks not in (-1, 0, 1):
            raise TreecastError(Fault.INVALID_REQUEST, f"acks is {request.acks}; it must be 0, 1 or -1")
        appended = partition.append(body, request.acks, request.transactional_id)
        if isinstance(appended, Future):
            return _appended_later(partition, appended)
        return _appended(partition, appended), _NOTHING

    def fetch(
        self, host: int, request: calls.FetchRequest, body: memoryview
    ) -> Reply[calls.FetchResponse] | Awaitable[Reply[calls.FetchResponse]]:
        partition = self._led.find(request.partition)
        found = partition.read(
            request.offset,
            min(request.max_bytes, MOST_FETCHED),
            request.isolation,
            at_least_one=request.at_least_one,
        )
        if isinstance(found, PartitionRead):
            return _read(partition, found)
        return _read_later(partition, found)

    async def watch(self, host: int, request: calls.WatchRequest, body: memoryview) -> Reply[int]:
        partition = self._led.find(request.partition)
        isolation = request.isolation
        if _readable(partition, isolation) <= request.beyond:
            await _growth(partition, isolation)
        return _readable(partition, isolation), _NOTHING

    def offset(
        self, host: int, request: calls.OffsetRequest, body: memoryview
    ) -> Reply[OffsetAtTime] | Awaitable[Reply[OffsetAtTime]]:
        partition = self._led.find(request.partition)
        return _answered(partition.offset_for_time(request.timestamp, request.isolation))

    def epoch_end(
        self, host: int, request: calls.EpochEndRequest, body: memoryview
    ) -> Reply[tuple[int, int]] | Awaitable[Reply[tuple[int, int]]]:
        return _answered(self._led.find(request.partition).end_of_epoch(request.leader_epoch))

    def producers(
        self, host: int, request: calls.PartitionRef, body: memoryview
    ) -> Reply[tuple[ActiveProducer, ...]] | Awaitable[Reply[tuple[ActiveProducer, ...]]]:
        return _answered(self._led.find(request).active_producers())

    def delete(
        self, host: int, request: calls.DeleteRequest, body: memoryview
    ) -> Reply[int] | Awaitable[Reply[int]]:
        return _answered(self._led.find(request.partition).delete_before(request.before))

    def marker(
        self, host: int, request: calls.MarkerRequest, body: memoryview
    ) -> Reply[Nothing] | Awaitable[Reply[Nothing]]:
        producer = request.producer
        if not (0 <= producer.epoch < 1 << 15 and producer.producer_id >= 0):
            raise TreecastError(
                Fault.INVALID_REQUEST, f"there is no producer {producer.producer_id}:{producer.epoch}"
            )
        flushed = self._led.find(request.partition).append_marker(
            producer,
            committed=request.committed,
            coordinator_epoch=request.coordinator_epoch,
        )
        return (Nothing(), _NOTHING) if flushed is None else _flushed(flushed)


def _answered(found: T | Awaitable[T]) -> Reply[T] | Awaitable[Reply[T]]:
    """Returns the reply with what was found, at once if it is there."""
    if isinstance(found, Awaitable):
        return _answered_later(found)
    return found, _NOTHING


async def _answered_later(found: Awaitable[T]) -> Reply[T]:
    return await found, _NOTHING


def _read(partition: LedPartition, found: PartitionRead) -> Reply[calls.FetchResponse]:
    answer = calls.FetchResponse(
        found.high_watermark,
        found.last_stable_offset,
        found.log_start_offset,
        partition.leader_epoch,
        tuple(found.aborted),
    )
    return answer, _joined(found)


async def _read_later(partition: LedPartition, found: Awaitable[PartitionRead]) -> Reply[calls.FetchResponse]:
    return _read(partition, await found)


async def _flushed(flushed: Future[None]) -> Reply[Nothing]:
    await flushed
    return Nothing(), _NOTHING


def _readable(partition: LedPartition, isolation: Isolation) -> int:
    return partition.log.stable_offset if isolation else partition.log.end_offset


def _appended(partition: LedPartition, appended: Appended) -> calls.ProduceResponse:
    return calls.ProduceResponse(
        appended.base_offset,
        appended.log_append_time,
        appended.log_start_offset,
        partition.leader_epoch,
    )


async def _appended_later(
    partition: LedPartition, appended: Future[Appended]
) -> Reply[calls.ProduceResponse]:
    return _appended(partition, await appended), _NOTHING


def _joined(found: PartitionRead) -> Buffer:
    if len(found.chunks) == 1:
        return in_memory(found.chunks[0])
    return b"".join(map(in_memory, found.chunks))


class _Growth:
    """A `ReadWaiter` that completes a future at the first growth, or when the partition is gone."""

    def __init__(self, happened: Future[None]) -> None:
        self._happened = happened

    def grown(self, size: int) -> None:
        if not self._happened.done():
            self._happened.set_result(None)

    def foreseen(self, size: int) -> None:
        """Ignored: other hosts are notified only of records in the log."""

    def gone(self) -> None:
        self.grown(0)


async def _growth(partition: LedPartition, isolation: Isolation) -> None:
    """Waits until more can be read or the partition is gone, at most `WATCH_SECONDS`."""
    waiter = _Growth(asyncio.get_running_loop().create_future())
    partition.watch(waiter, isolation)
    try:
        async with asyncio.timeout(WATCH_SECONDS):
            await waiter._happened
    except TimeoutError:
        pass
    finally:
        partition.unwatch(waiter)
