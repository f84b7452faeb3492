"""One queue: an ordered store of messages that are ready, those that wait to be settled, and its consumers.

Everything takes `now`, in seconds on whatever clock; times to live count on it. A message leaves in one of
four ways: settled by whoever got it, purged, or given up, which is told to `undertaker`, who may
dead-letter it: rejected, expired, over the length limit, delivered too often.

Semantics are RabbitMQ 4.3's: expired messages leave at the head only; a full queue drops its head or
refuses what is published; what comes back goes where it was.
"""

from __future__ import annotations

from typing import Final, Protocol

from . import deaths
from .arguments import Overflow, QueueArguments, QueueType
from .backlog import Backlog
from .consumers import Consumer, Consumers, Counts
from .message import NEVER, Part, Run
from .policies import Policy
from .recorder import Recorder
from .refusals import Reason, Refusal, text
from .settings import DEFAULTS, QueueSettings
from .store import RunStore

_ALL: Final = 1 << 62
_NONE: Final[list[int]] = []
_QUORUM_DEFAULT: Final = 4  # the priority of a message that has none, in a quorum queue


class Undertaker(Protocol):
    """Who is told of messages that a queue gives up."""

    def bury(self, queue: MessageQueue, run: Run, part: Part, reason: str, now: float) -> None: ...


