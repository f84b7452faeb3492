"""The consumers of a queue, and the choice of the next one.

Consumers of the highest priority that have room come first; equal ones take turns. A single active consumer
is the first one registered, until it leaves. In a quorum queue, a consumer of higher priority takes over as
soon as the active one has settled its messages.

A client that closes its channel often cancels its consumer first: a single active one whose messages are not
settled is `leaving`, and the next one waits for these, so that it gets them in order if they come back.
"""

from __future__ import annotations

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
        self._all: list[Consumer] = []  # by descending priority, then in order of registration
        self._turn = 0

    def __len__(self) -> int:
        return len(self._all)

    def all(self) -> list[Consumer]:
        return list(self._all)

    @property
    def exclusive(self) -> bool:
        """Whether one consumer has exclusive use of the queue."""
        return len(self._all) == 1 and self._all[0].exclusive and not self._single

    def add(self, consumer: Consumer) -> None:
        at = len(self._all)
        while at > 0 and self._all[at - 1].priority < consumer.priority:
            at -= 1
        self._all.insert(at, consumer)
        if self._single and self.active is None:
            self.active = consumer

    def remove(self, consumer: Consumer) -> bool:
        """Removes a consumer. Returns whether it was registered."""
        if consumer not in self._all:
            return False
        self._all.remove(consumer)
        if self.active is consumer:
            self.active = self._all[0] if self._all else None
            if consumer.unsettled:
                self.leaving = consumer
        return True

    def next(self) -> tuple[Consumer | None, int]:
        """Returns the next consumer, or None, and how many messages it may get before the turn passes on."""
        if self._single:
            return self._next_single()
        ready: list[Consumer] = []
        for consumer in self._all:
            if ready and consumer.priority < ready[0].priority:
                break
            if consumer.room > 0:
                ready.append(consumer)
        if not ready:
            return None, 0
        if len(ready) == 1:
            return ready[0], ready[0].room
        self._turn += 1
        return ready[self._turn % len(ready)], 1

    def _next_single(self) -> tuple[Consumer | None, int]:
        active = self.active
        if active is None:
            return None, 0
        first = self._all[0]
        if self._takes_over and first.priority > active.priority:
            if active.unsettled:
                return None, 0
            self.active = active = first
        return (active, active.room) if active.room > 0 else (None, 0)
