"""One queue: its ready messages in order, its delivered messages that are not yet settled, and its consumers.

All calls take `now`, in seconds on any clock; times to live refer to it. A message leaves the queue when it
is settled, purged, or given up. Messages are given up if they are rejected, expired, over the length limit,
or delivered too often; these are passed to `undertaker`, which may dead-letter them.

The semantics are RabbitMQ 4.3's: expired messages leave only at the head; a full queue drops its head or
refuses new messages; returned messages go back to their old positions.
"""

from __future__ import annotations

from typing import Final, Protocol

from treecast.middleware.model.timers import NEVER

from . import deaths
from .any_queue import AnyQueue
from .arguments import Overflow, QueueArguments, QueueType
from .backlog import Backlog
from .consumers import Consumer
from .message import Part, Run
from .recorder import Recorder
from .refusals import Reason, Refusal, text
from .settings import DEFAULTS, QueueSettings
from .store import RunStore

_ALL: Final = 1 << 62
_NONE: Final[list[int]] = []
_QUORUM_DEFAULT: Final = 4  # the default priority of a message in a quorum queue


class Undertaker(Protocol):
    """The receiver of messages that a queue gives up."""

    def bury(self, queue: MessageQueue, run: Run, part: Part, reason: str, now: float) -> None: ...