class MessageQueue:
    """`ready` messages of `ready_bytes`, and `unsettled` ones. `owner`: the connection that it is exclusive
    to.

    `asked`: what it was declared with. `policies`: the policy and the operator policy that count.
    `arguments`: what all that comes to.
    """

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
        self.name = name
        self.arguments = arguments
        self.asked: dict[str, object] = {}
        self.policies: tuple[Policy | None, Policy | None] = (None, None)
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.ready = 0
        self.ready_bytes = 0
        self.unsettled = 0
        self.unsettled_bytes = 0
        self.used_at = now
        self.had_consumers = False
        self.deleted = False
        self.counts = Counts()
        quorum = arguments.type is QueueType.QUORUM
        self.consumers = Consumers(arguments.single_active, quorum)
        self._quorum = quorum
        self._store = store
        self._undertaker = undertaker
        self._recorder = recorder
        self._settings = settings
        self._backlogs: list[Backlog] = []  # by falling priority, those that were needed
        self._next = 1
        self._came_back = False  # something did since the last pump

    def change(self, arguments: QueueArguments, now: float) -> None:
        """A policy did: what is too long now is dropped. Times to live count for what comes from now on."""
        if arguments == self.arguments:
            return
        if arguments.expires != self.arguments.expires:
            self.used_at = now
        self.arguments = arguments
        self._came_back = True
        self.pump(now)

    # --- publishing

    def publish(self, run: Run, now: float) -> list[int]:
        """Takes the run's messages, gives them to consumers that have room.

        Answers the numbers of those that it refuses, since it is full and its overflow says so.
        """
        if self._came_back:
            self._cut_returned(now)
        self.counts.published += run.count
        part = self._part(run, now)
        if self.arguments.overflow is Overflow.DROP_HEAD or not self._limited:
            self._enqueue(part)
            self.pump(now)
            self._drop_heads(now)
            return _NONE
        refused: list[int] = []
        while part.count:
            number = run.count - part.count
            room = self._publish_room(part)
            one = part.cut(room or self._refused_together(part))
            if room:
                self._enqueue(one)
                self.pump(now)
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

    def _enqueue(self, part: Part) -> None:
        run = part.run
        assert run is not None
        if self.durable and run.persistent:
            self._store.put(run)
            part.place = run.place
            part.durable = True
            self._store.hold(part.place, part.count)
            self._recorder.enqueued(self.name, part)
        self.ready += part.count
        self.ready_bytes += part.size
        self._backlog(part.priority).push(part)

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
        """A part that the store has of an earlier run of the process. They come in order."""
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
        """How many of its messages fit before anybody is given one; by bytes it is told one by one."""
        asked = self.arguments
        room = part.count
        if asked.max_length >= 0:
            room = min(room, asked.max_length - self.ready)
        if asked.max_bytes >= 0 and room > 0:
            room = 1 if self.ready_bytes + part.section(0, 1).size <= asked.max_bytes else 0
        return max(room, 0)

    def _refused_together(self, part: Part) -> int:
        """How many of its messages are refused with the first: by bytes, a smaller one may still fit."""
        return part.count if 0 <= self.arguments.max_length <= self.ready else 1

    def _cut_returned(self, now: float) -> None:
        """What came back may have made it too long. It is cut before anybody is given anything (RabbitMQ)."""
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
        """Gives what is ready to consumers that have room, and gives up what has expired at the head."""
        if self._came_back:
            self._cut_returned(now)
        while self.ready:
            self._expire(now, False)
            consumer, room = self.consumers.next()
            if consumer is None:
                break
            part = self._take_ready(room)
            if part is None:
                break
            self._count(part, consumer.no_ack)
            if consumer.no_ack:
                consumer.take(part)
                self._gone(part, 0, part.count)
            else:
                self._hand(part, consumer)
                consumer.take(part)
                self._sent(part)
        self._expire(now, True)

    def get(self, now: float, no_ack: bool) -> Part | None:
        """One message for who asks by itself; it is to be settled unless `no_ack`."""
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
        """Up to `most` messages from the front, highest priority first."""
        for backlog in self._backlogs:
            part = backlog.take(most)
            if part is not None:
                self.ready -= part.count
                self.ready_bytes -= part.size
                return part
        return None

    def _hand(self, part: Part, consumer: Consumer | None) -> None:
        if consumer is not None:
            consumer.unsettled += part.count
        self.unsettled += part.count
        self.unsettled_bytes += part.size
        if part.durable:
            self._recorder.handed(self.name, part)

    def _sent(self, part: Part) -> None:
        """Its bytes may leave memory: those that the store has, and beyond what may stay, all others too."""
        run = part.run
        if part.place == 0 and run is not None and self.unsettled_bytes > self._settings.resident_bytes:
            self._store.put(run)
            part.place = run.place
            self._store.hold(part.place, part.count)
        if part.place:
            part.run = None

    # --- settling

    def settle(self, part: Part, offset: int, count: int, consumer: Consumer | None) -> None:
        """`count` messages of a part, from number `offset` on, are done with."""
        self._unhand(part, count, consumer)
        self.counts.settled += count
        self._gone(part, offset, count)

    def reject(self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float) -> None:
        """They are not wanted: dead-lettered where the queue has whereto."""
        self._unhand(part, count, consumer)
        self._give_up(self._loaded(part).section(offset, count), deaths.REJECTED, now)

    def requeue(
        self, part: Part, offset: int, count: int, consumer: Consumer | None, now: float, *, failed: bool
    ) -> None:
        """They go where they were. `failed`: delivering did, and is counted; `pump` is to be called."""
        self._unhand(part, count, consumer)
        if self.deleted:
            self._gone(part, offset, count)
            return
        back = self._loaded(part).section(offset, count)
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
        """Bytes of a part of which only some are settled are told by their share."""
        self.unsettled -= count
        self.unsettled_bytes = self.unsettled_bytes - part.size * count // part.count if self.unsettled else 0
        if consumer is not None:
            consumer.unsettled -= count

    def _gone(self, part: Part, offset: int, count: int) -> None:
        """The queue has `count` of its messages from number `offset` on no more."""
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
        """Gives up what has expired at the head.

        `due`: also what expires just now, which a consumer may get.
        """
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
        """Does what time alone brings. Whether the queue itself has expired, `expired` says."""
        self._expire(now, True)

    @property
    def deadline(self) -> float:
        """When `tick` has something to do, or the queue expires; NEVER if neither."""
        found = NEVER
        for backlog in self._backlogs:
            first = backlog.first
            if first is not None:
                found = min(found, first.expires_at)
        if self.arguments.expires >= 0 and not len(self.consumers):
            found = min(found, self.used_at + self.arguments.expires / 1000)
        return found

    def expired(self, now: float) -> bool:
        """Whether nobody has used it for as long as it was to be kept."""
        expires = self.arguments.expires
        return expires >= 0 and not len(self.consumers) and self.used_at + expires / 1000 <= now

    # --- consumers

    def consume(self, consumer: Consumer, now: float) -> None:
        """A consumer comes. ACCESS_REFUSED where one has, or wants, the queue for itself and can't."""
        if self.consumers.exclusive or (consumer.exclusive and len(self.consumers)):
            raise Refusal(Reason.ACCESS_REFUSED, f"queue '{text(self.name)}' in exclusive use")
        self.consumers.add(consumer)
        self.had_consumers = True
        self.used_at = now
        self.pump(now)

    def cancel(self, consumer: Consumer, now: float) -> bool:
        """A consumer goes; whether the queue is to be deleted with it. What it has unsettled, it keeps."""
        if not self.consumers.remove(consumer):
            return False
        self.used_at = now
        self.pump(now)
        return self.auto_delete and self.had_consumers and not len(self.consumers)

    # --- emptying

    def purge(self) -> int:
        """Forgets what is ready; how much that was."""
        for backlog in self._backlogs:
            backlog.clear(self._purged)
        count = self.ready
        self.ready = self.ready_bytes = 0
        return count

    def _purged(self, part: Part) -> None:
        self._gone(part, 0, part.count)

    def delete(self) -> int:
        """Forgets everything, and tells consumers.

        How much was ready. Not dead-lettered: RabbitMQ does not.
        """
        count = self.purge()
        self.deleted = True
        for consumer in self.consumers.all():
            self.consumers.remove(consumer)
            consumer.cancelled()
        return count
