"""Stand-ins for other hosts: here for their queues, and at the home of a queue for their consumers.

A stand-in for a queue takes part in routing and consuming like queues of this host, and holds no messages.
What is published to it goes to the spool of its home (`spool`). A consumer of it is also a consumer at the
home, by a number of its own: the home delivers up to the total that was granted, so that the consumer's
prefetch holds across hosts. Settlements go back to the home. If the connection to the home is lost, the home
returns what was not settled as a failed delivery, so that it is redelivered with that mark, and the consumers
here are cancelled, as in RabbitMQ.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER

from .any_queue import AnyQueue
from .arguments import QueueArguments
from .consumers import Consumer
from .message import Part, Run, encode_run, received_run
from .reach import Ask, QueueAnswer, QueueCall, QueueNotice, Reach, Say, Settling
from .refusals import Reason, Refusal, not_found, text
from .streams import StreamLog
from .virtual_host import VirtualHost

WINDOW: Final = 1000  # messages on their way to a consumer without a prefetch
_HEAD: Final = 15  # bytes before each delivery: size (4), position (8), deliveries (2), redelivered (1)
_MOST: Final = 0xFFFF
_UNSENT: Final = 8 << 20  # bytes for one host that wait to be sent


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
    """Returns a part as it crosses hosts: see `_HEAD`; then its run (`encode_run`)."""
    run = part.run
    assert run is not None
    encoded = encode_run(run.dead(part, run.deaths))
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
        run = received_run(data[at + _HEAD : at + _HEAD + size])
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


# --- at the home: the consumers of other hosts, and their calls


class HandedOut:
    """The parts that one consumer has not settled, by position."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._parts: dict[int, tuple[Part, int, int]] = {}  # first position -> (part, offset, count)

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, part: Part) -> None:
        self._put(part.position, part, 0, part.count)

    def _put(self, first: int, part: Part, offset: int, count: int) -> None:
        insort(self._firsts, first)
        self._parts[first] = (part, offset, count)

    def take(self, first: int, count: int) -> list[tuple[Part, int, int]]:
        """Removes messages. Returns (part, offset, count) of what was there of them."""
        found: list[tuple[Part, int, int]] = []
        end = first + count
        at = max(bisect_right(self._firsts, first) - 1, 0)
        while at < len(self._firsts) and self._firsts[at] < end:
            begin = self._firsts[at]
            part, offset, length = self._parts[begin]
            low, high = max(begin, first), min(begin + length, end)
            if low >= high:
                at += 1
                continue
            del self._firsts[at], self._parts[begin]
            found.append((part, offset + low - begin, high - low))
            if begin < low:
                self._put(begin, part, offset, low - begin)
                at += 1
            if high < begin + length:
                self._put(high, part, offset + high - begin, begin + length - high)
        return found

    def clear(self) -> list[tuple[Part, int, int]]:
        found = [self._parts[first] for first in self._firsts]
        self._firsts, self._parts = [], {}
        return found


