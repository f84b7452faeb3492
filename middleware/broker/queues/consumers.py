"""The consumers of a queue, and the choice of the next one.

Consumers of the highest priority that have room come first; equal ones take turns. A single active consumer
is the first one registered, until it leaves. In a quorum queue, a consumer of higher priority takes over as
soon as the active one has settled its messages.

A client that closes its channel often cancels its consumer first: a single active one whose messages are not
settled is `leaving`, and the next one waits for these, so that it gets them in order if they come back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict

from mypy_extensions import mypyc_attr

from .message import Part
from .stream_start import StreamStart


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer:
    """A consumer of one queue. `unsettled`: its delivered, not yet settled messages, counted by the queue.

    `owner` is its connection, which is compared by identity only. `start`: where it starts in a stream. If
    the queue is at another host, `number` is its number there, and `received` and `granted` are the totals of
    messages that have come from there and that may come.
    """

    def __init__(
        self,
        tag: bytes,
        owner: object = None,
        no_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
    ) -> None:
        self.tag = tag
        self.owner = owner
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority = priority
        self.unsettled = 0
        self.number = 0
        self.received = 0
        self.granted = 0
        self.start: StreamStart | None = None

    @property
    def room(self) -> int:
        """The number of messages that it can take now."""
        raise NotImplementedError

    def take(self, part: Part) -> None:
        """Takes over at most `room` messages. It must not call the queue before it returns."""
        raise NotImplementedError

    def cancelled(self) -> None:
        """The queue was deleted."""


class Counts:
    """Counts of a queue's messages since it was made, for monitoring."""

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.delivered_no_ack = 0
        self.got = 0
        self.got_no_ack = 0
        self.got_empty = 0
        self.redelivered = 0
        self.settled = 0

    def add(self, other: Counts) -> None:
        self.published += other.published
        self.delivered += other.delivered
        self.delivered_no_ack += other.delivered_no_ack
        self.got += other.got
        self.got_no_ack += other.got_no_ack
        self.got_empty += other.got_empty
        self.redelivered += other.redelivered
        self.settled += other.settled


class Consumers:
    """All consumers of one queue. `active`: the single active consumer, if the queue has one. `leaving`: the
    one before, which was cancelled, while its messages may keep `active` waiting."""

    def __init__(self, single_active: bool, takes_over: bool) -> None:
        self.active: Consumer | None = None
        self.leaving: Consumer | None = None
        self._single = single_active
        self._takes_over = takes_over
        self._numbers: dict[Consumer, int] = {}  # in order of registration
        self._registered = 0
        self._turns: dict[int, OrderedDict[Consumer, None]] = {}  # by priority: whose turn it is first
        self._lowered: list[int] = []  # the priorities there are, negated, in order

    def __len__(self) -> int:
        return len(self._numbers)

    def all(self) -> list[Consumer]:
        """Returns all by descending priority, then in order of registration."""
        return sorted(self._numbers, key=self._order)

    def _order(self, consumer: Consumer) -> tuple[int, int]:
        return -consumer.priority, self._numbers[consumer]

    @property
    def exclusive(self) -> bool:
        """Whether one consumer has exclusive use of the queue."""
        return len(self._numbers) == 1 and not self._single and next(iter(self._numbers)).exclusive

    def add(self, consumer: Consumer) -> None:
        self._registered += 1
        self._numbers[consumer] = self._registered
        turns = self._turns.get(consumer.priority)
        if turns is None:
            turns = self._turns[consumer.priority] = OrderedDict()
            insort(self._lowered, -consumer.priority)
        turns[consumer] = None
        if self._single and self.active is None:
            self.active = consumer

    def remove(self, consumer: Consumer) -> bool:
        """Removes a consumer. Returns whether it was registered."""
        if self._numbers.pop(consumer, None) is None:
            return False
        turns = self._turns[consumer.priority]
        del turns[consumer]
        if not turns:
            del self._turns[consumer.priority]
            del self._lowered[bisect_left(self._lowered, -consumer.priority)]
        if self.active is consumer:
            self.active = self._first
            if consumer.unsettled:
                self.leaving = consumer
        return True

    @property
    def _first(self) -> Consumer | None:
        """The first one registered of the highest priority. Only for a single active consumer, where no turns
        pass."""
        return next(iter(self._turns[-self._lowered[0]])) if self._lowered else None

    def next(self) -> tuple[Consumer | None, int]:
        """Returns the next consumer, or None, and how many messages it may get before the turn passes on."""
        if self._single:
            return self._next_single()
        for lowered in self._lowered:
            turns = self._turns[-lowered]
            # One without room goes behind the others, so that nobody's turn costs a look at all of them.
            for _ in range(len(turns)):
                consumer = next(iter(turns))
                if consumer.room > 0:
                    return self._turn_of(consumer, turns)
                turns.move_to_end(consumer)
        return None, 0

    def _turn_of(self, consumer: Consumer, turns: OrderedDict[Consumer, None]) -> tuple[Consumer, int]:
        for other in turns:
            if other is not consumer and other.room > 0:
                turns.move_to_end(consumer)
                return consumer, 1
        return consumer, consumer.room

    def _next_single(self) -> tuple[Consumer | None, int]:
        active = self.active
        if active is None:
            return None, 0
        first = self._first
        if self._takes_over and first is not None and first.priority > active.priority:
            if active.unsettled:
                return None, 0
            self.active = active = first
        return (active, active.room) if active.room > 0 else (None, 0)
