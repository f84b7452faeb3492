"""Streams: queues that are a log, read without removing anything, each consumer from a place of its own.

The log belongs to the face's edge (`StreamLog`); it is the single partition of a topic. A queue of type
stream appends what it gets to the log, and hands each of its consumers what the log returns from the
consumer's offset on. The prefetch of a consumer is its credit: acknowledgements give it back.

The semantics are RabbitMQ 4.3's: `x-stream-offset` is `first`, `last` (the last chunk: here, record batch),
`next`, an offset, a timestamp, or an interval such as `1h` before now. Without it, a consumer starts at the
next message. Consumers have to acknowledge and to have a prefetch.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER

from .any_queue import AnyQueue
from .arguments import QueueArguments
from .consumers import Consumer
from .message import Part, Run
from .refusals import Reason, Refusal, text
from .stream_start import NEXT, StreamStart

_NONE: Final[list[int]] = []


class Cursor:
    """The place of one consumer in the log.

    `parts`: messages that were read and not yet delivered. The edge sets `offset`, of the next record to
    read, -1 while it looks for `start`; and `reading` while it reads.
    """

    def __init__(self, consumer: Consumer, start: StreamStart) -> None:
        self.consumer = consumer
        self.start = start
        self.offset = -1
        self.parts: deque[Part] = deque()
        self.reading = False
        self.closed = False

    @property
    def wants(self) -> bool:
        """Whether the edge has to read on."""
        return not self.closed and not self.reading and not self.parts and self.consumer.room > 0


class StreamLog(Protocol):
    """The log of one stream."""

    def append(self, run: Run) -> list[int]:
        """Appends a run with the turn. Returns the indexes of messages that it refuses."""

    def refusals(self, run: Run) -> list[int]:
        """Returns the indexes of messages that `append` will refuse at the home of the stream."""

    def full(self) -> bool:
        """Whether `append` refuses everything at present."""

    def read(self, queue: StreamQueue, cursor: Cursor) -> None:
        """Reads on for a cursor that `wants`, and then calls `queue.arrived` or `queue.ended`."""

    def close(self, cursor: Cursor) -> None:
        """The consumer has left."""

    def delete(self) -> None:
        """The queue was deleted."""


class Streams(Protocol):
    """The logs of all streams of a host."""

    def log(self, vhost: str, name: bytes, arguments: QueueArguments) -> StreamLog:
        """Returns the log of a stream, and begins to make it if there is none. Refuses names that no log can
        have."""


class StreamQueue(AnyQueue):
    """A queue of type stream. It holds no messages: `ready` stays 0."""

    def __init__(
        self,
        name: bytes,
        arguments: QueueArguments,
        log: StreamLog,
        vhost: str,
        now: float,
    ) -> None:
        super().__init__(name, arguments, now=now)
        self.log = log
        self.vhost = vhost
        self.promises = True
        self._cursors: dict[int, Cursor] = {}  # by the identity of the consumer
        self._position = 1

    def publish(self, run: Run, now: float) -> list[int]:
        self.counts.published += run.count
        return self.log.append(run) or _NONE

    @property
    def full(self) -> bool:
        return self.log.full()

    # --- consuming

    def consume(self, consumer: Consumer, now: float) -> None:
        """Adds a consumer, which starts at `consumer.start`."""
        if consumer.no_ack:
            raise unsupported("automatic acknowledgement", "stream", self, self.vhost)
        if self.consumers.exclusive or (consumer.exclusive and len(self.consumers)):
            raise Refusal(Reason.ACCESS_REFUSED, f"queue '{text(self.name)}' in exclusive use")
        self.consumers.add(consumer)
        self._cursors[id(consumer)] = Cursor(consumer, consumer.start or NEXT)
        self.pump(now)

    def cancel(self, consumer: Consumer, now: float, *, ends: bool = False) -> bool:
        cursor = self._cursors.pop(id(consumer), None)
        if cursor is not None:
            self.consumers.remove(consumer)
            self._close(cursor)
        return False

    def _close(self, cursor: Cursor) -> None:
        cursor.closed = True
        cursor.parts.clear()
        self.log.close(cursor)

    def arrived(self, cursor: Cursor, runs: list[Run], now: float) -> None:
        """Takes the messages that follow in the log, of which the edge has advanced `cursor.offset`."""
        for run in runs:
            part = Part(run, 0, 0, len(run.data), run.count, run.size, self._position, NEVER, 0)
            self._position += run.count
            cursor.parts.append(part)
        self._deliver(cursor)

    def ended(self, cursor: Cursor) -> None:
        """The log has ended: it was deleted."""
        if self._cursors.pop(id(cursor.consumer), None) is not None:
            self.consumers.remove(cursor.consumer)
            self._close(cursor)
            cursor.consumer.cancelled()

    def pump(self, now: float) -> None:
        for cursor in list(self._cursors.values()):
            self._deliver(cursor)

    def _deliver(self, cursor: Cursor) -> None:
        consumer = cursor.consumer
        while cursor.parts and not cursor.closed:
            room = consumer.room
            if room <= 0:
                return
            part = cursor.parts[0].cut(room)
            if not cursor.parts[0].count:
                cursor.parts.popleft()
            consumer.unsettled += part.count
            self.unsettled += part.count
            self.counts.delivered += part.count
            consumer.take(part)
            part.run = None  # nothing of it is needed again
        if cursor.wants:
            cursor.reading = True
            self.log.read(self, cursor)

    # --- settling

    def settle(self, part: Part, offset: int, count: int, consumer: Consumer | None) -> None:
        """Gives credit back. The messages stay in the log."""
        self.unsettled -= count
        self.counts.settled += count
        if consumer is not None:
            consumer.unsettled -= count

    def reject(self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float) -> None:
        self.settle(part, offset, count, consumer)

    def requeue(
        self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float, *, failed: bool
    ) -> None:
        """Forgets deliveries of a channel that has ended: its consumers start again where they say."""
        self.settle(part, offset, count, consumer)

    # --- what streams do not have

    def get(self, now: float, no_ack: bool) -> Part | None:
        raise unsupported("basic.get", "stream queues", self, self.vhost)

    def purge(self) -> int:
        raise unsupported("queue.purge", "stream queues", self, self.vhost)

    def delete(self) -> int:
        self.deleted = True
        for cursor in list(self._cursors.values()):
            self.ended(cursor)
        return 0


def unsupported(what: str, of: str, queue: AnyQueue, vhost: str) -> Refusal:
    """Returns the refusal of what streams do not have."""
    which = f"queue '{text(queue.name)}' in vhost '{vhost}'"
    return Refusal(Reason.NOT_IMPLEMENTED, f"{what} not supported by {of} {which}")