class MessageQueue(AnyQueue):
    """A queue that holds its messages."""

    def __init__(
        self,
        name: bytes,
        arguments: QueueArguments,
        store: RunStore,
        undertaker: Undertaker,
        recorder: Recorder,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        owner: object = None,
        settings: QueueSettings = DEFAULTS,
        now: float = 0.0,
    ) -> None:
        super().__init__(name, arguments, durable=durable, auto_delete=auto_delete, owner=owner, now=now)
        self._quorum = arguments.type is QueueType.QUORUM
        self._store = store
        self._undertaker = undertaker
        self._recorder = recorder
        self._settings = settings
        self._backlogs: list[Backlog] = []  # by descending priority, made on demand
        self._next = 1
        self._came_back = False  # whether messages were returned since the last pump
        self._hand_over_at = 0.0  # when the next single active consumer waits no longer

    def change(self, arguments: QueueArguments, now: float) -> None:
        """Applies arguments changed by a policy. With drop-head, excess messages are dropped. A changed time
        to live applies only to new messages."""
        if arguments == self.arguments:
            return
        if arguments.expires != self.arguments.expires:
            self.used_at = now
        self.arguments = arguments
        self._came_back = True
        self.pump(now)

    # --- publishing

    def publish(self, run: Run, now: float) -> list[int]:
        if self._came_back:
            self._cut_returned(now)
        self.counts.published += run.count
        part = self._part(run, now)
        if self.arguments.overflow is Overflow.DROP_HEAD or not self._limited:
            self._take_in(part, now)
            self._drop_heads(now)
            return _NONE
        refused: list[int] = []
        while part.count:
            number = run.count - part.count
            room = self._publish_room(part)
            one = part.cut(room or self._refused_together(part))
            if room:
                self._take_in(one, now)
                continue
            refused += range(number, number + one.count)
            if self.arguments.overflow is Overflow.REJECT_PUBLISH_DLX:
                self._undertaker.bury(self, run, one, deaths.MAXLEN, now)
        return refused

    def _part(self, run: Run, now: float) -> Part:
        expiration, ttl = run.expiration, self.arguments.message_ttl
        if expiration < 0 or 0 <= ttl < expiration:
            expiration = ttl
        expires_at = now + expiration / 1000 if expiration >= 0 else NEVER
        part = Part(
            run, 0, 0, len(run.data), run.count, run.size, self._next, expires_at, self._priority(run)
        )
        self._next += run.count
        return part

    def _priority(self, run: Run) -> int:
        most = self.arguments.max_priority
        if run.priority < 0:
            return _QUORUM_DEFAULT if self._quorum else 0
        return min(run.priority, most)

    def _take_in(self, part: Part, now: float) -> None:
        """Gives messages to consumers that have room. The others wait."""
        self._keep(part)
        direct = not self.ready and self.consumers.leaving is None
        if direct and not self._give(part):
            return
        self.ready += part.count
        self.ready_bytes += part.size
        self._backlog(part.priority).push(part)
        if direct:  # nobody has room
            self._expire(now, True)
        else:
            self.pump(now)

    def _keep(self, part: Part) -> None:
        """Stores a part that outlives the process."""
        run = part.run
        assert run is not None
        if self.durable and run.persistent:
            self._store.put(run)
            part.place = run.place
            part.durable = True
            self._store.hold(part.place, part.count)
            self._recorder.enqueued(self.name, part)

    def _give(self, part: Part) -> bool:
        """Delivers messages that nothing waits before, without the backlog. Returns whether some are left."""
        while True:
            consumer, room = self.consumers.next()
            if consumer is None:
                return True
            if part.count <= room:
                self._deliver(part, consumer)
                return False
            self._deliver(part.cut(room), consumer)

    def _backlog(self, priority: int) -> Backlog:
        at = 0
        for backlog in self._backlogs:
            if backlog.priority == priority:
                return backlog
            if backlog.priority < priority:
                break
            at += 1
        backlog = Backlog(self._store, self._settings, priority)
        self._backlogs.insert(at, backlog)
        return backlog

    def restore(self, part: Part) -> None:
        """Restores a part that the store has from an earlier process. Parts have to come in order."""
        self._store.hold(part.place, part.count)
        self._next = max(self._next, part.position + part.count)
        self.ready += part.count
        self.ready_bytes += part.size
        self._backlog(part.priority).push_stored(part)

    # --- length limits

    @property
    def _limited(self) -> bool:
        return self.arguments.max_length >= 0 or self.arguments.max_bytes >= 0

    @property
    def _over(self) -> bool:
        asked = self.arguments
        return (0 <= asked.max_length < self.ready) or (0 <= asked.max_bytes < self.ready_bytes)

    def _publish_room(self, part: Part) -> int:
        """Returns how many messages of `part` fit before the next delivery; with a byte limit at most one."""
        asked = self.arguments
        room = part.count
        if asked.max_length >= 0:
            room = min(room, asked.max_length - self.ready)
        if asked.max_bytes >= 0 and room > 0:
            room = 1 if self.ready_bytes + part.section(0, 1).size <= asked.max_bytes else 0
        return max(room, 0)

    def _refused_together(self, part: Part) -> int:
        """Returns how many messages are refused together with the first: only one with a byte limit, since a
        smaller one may still fit."""
        return part.count if 0 <= self.arguments.max_length <= self.ready else 1

    def _cut_returned(self, now: float) -> None:
        """With drop-head, drops the excess that returned messages caused, before any delivery (RabbitMQ)."""
        self._came_back = False
        if self.arguments.overflow is Overflow.DROP_HEAD:
            self._drop_heads(now)

    def _drop_heads(self, now: float) -> None:
        while self._over:
            self._expire(now, True)
            if not self._over:
                return
            asked = self.arguments
            over = self.ready - asked.max_length if 0 <= asked.max_length < self.ready else 1
            part = self._take_ready(over)
            if part is None:
                return
            self._give_up(part, deaths.MAXLEN, now)
        self._expire(now, True)

    # --- delivering

    def pump(self, now: float) -> None:
        """Delivers ready messages to consumers that have room, and gives up expired ones at the head."""
        if self._came_back:
            self._cut_returned(now)
        while self.ready:
            self._expire(now, False)
            if self.consumers.leaving is not None and self._waits(now):
                break
            consumer, room = self.consumers.next()
            if consumer is None:
                break
            part = self._take_ready(room)
            if part is None:
                break
            self._deliver(part, consumer)
        self._expire(now, True)

    def _deliver(self, part: Part, consumer: Consumer) -> None:
        self._count(part, consumer.no_ack)
        if consumer.no_ack:
            consumer.take(part)
            self._gone(part, 0, part.count)
        else:
            self._hand(part, consumer)
            consumer.take(part)
            self._sent(part)

    def _waits(self, now: float) -> bool:
        """Whether the single active consumer waits for messages of the one before."""
        leaving = self.consumers.leaving
        if leaving is not None and leaving.unsettled and now < self._hand_over_at:
            return True
        self.consumers.leaving = None
        return False

    def get(self, now: float, no_ack: bool) -> Part | None:
        if self.arguments.single_active:
            raise Refusal(
                Reason.RESOURCE_LOCKED,
                f"cannot obtain access to locked queue '{text(self.name)}'. basic.get operations are not "
                f"supported by {self.arguments.type.value} queues with single active consumer",
            )
        self.used_at = now
        self._expire(now, True)
        part = self._take_ready(1)
        counts = self.counts
        if part is None:
            counts.got_empty += 1
            return None
        counts.redelivered += part.redelivered
        if no_ack:
            counts.got_no_ack += 1
            self._gone(part, 0, part.count)
        else:
            counts.got += 1
            self._hand(part, None)
        return part

    def _count(self, part: Part, no_ack: bool) -> None:
        if no_ack:
            self.counts.delivered_no_ack += part.count
        else:
            self.counts.delivered += part.count
        if part.redelivered:
            self.counts.redelivered += part.count

    def _take_ready(self, most: int) -> Part | None:
        """Removes and returns up to `most` messages from the front, highest priority first."""
        for backlog in self._backlogs:
            part = backlog.take(most)
            if part is not None:
                self.ready -= part.count
                self.ready_bytes -= part.size
                return part
        return None

    def take_ready(self) -> Part | None:
        """Removes and returns messages from the front, to be released by the caller once they are
        elsewhere.
        """
        part = self._take_ready(_ALL)
        return self._loaded(part) if part is not None else None

    def release(self, part: Part) -> None:
        """The messages that `take_ready` returned are elsewhere."""
        self._gone(part, 0, part.count)

    def _hand(self, part: Part, consumer: Consumer | None) -> None:
        if consumer is not None:
            consumer.unsettled += part.count
        self.unsettled += part.count
        self.unsettled_bytes += part.size
        if part.durable:
            self._recorder.handed(self.name, part)

    def _sent(self, part: Part) -> None:
        """Releases the memory of a delivered part if it is in the store. Beyond the memory limit, other parts
        are put into the store first."""
        run = part.run
        if part.place == 0 and run is not None and self.unsettled_bytes > self._settings.resident_bytes:
            self._store.put(run)
            part.place = run.place
            self._store.hold(part.place, part.count)
        if part.place:
            part.run = None

    # --- settling

    def settle(self, part: Part, offset: int, count: int, consumer: Consumer | None) -> None:
        self._unhand(part, count, consumer)
        self.counts.settled += count
        self._gone(part, offset, count)

    def reject(self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float) -> None:
        rejected = self._loaded(part).section(
            offset, count
        )  # first: if the disk refuses, nothing has changed
        self._unhand(part, count, consumer)
        self._give_up(rejected, deaths.REJECTED, now)

    def requeue(
        self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float, *, failed: bool
    ) -> None:
        if self.deleted:
            self._unhand(part, count, consumer)
            self._gone(part, offset, count)
            return
        back = self._loaded(part).section(offset, count)  # first: if the disk refuses, nothing has changed
        self._unhand(part, count, consumer)
        back.redelivered = True
        back.deliveries += failed
        limit = self.arguments.delivery_limit
        if 0 <= limit < back.deliveries:
            self._give_up(back, deaths.DELIVERY_LIMIT, now)
            return
        if back.durable:
            self._recorder.returned(self.name, back)
        self.ready += back.count
        self.ready_bytes += back.size
        self._backlog(back.priority).push_back(back)
        self._came_back = True

    def _loaded(self, part: Part) -> Part:
        if part.run is None:
            part.run = self._store.load(part.place)
        return part

    def _unhand(self, part: Part, count: int, consumer: Consumer | None) -> None:
        """Reduces the unsettled counts. The bytes of `count` messages are their proportional share of the
        part."""
        self.unsettled -= count
        self.unsettled_bytes = self.unsettled_bytes - part.size * count // part.count if self.unsettled else 0
        if consumer is not None:
            consumer.unsettled -= count

    def _gone(self, part: Part, offset: int, count: int) -> None:
        """Records and releases `count` messages from index `offset` on, which have left the queue."""
        if part.durable:
            self._recorder.settled(self.name, part, offset, count)
        if part.place:
            self._store.let_go(part.place, count)

    def _give_up(self, part: Part, reason: str, now: float) -> None:
        run = self._loaded(part).run
        assert run is not None
        if not self.deleted:
            self._undertaker.bury(self, run, part, reason, now)
        self._gone(part, 0, part.count)

    # --- time

    def _expire(self, now: float, due: bool) -> None:
        """Gives up expired messages at the head.

        `due`: also those that expire exactly at `now`, which may still be delivered first.
        """
        if not self.ready:
            return
        for backlog in self._backlogs:
            first = backlog.first
            while first is not None and (first.expires_at < now or (due and first.expires_at <= now)):
                part = backlog.take(_ALL)
                assert part is not None
                self.ready -= part.count
                self.ready_bytes -= part.size
                self._give_up(part, deaths.EXPIRED, now)
                first = backlog.first

    def tick(self, now: float) -> None:
        self._expire(now, True)
        if self.consumers.leaving is not None and not self._waits(now):
            self.pump(now)

    @property
    def deadline(self) -> float:
        found = NEVER if self.consumers.leaving is None else self._hand_over_at
        if self.ready:
            for backlog in self._backlogs:
                first = backlog.first
                if first is not None:
                    found = min(found, first.expires_at)
        if self.arguments.expires >= 0 and not len(self.consumers):
            found = min(found, self.used_at + self.arguments.expires / 1000)
        return found

    def expired(self, now: float) -> bool:
        expires = self.arguments.expires
        return expires >= 0 and not len(self.consumers) and self.used_at + expires / 1000 <= now

    # --- consumers

    def consume(self, consumer: Consumer, now: float) -> None:
        """Adds a consumer. Refuses it with ACCESS_REFUSED if a consumer has exclusive use, or if this one
        wants exclusive use and there are others, or a single active consumer is chosen.

        A quorum queue with a single active consumer ignores the wish, as in RabbitMQ."""
        single = self.arguments.single_active
        wanted = consumer.exclusive and (single or len(self.consumers) > 0)
        if self.consumers.exclusive or (wanted and not (single and self._quorum)):
            raise Refusal(Reason.ACCESS_REFUSED, f"queue '{text(self.name)}' in exclusive use")
        self.consumers.add(consumer)
        self.had_consumers = True
        self.used_at = now
        self.pump(now)

    def cancel(self, consumer: Consumer, now: float, *, ends: bool = False) -> bool:
        if not self.consumers.remove(consumer):
            return False
        self.used_at = now
        if self.consumers.leaving is consumer:
            self._hand_over_at = now + self._settings.handover_s
        if not ends:
            self.pump(now)
        return self.auto_delete and self.had_consumers and not len(self.consumers)

    # --- emptying

    def purge(self) -> int:
        for backlog in self._backlogs:
            backlog.clear(self._purged)
        count = self.ready
        self.ready = self.ready_bytes = 0
        return count

    def _purged(self, part: Part) -> None:
        self._gone(part, 0, part.count)

    def delete(self) -> int:
        count = self.purge()
        self.abandon()
        return count

    def abandon(self) -> None:
        """Cancels all consumers, and leaves what is stored to the next process."""
        self.deleted = True
        for consumer in self.consumers.all():
            self.consumers.remove(consumer)
            consumer.cancelled()
