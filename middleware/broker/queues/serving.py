"""At the home of queues: consumers on other hosts, and calls of other hosts about queues of this host.

A consumer of another host takes deliveries up to the total that it has granted. What it has not settled when
the connection is lost returns to the queue as a failed delivery, so that it is redelivered with that mark.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import deque
from typing import Final

from .any_queue import AnyQueue
from .consumers import Consumer
from .elsewhere import WINDOW, write_delivery
from .message import Part
from .reach import Ask, QueueAnswer, QueueCall, QueueNotice, Reach, Say, Settling
from .refusals import Refusal, not_found
from .virtual_host import VirtualHost

_UNSENT: Final = 8 << 20  # bytes for one host that wait to be sent


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
            queue = vhost.queue(call.queue)
            if queue.home:  # the caller's news are older than ours
                raise not_found("queue", call.queue, call.vhost)
            return self._answer(host, call, vhost, queue, now)
        except Refusal as refusal:
            return QueueAnswer(refusal.reason.name, refusal.detail), b""

    def _answer(
        self, host: int, call: QueueCall, vhost: VirtualHost, queue: AnyQueue, now: float
    ) -> tuple[QueueAnswer, bytes]:
        if queue.owner is not None:
            raise vhost.locked(queue.name)
        body = b""
        if call.ask is Ask.COUNT:
            queue.used_at = now  # a declaration there, passive or not
        if call.ask is Ask.PURGE:
            return QueueAnswer(messages=queue.purge()), b""
        if call.ask is Ask.DELETE:
            count = vhost.delete_queue(queue.name, None, if_unused=call.if_unused, if_empty=call.if_empty)
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
