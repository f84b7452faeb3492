"""Queues of other hosts: stand-ins that take part in routing and consuming like queues of this host.

A stand-in holds no messages. What is published to it goes to the spool of its home (`spool`). A consumer of
it is also a consumer at the home, by a number of its own: the home delivers up to the total that was granted,
so that the consumer's prefetch holds across hosts. Settlements go back to the home. If the connection to the
home is lost, the home returns what was not settled, and the consumers here are cancelled, as in RabbitMQ.
"""

from __future__ import annotations

from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER

from . import block_codec
from .any_queue import AnyQueue
from .arguments import QueueArguments
from .consumers import Consumer
from .message import Part, Run
from .reach import Ask, QueueCall, Settling
from .refusals import Reason, Refusal, text
from .streams import StreamLog

WINDOW: Final = 1000  # messages on their way to a consumer without a prefetch
_HEAD: Final = 15  # bytes before each delivery: size (4), position (8), deliveries (2), redelivered (1)
_MOST: Final = 0xFFFF


class Away(Protocol):
    """The part of `joined.JoinedQueues` that stand-ins use."""

    def reaches(self, home: int) -> bool:
        """Whether the home can be called now."""

    def put(self, queue: RemoteQueue, run: Run) -> list[int]:
        """Takes a run for the home of a queue. Returns the indexes of messages that it refuses."""

    def grant(self, queue: RemoteQueue, consumer: Consumer) -> None:
        """The room of a consumer may have changed."""

    def cancel(self, queue: RemoteQueue, number: int, seen: int, *, ends: bool) -> None:
        """Cancels a consumer that has got `seen` messages. `ends`: see `AnyQueue.cancel`."""

    def settle(
        self, queue: RemoteQueue, part: RemotePart, offset: int, count: int, how: Settling
    ) -> None: ...


class Foreign:
    """The owner of exclusive queues of other hosts' connections."""


FOREIGN: Final = Foreign()


class RemotePart(Part):
    """A part that the home has handed to this host. `number`: of the consumer, or of the call of
    `basic.get`.
    """

    def __init__(self, number: int, run: Run, position: int, deliveries: int, redelivered: bool) -> None:
        super().__init__(run, 0, 0, len(run.data), run.count, run.size, position, NEVER, 0, deliveries)
        self.redelivered = redelivered
        self.number = number


def write_delivery(part: Part) -> bytes:
    """Returns a part as it crosses hosts: see `_HEAD`; then its run (`block_codec`)."""
    run = part.run
    assert run is not None
    encoded = block_codec.encode(run.dead(part, run.deaths))
    return b"".join(
        (
            len(encoded).to_bytes(4, "big"),
            part.position.to_bytes(8, "big"),
            min(part.deliveries, _MOST).to_bytes(2, "big"),
            b"\x01" if part.redelivered else b"\x00",
            encoded,
        )
    )


def read_deliveries(number: int, data: bytes) -> list[RemotePart]:
    """Returns the parts. Raises STORAGE if the bytes are no deliveries."""
    found, at = [], 0
    while at + _HEAD <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        position = int.from_bytes(data[at + 4 : at + 12], "big")
        deliveries = int.from_bytes(data[at + 12 : at + 14], "big")
        run = block_codec.received(data[at + _HEAD : at + _HEAD + size])
        found.append(RemotePart(number, run, position, deliveries, data[at + 14] != 0))
        at += _HEAD + size
    return found


class RemoteQueue(AnyQueue):
    """The stand-in for a queue of host `home`."""

    def __init__(
        self,
        name: bytes,
        arguments: QueueArguments,
        away: Away,
        vhost: str,
        home: int,
        *,
        durable: bool,
        auto_delete: bool,
        exclusive: bool,
    ) -> None:
        super().__init__(
            name,
            arguments,
            durable=durable,
            auto_delete=auto_delete,
            owner=FOREIGN if exclusive else None,
        )
        self.home = home
        self.vhost = vhost
        self.log: StreamLog | None = None  # of a stream, once it was published to
        self._away = away
        self._by_number: dict[int, Consumer] = {}

    # --- publishing

    def publish(self, run: Run, now: float) -> list[int]:
        self.counts.published += run.count
        return self._away.put(self, run)

    # --- consuming

    def consume(self, consumer: Consumer, now: float) -> None:
        """Adds a consumer that the home has accepted under `consumer.number`."""
        self.consumers.add(consumer)
        self._by_number[consumer.number] = consumer
        self._away.grant(self, consumer)

    def cancel(self, consumer: Consumer, now: float, *, ends: bool = False) -> bool:
        if self._by_number.pop(consumer.number, None) is not None:
            self.consumers.remove(consumer)
            self._away.cancel(self, consumer.number, consumer.received, ends=ends)
        return False

    def deliver(self, number: int, parts: list[RemotePart]) -> None:
        """Hands over what the home has sent to a consumer, or returns it if the consumer has left."""
        consumer = self._by_number.get(number)
        for part in parts:
            if consumer is None:
                self._away.settle(self, part, 0, part.count, Settling.REQUEUE)
                continue
            consumer.received += part.count
            self.counts.delivered += part.count
            if consumer.no_ack:
                self._away.settle(self, part, 0, part.count, Settling.ACK)
            else:
                consumer.unsettled += part.count
            consumer.take(part)
        if consumer is not None:
            self._away.grant(self, consumer)

    def lost(self, number: int) -> None:
        """The home no longer has a consumer."""
        consumer = self._by_number.pop(number, None)
        if consumer is not None:
            self.consumers.remove(consumer)
            consumer.cancelled()

    def lose_all(self) -> None:
        """The home cannot be reached, or has deleted the queue."""
        for number in list(self._by_number):
            self.lost(number)

    def abandon(self, call: QueueCall, parts: list[RemotePart]) -> None:
        """Undoes a call of a client that has left meanwhile."""
        if call.ask is Ask.CONSUME:
            self._away.cancel(self, call.consumer, 0, ends=False)
        for part in parts:
            self._away.settle(self, part, 0, part.count, Settling.FAIL)

    def pump(self, now: float) -> None:
        for consumer in self._by_number.values():
            self._away.grant(self, consumer)

    # --- settling

    def settle(self, part: Part, offset: int, count: int, consumer: Consumer | None) -> None:
        self._settle(part, offset, count, consumer, Settling.ACK)

    def reject(self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float) -> None:
        self._settle(part, offset, count, consumer, Settling.REJECT)

    def requeue(
        self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float, *, failed: bool
    ) -> None:
        self._settle(part, offset, count, consumer, Settling.FAIL if failed else Settling.REQUEUE)

    def _settle(self, part: Part, offset: int, count: int, consumer: Consumer | None, how: Settling) -> None:
        assert isinstance(part, RemotePart)
        self.counts.settled += count
        if consumer is not None:
            consumer.unsettled -= count
            self._away.grant(self, consumer)
        self._away.settle(self, part, offset, count, how)

    # --- what only the home does

    def get(self, now: float, no_ack: bool) -> Part | None:
        raise home_down(self, "")

    def purge(self) -> int:
        raise home_down(self, "")

    def delete(self) -> int:
        self.deleted = True
        self.lose_all()
        return 0


def home_down(queue: RemoteQueue, host: str) -> Refusal:
    """Returns the refusal of what needs the home of a queue while it cannot be reached."""
    where = f"'{host}' " if host else ""
    return Refusal(
        Reason.NOT_FOUND,
        f"home node {where}of durable queue '{text(queue.name)}' in vhost '{queue.vhost}' is down or "
        "inaccessible",
    )
