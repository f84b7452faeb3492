"""At a partition's leader: what other hosts ask for is done as for clients of its own."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable
from typing import Final

from google.protobuf.message import Message

from treecast.middleware.api.v1 import peer_partitions_pb2 as pb
from treecast.middleware.broker.partition import LocalPartition
from treecast.middleware.broker.values import Appended, Isolation, PartitionRead
from treecast.middleware.fabric.channel import Methods
from treecast.middleware.model.buffers import Buffer, in_memory
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity

from .leading import Led
from .ports import PartitionMethod

MOST_FETCHED: Final = 8 << 20  # bytes of one answer, unless one batch has more
WATCH_SECONDS: Final = 20.0
_NOTHING: Final = b""

Reply = tuple[Message, Buffer]


class Serving:
    """Answers the calls about partitions, from 42 on."""

    def __init__(self, led: Led, methods: Methods) -> None:
        self._led = led
        methods.register(PartitionMethod.PRODUCE, pb.PeerProduceRequest, self.produce)
        methods.register(PartitionMethod.FETCH, pb.PeerFetchRequest, self.fetch)
        methods.register(PartitionMethod.WATCH, pb.PeerWatchRequest, self.watch, cancellable=True)
        methods.register(PartitionMethod.OFFSET, pb.PeerOffsetRequest, self.offset)
        methods.register(PartitionMethod.EPOCH_END, pb.PeerEpochEndRequest, self.epoch_end)
        methods.register(PartitionMethod.DELETE, pb.PeerDeleteRequest, self.delete)
        methods.register(PartitionMethod.MARKER, pb.PeerMarkerRequest, self.marker)

    def produce(
        self, host: int, request: pb.PeerProduceRequest, body: memoryview
    ) -> Reply | Awaitable[Reply]:
        partition = self._led.find(request.partition)
        if request.acks not in (-1, 0, 1):
            raise TreecastError(Fault.INVALID_REQUEST, f"acks is {request.acks}: 0, 1 and -1 are known")
        name = request.transactional_id if request.HasField("transactional_id") else None
        appended = partition.append(body, request.acks, name)
        if isinstance(appended, Future):
            return _appended_later(partition, appended)
        return _appended(partition, appended), _NOTHING

    def fetch(self, host: int, request: pb.PeerFetchRequest, body: memoryview) -> Reply:
        partition = self._led.find(request.partition)
        found = partition.read(
            request.offset,
            min(request.max_bytes, MOST_FETCHED),
            _isolation(request.read_committed),
            at_least_one=request.at_least_one,
        )
        answer = pb.PeerFetchResponse(
            high_watermark=found.high_watermark,
            last_stable=found.last_stable_offset,
            log_start=found.log_start_offset,
            leader_epoch=partition.leader_epoch,
            aborted=[
                pb.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in found.aborted
            ],
        )
        return answer, _joined(found)

    async def watch(self, host: int, request: pb.PeerWatchRequest, body: memoryview) -> Reply:
        partition = self._led.find(request.partition)
        isolation = _isolation(request.read_committed)
        if _readable(partition, isolation) <= request.beyond:
            await _growth(partition, isolation)
        return pb.PeerWatchResponse(readable=_readable(partition, isolation)), _NOTHING

    def offset(self, host: int, request: pb.PeerOffsetRequest, body: memoryview) -> Reply:
        partition = self._led.find(request.partition)
        found = partition.offset_for_time(request.timestamp, _isolation(request.read_committed))
        answer = pb.PeerOffsetResponse(
            offset=found.offset, timestamp=found.timestamp, leader_epoch=found.leader_epoch
        )
        return answer, _NOTHING

    def epoch_end(self, host: int, request: pb.PeerEpochEndRequest, body: memoryview) -> Reply:
        epoch, end = self._led.find(request.partition).end_of_epoch(request.leader_epoch)
        return pb.PeerEpochEndResponse(leader_epoch=epoch, end_offset=end), _NOTHING

    def delete(self, host: int, request: pb.PeerDeleteRequest, body: memoryview) -> Reply:
        start = self._led.find(request.partition).delete_before(request.before)
        return pb.PeerDeleteResponse(log_start=start), _NOTHING

    def marker(self, host: int, request: pb.PeerMarkerRequest, body: memoryview) -> Reply | Awaitable[Reply]:
        if not (0 <= request.producer_epoch < 1 << 15 and request.producer_id >= 0):
            raise TreecastError(
                Fault.INVALID_REQUEST, f"there is no producer {request.producer_id}:{request.producer_epoch}"
            )
        flushed = self._led.find(request.partition).append_marker(
            ProducerIdentity(request.producer_id, request.producer_epoch),
            committed=request.committed,
            coordinator_epoch=request.coordinator_epoch,
        )
        return (pb.PeerMarkerResponse(), _NOTHING) if flushed is None else _flushed(flushed)


async def _flushed(flushed: Future[None]) -> Reply:
    await flushed
    return pb.PeerMarkerResponse(), _NOTHING


def _isolation(read_committed: bool) -> Isolation:
    return Isolation.READ_COMMITTED if read_committed else Isolation.READ_UNCOMMITTED


def _readable(partition: LocalPartition, isolation: Isolation) -> int:
    return partition.log.stable_offset if isolation else partition.log.end_offset


def _appended(partition: LocalPartition, appended: Appended) -> pb.PeerProduceResponse:
    return pb.PeerProduceResponse(
        base_offset=appended.base_offset,
        log_append_time=appended.log_append_time,
        log_start=appended.log_start_offset,
        leader_epoch=partition.leader_epoch,
    )


async def _appended_later(partition: LocalPartition, appended: Future[Appended]) -> Reply:
    return _appended(partition, await appended), _NOTHING


def _joined(found: PartitionRead) -> Buffer:
    if len(found.chunks) == 1:
        return in_memory(found.chunks[0])
    return b"".join(map(in_memory, found.chunks))


class _Growth:
    """A `ReadWaiter` that waits for anything to happen."""

    def __init__(self, happened: Future[None]) -> None:
        self._happened = happened

    def grown(self, size: int) -> None:
        if not self._happened.done():
            self._happened.set_result(None)

    def foreseen(self, size: int) -> None:
        """Another host is told of what is in the log only."""

    def gone(self) -> None:
        self.grown(0)


async def _growth(partition: LocalPartition, isolation: Isolation) -> None:
    """Until more can be read, or `WATCH_SECONDS` are over, or the partition is gone."""
    waiter = _Growth(asyncio.get_running_loop().create_future())
    partition.watch(waiter, isolation)
    try:
        async with asyncio.timeout(WATCH_SECONDS):
            await waiter._happened
    except TimeoutError:
        pass
    finally:
        partition.unwatch(waiter)
