"""Calls to a partition's leader on another host. The channel preserves their order."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from treecast.middleware.broker.values import (
    ActiveProducer,
    Appended,
    Isolation,
    OffsetAtTime,
    PartitionRead,
)
from treecast.middleware.fabric.channel import Answer, ChannelError, Channels, Method
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicId
from treecast.middleware.wire.segment_bodies import Mode, Report

from . import calls
from .ports import PartitionSettings

A = TypeVar("A")
Q = TypeVar("Q")
T = TypeVar("T")

_WATCH_TIMEOUT = 60.0  # the leader answers sooner

# Errors of a leader that are not passed to clients: they are transient, so clients should retry.
_NOT_YET = {Fault.UNKNOWN_TOPIC_ID, Fault.UNKNOWN_TOPIC, Fault.NOT_LEADER, Fault.NOT_SUPPORTED}


class LeaderProxy:
    """The leader of one partition. Calls raise LEADER_UNAVAILABLE if it cannot be reached."""

    def __init__(
        self, topic_id: TopicId, index: int, host: int, channels: Channels, settings: PartitionSettings
    ) -> None:
        self.host = host
        self.ref = calls.PartitionRef(topic_id, index)
        self.epoch: int | None = None  # the leader's, once it has answered
        self.waits = False  # its host came back without its disk; the partition has no leader
        self.heard = 0  # lower bound of the leader's log end, from its answers
        self._channels = channels
        self._settings = settings
        self._pending: dict[Future[Answer], None] = {}

    @property
    def up(self) -> bool:
        return not self.waits and self._channels.is_up(self.host)

    def produce(
        self, batches: bytes, acks: int, transactional_id: str | None, records: int = 0
    ) -> Future[Appended]:
        """Appends at the leader. `records`: their number, to derive the log's end from the answer."""
        request = calls.ProduceRequest(self.ref, acks, transactional_id)
        timeout = self._settings.produce_timeout
        read = partial(self._appended, records)
        return self._call(calls.PRODUCE, request, read, timeout, batches)

    def _appended(self, records: int, answer: Answer) -> Appended:
        found = calls.PRODUCE.answered(answer)
        self.epoch = found.leader_epoch
        self.heard = max(self.heard, found.base_offset + records)
        return Appended(found.base_offset, found.log_append_time, found.log_start)

    def fetch(
        self, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
    ) -> Future[PartitionRead]:
        request = calls.FetchRequest(self.ref, offset, max_bytes, isolation, at_least_one)
        return self._call(calls.FETCH, request, self._read, self._settings.call_timeout)

    def _read(self, answer: Answer) -> PartitionRead:
        found = calls.FETCH.answered(answer)
        self.epoch = found.leader_epoch
        self.heard = max(self.heard, found.high_watermark)
        body = answer.body
        return PartitionRead(
            [body] if len(body) else [],
            len(body),
            found.high_watermark,
            found.last_stable,
            found.log_start,
            found.aborted,
        )

    def watch(self, beyond: int, isolation: Isolation) -> Future[Answer]:
        """Returns a future, done when more than `beyond` is readable or after a time-out; cancellable."""
        head = calls.WATCH.head(calls.WatchRequest(self.ref, beyond, isolation))
        return self._channels.call(self.host, calls.WATCH.number, head, timeout=_WATCH_TIMEOUT)

    def offset_for_time(self, timestamp: int, isolation: Isolation) -> Future[OffsetAtTime]:
        request = calls.OffsetRequest(self.ref, timestamp, isolation)
        return self._call(calls.OFFSET, request, calls.OFFSET.answered, self._settings.offsets_wait)

    def end_of_epoch(self, leader_epoch: int) -> Future[tuple[int, int]]:
        request = calls.EpochEndRequest(self.ref, leader_epoch)
        return self._call(calls.EPOCH_END, request, calls.EPOCH_END.answered, self._settings.offsets_wait)

    def active_producers(self) -> Future[tuple[ActiveProducer, ...]]:
        return self._call(calls.PRODUCERS, self.ref, calls.PRODUCERS.answered, self._settings.offsets_wait)

    def delete_before(self, offset: int) -> Future[int]:
        request = calls.DeleteRequest(self.ref, offset)
        return self._call(calls.DELETE, request, calls.DELETE.answered, self._settings.call_timeout)

    def append_marker(
        self, producer: ProducerIdentity, *, committed: bool, coordinator_epoch: int
    ) -> Future[None]:
        request = calls.MarkerRequest(self.ref, producer, committed, coordinator_epoch)
        return self._call(calls.MARKER, request, _nothing, self._settings.call_timeout)

    def follow(
        self,
        end: int,
        epochs: Iterable[tuple[int, int]],
        *,
        tail: bool,
        receiving: tuple[int, int] | None,
        progress: Progress | None = None,
        agreed: str = "",
    ) -> Future[calls.FollowResponse]:
        """Follows the partition. `receiving`: the received (stream, epoch); `progress`: the counts in it.

        `agreed`: names the leader's directory with which the replica agreed last.
        """
        report = b""
        if progress is not None:
            report = Report(Mode.LIVE, progress.first, progress.next, totals=progress.totals).encode()
        request = calls.FollowRequest(
            self.ref,
            end,
            tuple(calls.EpochStart(*one) for one in epochs),
            tail,
            None if receiving is None else calls.ReceivingStream(*receiving, report),
            agreed,
        )
        return self._call(calls.FOLLOW, request, self._followed, self._settings.call_timeout)

    def _followed(self, answer: Answer) -> calls.FollowResponse:
        found = calls.FOLLOW.answered(answer)
        if not 0 <= found.begin <= found.end or not 0 <= found.log_start <= found.end:
            raise TreecastError(
                Fault.INTERNAL, f"host {self.host} sent an answer that cannot be read: {found}"
            )
        self.epoch = found.leader_epoch
        self.heard = found.end  # replaces the value from an earlier life of the leader
        return found

    def unfollow(self) -> Future[None]:
        return self._call(calls.UNFOLLOW, self.ref, _nothing, self._settings.call_timeout)

    def _call(
        self,
        method: Method[Q, A],
        request: Q,
        read: Callable[[Answer], T],
        timeout: float,
        body: bytes = b"",
    ) -> Future[T]:
        if not self.up:
            timeout = min(timeout, 2 * self._settings.down_grace)
        asked = self._channels.call(self.host, method.number, method.head(request), body, timeout=timeout)
        answer: Future[T] = asyncio.get_running_loop().create_future()
        self._pending[asked] = None
        asked.add_done_callback(partial(self._settle, answer, read))
        return answer

    def give_up(self) -> None:
        """Fails all pending calls with LEADER_UNAVAILABLE because the leader has been away for too long."""
        for asked in list(self._pending):
            asked.cancel()

    def _settle(self, answer: Future[T], read: Callable[[Answer], T], asked: Future[Answer]) -> None:
        del self._pending[asked]
        if answer.done():  # the caller has gone
            # Retrieved, so that asyncio does not log an error for which nobody waits.
            asked.cancelled() or asked.exception()
            return
        error: BaseException | None = None
        try:
            answer.set_result(read(asked.result()))
        except asyncio.CancelledError:
            error = TreecastError(Fault.LEADER_UNAVAILABLE, f"host {self.host} cannot be reached")
        except Exception as wrong:
            error = as_client_hears(wrong)
        if error is not None:
            answer.set_exception(error)
            answer.exception()  # retrieved, so that asyncio logs nothing if the caller has gone


def as_client_hears(error: BaseException) -> BaseException:
    """Returns the error for clients: LEADER_UNAVAILABLE, which they retry, if the leader is not there yet."""
    if not isinstance(error, TreecastError):
        return error
    never_sent = isinstance(error, ChannelError) and not error.sent
    if error.fault in _NOT_YET or never_sent:
        return TreecastError(Fault.LEADER_UNAVAILABLE, error.detail)
    return error


def _nothing(answer: Answer) -> None:
    return None