class ServedConsumer(Consumer):
    """A consumer on another host, or with `getting` the taker of one message for `basic.get` there."""

    def __init__(
        self,
        far: FarHost,
        number: int,
        call: QueueCall,
        vhost: VirtualHost,
        queue: AnyQueue,
        getting: bool,
    ) -> None:
        super().__init__(call.tag, far, False, call.exclusive, call.priority)
        self.number = number
        self.start = call.start
        self.vhost = vhost
        self.queue = queue
        self.getting = getting
        self.handed = HandedOut()
        self.left = False  # cancelled, but not all is settled
        self._far = far
        self._latest: deque[tuple[int, int]] = deque()  # first position and number of what was sent last
        self._latest_count = 0

    @property
    def room(self) -> int:
        return max(self.granted - self.received, 0) if self._far.room else 0

    def take(self, part: Part) -> None:
        self.received += part.count
        self.handed.add(part)
        self._latest.append((part.position, part.count))
        self._latest_count += part.count
        while self._latest_count - self._latest[0][1] >= WINDOW:  # more are never on their way
            self._latest_count -= self._latest.popleft()[1]
        self._far.deliver(self.number, write_delivery(part))

    def recall(self, seen: int, now: float) -> None:
        """Returns to the queue what is on its way to a cancelled consumer, of which `seen` messages came."""
        left = self.received - seen
        while left > 0 and self._latest:
            first, count = self._latest.pop()
            late = min(count, left)
            left -= late
            for part, offset, length in self.handed.take(first + count - late, late):
                settle(self, part, offset, length, Settling.REQUEUE, now)

    def give_back(self, now: float) -> None:
        """Returns what is not settled to the queue, as failed deliveries. The caller has to pump it."""
        for part, offset, count in self.handed.clear():
            settle(self, part, offset, count, Settling.FAIL, now)

    def cancelled(self) -> None:
        """The queue was deleted, and with it what was handed out."""
        for part, offset, count in self.handed.clear():
            self.queue.settle(part, offset, count, self)
        self._far.consumers.pop(self.number, None)
        self._far.gone(self.number)


class FarHost:
    """One other host with consumers of queues here."""

    def __init__(self, host: int, reach: Reach) -> None:
        self.host = host
        self.consumers: dict[int, ServedConsumer] = {}
        self.unsent = 0
        self._reach = reach
        self._out: list[tuple[QueueNotice, list[bytes]]] = []

    @property
    def room(self) -> bool:
        return self.unsent < _UNSENT

    def deliver(self, number: int, data: bytes) -> None:
        out = self._out
        self.unsent += len(data)
        if not out or out[-1][0].consumer != number or out[-1][0].say is not Say.DELIVER:
            out.append((QueueNotice(Say.DELIVER, number), []))
        out[-1][1].append(data)

    def gone(self, number: int) -> None:
        """Nothing more comes for a consumer."""
        self._out.append((QueueNotice(Say.GONE, number), []))

    def send(self) -> bool:
        """Sends what was gathered. Returns whether there is room again that there was not before."""
        full = not self.room
        out, self._out, self.unsent = self._out, [], 0
        for notice, pieces in out:
            self._reach.tell(self.host, notice, b"".join(pieces))
        return full


