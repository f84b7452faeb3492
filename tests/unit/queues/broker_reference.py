"""A plain reference broker: one virtual host, message by message, in lists and loops.

It follows RabbitMQ's documentation, and its sources if that is unclear. RabbitMQ leaves some choices open
(which of several consumers is next, the order of queues in routing). The reference takes these from the
tested broker, and checks that they are allowed: see `Followed`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

NEVER = float("inf")
HAND_OVER_S = 5.0


@dataclass(frozen=True)
class Death:
    queue: str
    reason: str
    exchange: str
    keys: tuple[str, ...]
    count: int = 1


@dataclass
class Message:
    """`ttl` in milliseconds; -1: none."""

    body: bytes
    exchange: str
    keys: tuple[str, ...]
    priority: int = -1
    ttl: int = -1
    deaths: tuple[Death, ...] = ()


@dataclass
class Entry:
    """A message in a queue."""

    message: Message
    position: int
    level: int
    expires_at: float
    redelivered: bool = False
    failures: int = 0


@dataclass
class Eater:
    """A consumer. `prefetch` 0: no limit."""

    tag: str
    prefetch: int
    no_ack: bool
    priority: int
    exclusive: bool
    unsettled: int = 0

    @property
    def hungry(self) -> bool:
        return self.no_ack or self.prefetch == 0 or self.unsettled < self.prefetch


@dataclass
class Queue:
    """`declared`: its own arguments; `asked`: these with the policies applied. `leaving`: a cancelled single
    active consumer, for whose messages the next one waits until `hand_over_at`."""

    name: str
    declared: dict[str, object]
    auto_delete: bool
    used_at: float
    ready: list[Entry] = field(default_factory=list)
    unsettled: list[Entry] = field(default_factory=list)
    eaters: list[Eater] = field(default_factory=list)
    active: Eater | None = None
    leaving: Eater | None = None
    hand_over_at: float = 0.0
    positions: int = 0
    deleted: bool = False
    asked: dict[str, object] = field(default_factory=dict)

    def number(self, name: str, otherwise: int = -1) -> int:
        return self.asked.get(f"x-{name}", otherwise)  # type: ignore[return-value]

    @property
    def quorum(self) -> bool:
        return self.asked.get("x-queue-type") == "quorum"

    @property
    def single(self) -> bool:
        return self.asked.get("x-single-active-consumer") is True

    @property
    def drops_heads(self) -> bool:
        overflow = self.asked.get("x-overflow", "drop-head")
        return overflow == "drop-head" or (self.quorum and overflow == "reject-publish-dlx")

    @property
    def bytes(self) -> int:
        return sum(len(one.message.body) for one in self.ready)

    def exceeds(self, more: int = 0, more_bytes: int = 0) -> bool:
        """Returns whether the queue would exceed its limits with so much more."""
        length, size = self.number("max-length"), self.number("max-length-bytes")
        return 0 <= length < len(self.ready) + more or 0 <= size < self.bytes + more_bytes

    def sort(self) -> None:
        self.ready.sort(key=lambda one: (-one.level, one.position))

    def waits(self, now: float) -> bool:
        return self.leaving is not None and self.leaving.unsettled > 0 and now < self.hand_over_at

    def eligible(self, now: float) -> list[Eater]:
        """Returns the consumers that may get the next message."""
        if self.waits(now):
            return []
        if self.single:
            first = max(self.eaters, key=lambda one: one.priority, default=None)  # the earliest of equals
            if self.quorum and self.active and first and first.priority > self.active.priority:
                if self.active.unsettled:
                    return []
                self.active = first
            return [self.active] if self.active and self.active.hungry else []
        hungry = [one for one in self.eaters if one.hungry]
        highest = max((one.priority for one in hungry), default=0)
        return [one for one in hungry if one.priority == highest]

    def expired_heads(self, now: float, due: bool) -> list[Entry]:
        """Returns expired messages at the head of each priority."""
        found = []
        for level in {one.level for one in self.ready}:
            for one in [one for one in self.ready if one.level == level]:
                if one.expires_at > now or (not due and one.expires_at == now):
                    break
                found.append(one)
        return sorted(found, key=lambda one: (-one.level, one.position))

    def outlived(self, now: float) -> bool:
        expires = self.number("expires")
        return expires >= 0 and not self.eaters and self.used_at + expires / 1000 <= now


@dataclass
class Exchange:
    type: str
    alternate: str | None = None
    auto_delete: bool = False
    bindings: list[tuple[str, bool, str]] = field(default_factory=list)  # (destination, is exchange, key)

    def match(self, key: str) -> list[tuple[str, bool]]:
        return [(name, kind) for name, kind, bound in self.bindings if self._fits(bound, key)]

    def _fits(self, bound: str, key: str) -> bool:
        if self.type == "fanout":
            return True
        return bound == key if self.type == "direct" else topic_fits(words(bound), words(key))


def words(key: str) -> list[str]:
    return key.split(".") if key else []


def topic_fits(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(topic_fits(pattern[1:], words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and topic_fits(pattern[1:], words[1:])


@dataclass
class Followed:
    """The tested broker's free choices, in order; the reference removes each that it follows.

    `routes`: (bodies of a run, the queues that it reached); `deliveries`: (consumer, body); `ticked`: queues
    that the tick visited.
    """

    routes: list[tuple[list[bytes], list[str]]] = field(default_factory=list)
    deliveries: list[tuple[str, bytes]] = field(default_factory=list)
    ticked: list[str] = field(default_factory=list)


class Broker:
    """Calls `delivered` for each delivery."""

    def __init__(self, followed: Followed, delivered: Callable[[Queue, Eater, Entry], None]) -> None:
        self.now = 0.0
        self.queues: dict[str, Queue] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.policies: dict[str, tuple[str, int, dict[str, object]]] = {}  # prefix, priority, definition
        self._followed = followed
        self._delivered = delivered
        self._dead: list[tuple[Queue, Message, str]] = []

    # --- definitions

    def declare(self, queue: Queue) -> None:
        self.queues[queue.name] = queue
        queue.asked = self._asked(queue)

    def _asked(self, queue: Queue) -> dict[str, object]:
        """Applies the matching policy of the highest priority; of two numbers the lower one counts."""
        found = dict(queue.declared)
        matching = [one for one in self.policies.values() if queue.name.startswith(one[0])]
        if queue.quorum:
            matching = [one for one in matching if "queue-mode" not in one[2]]
        else:
            matching = [one for one in matching if "delivery-limit" not in one[2]]
        _, _, definition = max(matching, key=lambda one: one[1], default=("", 0, {}))
        for name, value in definition.items():
            known = found.get(f"x-{name}")
            if known is None or (name == "overflow" and queue.quorum):
                found[f"x-{name}"] = value
            elif isinstance(known, int) and isinstance(value, int):
                found[f"x-{name}"] = min(known, value)
        return found

    def change_policies(self) -> None:
        for queue in list(self.queues.values()):
            before, queue.asked = queue.asked, self._asked(queue)
            if before.get("x-expires") != queue.asked.get("x-expires"):
                queue.used_at = self.now
            if before != queue.asked:
                self.drop_heads(queue)
            self.pump(queue)
            self._bury()

    def delete(self, queue: Queue) -> None:
        queue.deleted = True
        queue.ready, queue.eaters, queue.active = [], [], None
        del self.queues[queue.name]
        self._unbind_all(queue.name, False)

    def delete_exchange(self, name: str) -> None:
        if self.exchanges.pop(name, None) is not None:
            self._unbind_all(name, True)

    def _unbind_all(self, name: str, is_exchange: bool) -> None:
        for source, exchange in list(self.exchanges.items()):
            for binding in [one for one in exchange.bindings if one[:2] == (name, is_exchange)]:
                self.unbind(source, binding)

    def unbind(self, source: str, binding: tuple[str, bool, str]) -> None:
        exchange = self.exchanges.get(source)
        if exchange is not None and binding in exchange.bindings:
            exchange.bindings.remove(binding)
            if exchange.auto_delete and not exchange.bindings:
                self.delete_exchange(source)

    # --- publishing

    def route(self, name: str, keys: tuple[str, ...]) -> set[str]:
        if name == "":
            return {key for key in keys if key in self.queues}
        reached, seen, todo = set(), {name}, [name]
        while todo:
            exchange = self.exchanges.get(todo.pop())
            if exchange is None:
                continue
            found = [target for key in keys for target in exchange.match(key)]
            if not found and exchange.alternate is not None:
                found = [(exchange.alternate, True)]
            for target, is_exchange in found:
                if not is_exchange:
                    reached.add(target)
                elif target not in seen:
                    seen.add(target)
                    todo.append(target)
        return reached

    def publish(self, messages: list[Message]) -> list[bool]:
        """Publishes messages with one exchange and keys. Returns for each whether all queues took it."""
        taken = self._publish(messages)
        self._bury()
        return taken

    def _publish(self, messages: list[Message], reason: str = "") -> list[bool]:
        bodies, order = self._followed.routes.pop(0)
        assert bodies == [one.body for one in messages]
        assert set(order) == self.route(messages[0].exchange, messages[0].keys)
        assert len(order) == len(set(order))
        taken = [True] * len(messages)
        for name in order:
            for number, message in enumerate(messages):
                if reason in ("", "rejected") or not self._cycles(message, name):
                    taken[number] &= self._take_in(self.queues[name], message)
        return taken

    def _cycles(self, message: Message, queue: str) -> bool:
        """Returns whether the message was in the queue before, without a rejection since."""
        for death in message.deaths:
            if death.reason == "rejected":
                return False
            if death.queue == queue:
                return True
        return False

    def _take_in(self, queue: Queue, message: Message) -> bool:
        if not queue.drops_heads and queue.exceeds(1, len(message.body)):
            if queue.asked["x-overflow"] == "reject-publish-dlx":
                self._die(queue, message, "maxlen")
            return False
        ttls = [ttl for ttl in (message.ttl, queue.number("message-ttl")) if ttl >= 0]
        expires_at = self.now + min(ttls) / 1000 if ttls else NEVER
        queue.positions += 1
        queue.ready.append(Entry(message, queue.positions, self._level(queue, message), expires_at))
        queue.sort()
        self.pump(queue)
        self.drop_heads(queue)
        return True

    def _level(self, queue: Queue, message: Message) -> int:
        if queue.quorum:
            return 4 if message.priority < 0 else min(message.priority, 31)
        return min(max(message.priority, 0), queue.number("max-priority", 0))

    def drop_heads(self, queue: Queue) -> None:
        while queue.drops_heads and queue.exceeds():
            self.expire(queue)
            if queue.exceeds():
                self._die(queue, queue.ready.pop(0).message, "maxlen")
        self.expire(queue)

    # --- dead letters

    def _die(self, queue: Queue, message: Message, reason: str) -> None:
        if queue.asked.get("x-dead-letter-exchange") is not None and not queue.deleted:
            self._dead.append((queue, message, reason))

    def _bury(self) -> None:
        """Publishes dead letters. Those of one reason in one queue may form one run."""
        while self._dead:
            exchange = str(self._dead[0][0].asked["x-dead-letter-exchange"])
            if exchange and exchange not in self.exchanges:
                self._dead.pop(0)
                continue
            count = len(self._followed.routes[0][0])
            group, self._dead = self._dead[:count], self._dead[count:]
            assert len({(queue.name, reason) for queue, _, reason in group}) == 1
            self._publish([self._letter(*one) for one in group], group[0][2])

    def _letter(self, queue: Queue, message: Message, reason: str) -> Message:
        same = [one for one in message.deaths if (one.queue, one.reason) == (queue.name, reason)]
        others = tuple(one for one in message.deaths if one not in same)
        death = Death(queue.name, reason, message.exchange, message.keys)
        if same:
            death = Death(queue.name, reason, same[0].exchange, same[0].keys, same[0].count + 1)
        key = queue.asked.get("x-dead-letter-routing-key")
        keys = message.keys if key is None else (str(key),)
        exchange = str(queue.asked["x-dead-letter-exchange"])
        return Message(message.body, exchange, keys, message.priority, -1, (death, *others))

    # --- delivering

    def expire(self, queue: Queue, due: bool = True) -> None:
        for one in queue.expired_heads(self.now, due):
            queue.ready.remove(one)
            self._die(queue, one.message, "expired")

    def pump(self, queue: Queue) -> None:
        while queue.ready:
            self.expire(queue, due=False)
            eligible = queue.eligible(self.now)
            if not eligible or not queue.ready:
                break
            tag, body = self._followed.deliveries.pop(0)
            (eater,) = [one for one in eligible if one.tag == tag]
            entry = queue.ready.pop(0)
            assert entry.message.body == body
            if not eater.no_ack:
                eater.unsettled += 1
                queue.unsettled.append(entry)
            self._delivered(queue, eater, entry)
        self.expire(queue)

    def get(self, queue: Queue, no_ack: bool) -> Entry | None:
        queue.used_at = self.now
        self.expire(queue)
        entry = queue.ready.pop(0) if queue.ready else None
        if entry is not None and not no_ack:
            queue.unsettled.append(entry)
        self._bury()
        return entry

    def consume(self, queue: Queue, eater: Eater) -> None:
        queue.eaters.append(eater)
        queue.active = queue.active or eater
        self.touch(queue)

    def cancel(self, queue: Queue, eater: Eater) -> None:
        self._remove(queue, eater)
        if queue.single and eater.unsettled and queue.leaving is eater:
            queue.hand_over_at = self.now + HAND_OVER_S
        self.pump(queue)
        if queue.auto_delete and not queue.eaters:
            self.delete(queue)
        self._bury()

    def _remove(self, queue: Queue, eater: Eater) -> None:
        queue.eaters.remove(eater)
        if queue.active is eater:
            queue.active = max(queue.eaters, key=lambda one: one.priority, default=None)
            queue.leaving = eater if eater.unsettled else queue.leaving
        queue.used_at = self.now

    def close(self, queue: Queue, eater: Eater, entries: list[Entry]) -> None:
        """The channel of a consumer ends, which had these messages."""
        self._remove(queue, eater)
        if queue.auto_delete and not queue.eaters:
            self.delete(queue)
        self.settle(queue, entries, eater, "fail")

    def touch(self, queue: Queue) -> None:
        queue.used_at = self.now
        self.pump(queue)
        self._bury()

    # --- settling

    def settle(self, queue: Queue, entries: list[Entry], eater: Eater | None, how: str) -> None:
        """`how`: ack, reject, nack (give back), or fail (give back and count it)."""
        for entry in entries:
            queue.unsettled.remove(entry)
            if eater is not None:
                eater.unsettled -= 1
            if how == "reject":
                self._die(queue, entry.message, "rejected")
            elif how in ("nack", "fail") and not queue.deleted:
                self._give_back(queue, entry, how == "fail")
        if how in ("nack", "fail"):
            self.drop_heads(queue)
        self.pump(queue)
        self._bury()

    def _give_back(self, queue: Queue, entry: Entry, failed: bool) -> None:
        entry.redelivered = True
        entry.failures += failed
        limit = queue.number("delivery-limit", 20 if queue.quorum else -1)
        if 0 <= limit < entry.failures:
            self._die(queue, entry.message, "delivery_limit")
        else:
            queue.ready.append(entry)
            queue.sort()

    # --- time

    def tick(self, now: float) -> None:
        self.now = now
        while self._followed.ticked:
            queue = self.queues.get(self._followed.ticked.pop(0))
            if queue is None:
                continue
            self.expire(queue)
            self.pump(queue)
            if queue.outlived(now):
                self.delete(queue)
            self._bury()
        for queue in self.queues.values():
            assert not queue.expired_heads(now, True)
            assert not queue.outlived(now)