class Serving:
    """The queues of this host as other hosts use them."""

    def __init__(self, vhosts: dict[str, VirtualHost], reach: Reach) -> None:
        self._vhosts = vhosts
        self._reach = reach
        self._far: dict[int, FarHost] = {}
        self._unpumped: dict[int, ServedConsumer] = {}  # by queue: a consumer of it that has settled

    # --- calls

    def call(self, host: int, call: QueueCall, now: float) -> tuple[QueueAnswer, bytes]:
        """Answers a call of another host."""
        self._pump(now)
        try:
            vhost = self._vhosts.get(call.vhost)
            if vhost is None:
                raise not_found("queue", call.queue, call.vhost)
            queue = vhost.router.queue(call.queue)
            if queue.home:  # the caller's news are older than ours
                raise not_found("queue", call.queue, call.vhost)
            return self._answer(host, call, vhost, queue, now)
        except Refusal as refusal:
            return QueueAnswer(refusal.reason.name, refusal.detail), b""

    def _answer(
        self, host: int, call: QueueCall, vhost: VirtualHost, queue: AnyQueue, now: float
    ) -> tuple[QueueAnswer, bytes]:
        if queue.owner is not None:
            raise vhost.router.locked(queue.name)
        body = b""
        if call.ask is Ask.COUNT:
            queue.used_at = now  # a declaration there, passive or not
        if call.ask is Ask.PURGE:
            return QueueAnswer(messages=queue.purge()), b""
        if call.ask is Ask.DELETE:
            count = vhost.queue_definitions.delete(
                queue.name, None, if_unused=call.if_unused, if_empty=call.if_empty
            )
            return QueueAnswer(messages=count), b""
        if call.ask is Ask.GET:
            body = self._get(host, call, vhost, queue, now)
        elif call.ask is Ask.CONSUME:
            far = self._of(host)
            consumer = ServedConsumer(far, call.consumer, call, vhost, queue, False)
            vhost.consume(queue, consumer, now)
            far.consumers[call.consumer] = consumer
        return QueueAnswer(messages=queue.ready, consumers=len(queue.consumers)), body

    def _get(self, host: int, call: QueueCall, vhost: VirtualHost, queue: AnyQueue, now: float) -> bytes:
        part = queue.get(now, call.no_ack)
        vhost.touched(queue, now)
        if part is None:
            return b""
        if part.run is None:
            part.run = vhost.store.load(part.place)
        if not call.no_ack:
            far = self._of(host)
            taker = ServedConsumer(far, call.consumer, call, vhost, queue, True)
            taker.left = True
            taker.handed.add(part)
            far.consumers[call.consumer] = taker
        return write_delivery(part)

    def _of(self, host: int) -> FarHost:
        found = self._far.get(host)
        if found is None:
            found = self._far[host] = FarHost(host, self._reach)
        return found

    # --- notices

    def told(self, host: int, notice: QueueNotice, now: float) -> None:
        """Takes a notice of a consumer's host. One about an unknown consumer is about one that has ended."""
        far = self._far.get(host)
        consumer = far.consumers.get(notice.consumer) if far is not None else None
        if far is not None and consumer is not None:
            self._unpumped[id(consumer.queue)] = consumer
            self._take(far, consumer, notice, now)
            if consumer.left and not len(consumer.handed):
                far.consumers.pop(notice.consumer, None)
        if not notice.more:
            self._pump(now)

    def _take(self, far: FarHost, consumer: ServedConsumer, notice: QueueNotice, now: float) -> None:
        if notice.say is Say.GRANT:
            consumer.granted = max(consumer.granted, notice.count)
        elif notice.say is Say.CANCEL and consumer.getting:
            consumer.give_back(now)
        elif notice.say is Say.CANCEL:
            consumer.left = True
            far.gone(notice.consumer)
            if notice.seen >= 0:
                consumer.recall(notice.seen, now)
            ends = notice.how is Settling.FAIL
            consumer.vhost.cancel(consumer.queue, consumer, now, ends=ends)
            if ends:
                consumer.give_back(now)
        elif notice.say is Say.SETTLE:
            for part, offset, count in consumer.handed.take(notice.first, notice.count):
                settle(consumer, part, offset, count, notice.how, now)

    def _pump(self, now: float) -> None:
        """Pumps the queues of which messages were settled."""
        while self._unpumped:
            _, consumer = self._unpumped.popitem()
            consumer.queue.pump(now)
            consumer.vhost.touched(consumer.queue, now)

    def host_down(self, host: int, now: float) -> None:
        """Cancels the consumers of a host, and returns what they have not settled."""
        far = self._far.pop(host, None)
        if far is None:
            return
        consumers, far.consumers = list(far.consumers.values()), {}
        for consumer in consumers:  # first: nobody is to get what is behind what these return
            self._unpumped[id(consumer.queue)] = consumer
            if not consumer.left:
                consumer.vhost.cancel(consumer.queue, consumer, now, ends=True)
        for consumer in consumers:
            consumer.give_back(now)
        self._pump(now)

    def send(self, now: float) -> None:
        """Sends deliveries. Called after the store was written."""
        for far in list(self._far.values()):
            if far.send():
                for consumer in list(far.consumers.values()):
                    consumer.queue.pump(now)
                    consumer.vhost.touched(consumer.queue, now)


def settle(consumer: ServedConsumer, part: Part, offset: int, count: int, how: Settling, now: float) -> None:
    """Settles messages of a part that a consumer had."""
    queue = consumer.queue
    counted = None if consumer.getting else consumer
    if how is Settling.ACK:
        queue.settle(part, offset, count, counted)
    elif how is Settling.REJECT:
        queue.reject(part, offset, count, counted, now)
    else:
        queue.requeue(part, offset, count, counted, now, failed=how is Settling.FAIL)
