"""Virtual hosts against a plain reference broker: random programs of all client actions and of time."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from tests import replay
from tests.unit.queues import broker_reference as plain
from tests.unit.queues.host import bodies_of, run

from treecast.middleware.broker.queues import (
    Consumer,
    Destination,
    MemoryStore,
    MessageQueue,
    Part,
    Policy,
    QueueSettings,
    Recorder,
    Refusal,
    Run,
    VirtualHost,
)

QUEUES = ("a", "b", "c", "d")
EXCHANGES = ("x", "y", "z")
SETTINGS = ("message-ttl", "expires", "max-length", "max-length-bytes", "overflow", "delivery-limit")
SETTINGS += ("dead-letter-exchange", "dead-letter-routing-key")
KEYS = ("a", "b", "c.a", "c.b.a", "")
PATTERNS = (*KEYS, "#", "*", "c.#", "#.a", "c.*.a")

queue_arguments = st.fixed_dictionaries(
    {},
    optional={
        "x-queue-type": st.just("quorum"),
        "x-message-ttl": st.sampled_from([0, 2000, 5000]),
        "x-expires": st.sampled_from([3000, 6000]),
        "x-max-length": st.integers(0, 5),
        "x-max-length-bytes": st.sampled_from([0, 5, 12]),
        "x-overflow": st.sampled_from(["drop-head", "reject-publish", "reject-publish-dlx"]),
        "x-max-priority": st.integers(1, 3),
        "x-dead-letter-exchange": st.sampled_from(["", *EXCHANGES]),
        "x-dead-letter-routing-key": st.sampled_from(KEYS),
        "x-single-active-consumer": st.booleans(),
        "x-delivery-limit": st.integers(0, 2),
    },
)
small = st.integers(0, 11)
Step = tuple[str, dict[str, object], int, int, int]
_steps = ["publish"] * 5 + ["settle"] * 4 + ["wait", "get", "consume"] * 2
_rare = [
    "declare",
    "bind",
    "bind",
    "cancel",
    "leave",
    "unbind",
    "delete",
    "purge",
    "bind_exchange",
    "exchange",
    "policy",
    "policy",
]
steps = st.lists(
    st.tuples(st.sampled_from(_steps + _rare), queue_arguments, small, small, small), max_size=50
)


BEGIN: list[Step] = [
    ("declare", {}, 0, 1, 0),
    ("declare", {"x-max-length": 2, "x-dead-letter-exchange": "x"}, 1, 1, 0),
    ("exchange", {}, 0, 2, 0),
    ("bind", {}, 0, 0, 5),
]


class FollowedHost(VirtualHost):
    """Records the broker's free choices."""

    followed: plain.Followed

    def route(self, run: Run) -> list[MessageQueue]:
        found = super().route(run)
        whole = Part(run, 0, 0, len(run.data), run.count, run.size, 1, 0.0, 0)
        self.followed.routes.append((bodies_of(whole), [queue.name.decode() for queue in found]))
        return found

    def touched(self, queue: MessageQueue, now: float) -> None:
        self.followed.ticked.append(queue.name.decode())
        super().touched(queue, now)


class Eater(Consumer):
    """Records its deliveries. `prefetch` 0: no limit."""

    def __init__(self, world: World, queue: MessageQueue, of: plain.Eater, of_queue: plain.Queue) -> None:
        super().__init__(of.tag.encode(), None, of.no_ack, of.exclusive, of.priority)
        self.of = of
        self.queue = queue
        self.of_queue = of_queue
        self._world = world

    @property
    def room(self) -> int:
        return self.of.prefetch - self.unsettled if self.of.prefetch and not self.no_ack else 1 << 30

    def take(self, part: Part) -> None:
        for number, body in enumerate(bodies_of(part)):
            self._world.followed.deliveries.append((self.of.tag, body))
            self._world.deliveries.append((self, part, number, body))

    def cancelled(self) -> None:
        self._world.eaters.remove(self)


class World:
    """Both brokers. `held`: all unsettled messages as (queue, part, number in the part, the reference's queue
    and entry, consumer).
    """

    def __init__(self, spills: bool) -> None:
        self.followed = plain.Followed()
        self.plain = plain.Broker(self.followed, self._delivered)
        self.store = MemoryStore()
        kept = QueueSettings(resident_bytes=12, page_entries=3) if spills else QueueSettings()
        self.host = FollowedHost("/", self.store, Recorder(), kept)
        self.host.followed = self.followed
        self.plain.now = self.now = 1000.0
        self.eaters: list[Eater] = []
        self.deliveries: list[tuple[Eater, Part, int, bytes]] = []
        self.held: list[tuple[MessageQueue, Part, int, plain.Queue, plain.Entry, Eater | None]] = []
        self.tags = self.bodies = 0
        self.came: list[tuple[str, str]] = []  # all deliveries: consumer and body

    # --- comparisons

    def _delivered(self, of_queue: plain.Queue, of: plain.Eater, entry: plain.Entry) -> None:
        eater, part, number, body = self.deliveries.pop(0)
        assert (eater.of, body) == (of, entry.message.body)
        assert part.redelivered == entry.redelivered
        assert part.deliveries == entry.failures
        self.came.append((of.tag, body.decode()))
        if not of.no_ack:
            self.held.append((eater.queue, part, number, of_queue, entry, eater))

    def refused(self, ours: Callable[[], object]) -> bool:
        try:
            ours()
        except Refusal:
            return True
        return False

    def check(self) -> None:
        assert not self.followed.deliveries
        assert not self.followed.routes
        self.followed.ticked.clear()
        assert {name.decode() for name in self.host.queues} == set(self.plain.queues)
        for name, plain_queue in self.plain.queues.items():
            queue = self.host.queues[name.encode()]
            assert (queue.ready, queue.ready_bytes) == (len(plain_queue.ready), plain_queue.bytes), name
            assert queue.unsettled == len(plain_queue.unsettled), name
            assert len(queue.consumers) == len(plain_queue.eaters), name
            assert not plain_queue.ready or not plain_queue.eligible(self.now), name
        ours = {name.decode() for name in self.host.exchanges if not name.startswith(b"amq.")}
        assert ours == set(self.plain.exchanges)

    # --- steps

    def step(self, what: str, asked: dict[str, object], one: int, other: int, more: int) -> None:
        getattr(self, what)(asked, one, other, more)
        self.check()

    def _any(self, number: int) -> tuple[MessageQueue, plain.Queue] | None:
        names = sorted(self.plain.queues)
        if not names:
            return None
        name = names[number % len(names)]
        return self.host.queues[name.encode()], self.plain.queues[name]

    def declare(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        name = QUEUES[one % len(QUEUES)]
        auto_delete = other == 0
        known = self.plain.queues.get(name)

        def ours() -> None:
            arguments: dict[str, object] = dict(asked)
            self.host.watch(
                self.host.queue_definitions.declare(
                    name.encode(), arguments=arguments, auto_delete=auto_delete, now=self.now
                )
            )

        quorum = asked.get("x-queue-type") == "quorum"
        wrong = (quorum and (auto_delete or "x-max-priority" in asked)) or (
            not quorum and "x-delivery-limit" in asked
        )
        wrong |= "x-dead-letter-routing-key" in asked and "x-dead-letter-exchange" not in asked
        if known is not None:
            kinds = [one.get("x-queue-type") for one in (asked, known.declared)]
            known_to = "x-max-priority" if quorum else "x-delivery-limit"
            given = {key: value for key, value in asked.items() if key != known_to}
            wrong = kinds[0] != kinds[1] or given != known.declared or auto_delete != known.auto_delete
        assert self.refused(ours) == wrong
        if not wrong and known is None:
            self.plain.declare(plain.Queue(name, dict(asked), auto_delete, self.now))
        elif not wrong and known is not None:
            known.used_at = self.now

    def exchange(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        name = EXCHANGES[one % 3]
        if other >= 9:
            self.host.exchange_definitions.delete(name.encode())
            self.plain.delete_exchange(name)
            return
        kind = ("direct", "fanout", "topic")[other % 3]
        alternate = EXCHANGES[more % 3] if more > 8 else None
        auto_delete = other > 6
        arguments = {"alternate-exchange": alternate} if alternate else {}
        known = self.plain.exchanges.get(name)
        wrong = known is not None and (known.type, known.alternate, known.auto_delete) != (
            kind,
            alternate,
            auto_delete,
        )
        assert wrong == self.refused(
            lambda: self.host.exchange_definitions.declare(
                name.encode(), kind, auto_delete=auto_delete, arguments=arguments
            )
        )
        if known is None:
            self.plain.exchanges[name] = plain.Exchange(kind, alternate, auto_delete)

    def bind(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        self._bind(EXCHANGES[one % 3], QUEUES[other % 4], False, PATTERNS[more % len(PATTERNS)])

    def bind_exchange(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        self._bind(EXCHANGES[one % 3], EXCHANGES[other % 3], True, PATTERNS[more % len(PATTERNS)])

    def _bind(self, source: str, target: str, is_exchange: bool, key: str) -> None:
        exchange = self.plain.exchanges.get(source)
        there = target in (self.plain.exchanges if is_exchange else self.plain.queues)
        destination = Destination(target.encode(), is_exchange)
        wrong = self.refused(lambda: self.host.bindings.bind(source.encode(), destination, key.encode()))
        assert wrong == (exchange is None or not there)
        if exchange is not None and there and (target, is_exchange, key) not in exchange.bindings:
            exchange.bindings.append((target, is_exchange, key))

    def unbind(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        source = EXCHANGES[one % 3]
        exchange = self.plain.exchanges.get(source)
        if exchange is None or not exchange.bindings:
            return
        target, is_exchange, key = binding = exchange.bindings[other % len(exchange.bindings)]
        self.host.bindings.unbind(source.encode(), Destination(target.encode(), is_exchange), key.encode())
        self.plain.unbind(source, binding)

    def delete(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        found = self._any(one)
        if found is None:
            return
        queue, plain_queue = found
        unused, empty = other % 3 == 1, other % 3 == 2
        wrong = (unused and plain_queue.eaters) or (empty and plain_queue.ready)
        assert bool(wrong) == self.refused(
            lambda: self.host.queue_definitions.delete(queue.name, None, if_unused=unused, if_empty=empty)
        )
        if not wrong:
            self.plain.delete(plain_queue)

    def purge(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        if (found := self._any(one)) is not None:
            assert found[0].purge() == len(found[1].ready)
            found[1].ready.clear()

    def publish(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        exchange = ("", "", *EXCHANGES)[one % 5]
        if exchange and exchange not in self.plain.exchanges:
            return
        key = QUEUES[other % 4] if not exchange else KEYS[other % len(KEYS)]
        copies = (QUEUES[more % 4],) if more == 11 else ()
        bodies = [b"%d" % (self.bodies + number) * (1 + number % 3) for number in range(1 + more % 4)]
        self.bodies += len(bodies)
        priority, ttl = (-1, 0, 2, 40)[one % 4], (-1, -1, 0, 3000)[(one + more) % 4]
        count = 1 if copies else len(bodies)
        sent = run(
            *bodies[:count],
            exchange=exchange,
            key=key,
            priority=priority,
            expiration=ttl,
            persistent=other < 6,
            copies=tuple(name.encode() for name in copies),
        )
        routed, refused = self.host.publish(sent, self.now)
        messages = [plain.Message(body, exchange, (key, *copies), priority, ttl) for body in bodies[:count]]
        assert routed == bool(self.plain.route(exchange, (key, *copies)))
        taken = self.plain.publish(messages)
        assert [number for number in range(count) if not taken[number]] == refused

    def consume(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        found = self._any(one)
        if found is None:
            return
        queue, plain_queue = found
        self.tags += 1
        of = plain.Eater(f"t{self.tags}", other % 4, more < 2, more % 3, other == 11)
        eater = Eater(self, queue, of, plain_queue)
        taken = any(one.exclusive for one in plain_queue.eaters)
        wrong = taken or (of.exclusive and bool(plain_queue.eaters))
        if plain_queue.single:
            wrong = of.exclusive and not plain_queue.quorum
        assert wrong == self.refused(lambda: self.host.consume(queue, eater, self.now))
        if not wrong:
            self.eaters.append(eater)
            self.plain.consume(plain_queue, of)

    def cancel(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        if self.eaters:
            eater = self.eaters.pop(one % len(self.eaters))
            self.host.cancel(eater.queue, eater, self.now)
            self.plain.cancel(eater.of_queue, eater.of)

    def leave(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        """The channel of a consumer ends."""
        if not self.eaters:
            return
        eater = self.eaters.pop(one % len(self.eaters))
        same = [each for each in self.held if each[5] is eater]
        self.held = [each for each in self.held if each[5] is not eater]
        self.host.cancel(eater.queue, eater, self.now, ends=True)
        for queue, part, number, *_ in same:
            queue.requeue(part, number, 1, eater, self.now, failed=True)
        eater.queue.pump(self.now)
        self.host.touched(eater.queue, self.now)
        self.plain.close(eater.of_queue, eater.of, [each[4] for each in same])

    def get(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        found = self._any(one)
        if found is None or found[1].single:
            return
        queue, plain_queue = found
        part = queue.get(self.now, no_ack=other < 3)
        self.host.touched(queue, self.now)
        entry = self.plain.get(plain_queue, no_ack=other < 3)
        assert (part is None) == (entry is None)
        if part is not None and entry is not None:
            assert bodies_of(part) == [entry.message.body]
            assert part.redelivered == entry.redelivered
            self.same_deaths(part, entry)
            if other >= 3:
                self.held.append((queue, part, 0, plain_queue, entry, None))

    def same_deaths(self, part: Part, entry: plain.Entry) -> None:
        assert part.run is not None
        found = [(one.queue.decode(), one.reason, one.count) for one in part.run.deaths]
        assert found == [(one.queue, one.reason, one.count) for one in entry.message.deaths]

    def settle(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        """Settles one message, or all that are held of its part."""
        if not self.held:
            return
        queue, part, number, plain_queue, _, eater = self.held[one % len(self.held)]
        same = [each for each in self.held if each[1] is part and (each[2] == number or other > 5)]
        self.held = [each for each in self.held if each not in same]
        how = ("ack", "reject", "nack", "fail")[more % 4]
        for each in same:
            if how == "ack":
                queue.settle(part, each[2], 1, eater)
            elif how == "reject":
                queue.reject(part, each[2], 1, eater, self.now)
            else:
                queue.requeue(part, each[2], 1, eater, self.now, failed=how == "fail")
        queue.pump(self.now)
        self.host.touched(queue, self.now)
        entries = [each[4] for each in same]
        self.plain.settle(plain_queue, entries, eater.of if eater is not None else None, how)

    def wait(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        self.followed.ticked.clear()
        self.now += 0.5 + one % 4
        self.host.tick(self.now)
        self.plain.tick(self.now)

    def policy(self, asked: dict[str, object], one: int, other: int, more: int) -> None:
        name, prefix = ("p", "q")[one % 2], ("", "a", "b")[more % 3]
        definition = {key[2:]: value for key, value in asked.items() if key[2:] in SETTINGS}
        if other < 3 or not definition:
            self.host.policies.delete(name, self.now)
            self.plain.policies.pop(name, None)
        else:
            self.host.policies.set(Policy(name, f"^{prefix}", definition, other % 2), self.now)
            self.plain.policies[name] = (prefix, other % 2, definition)
        self.plain.change_policies()

    # --- the end

    def said(self) -> object:
        rows = {name.decode(): (one.ready, one.unsettled) for name, one in self.host.queues.items()}
        return self.came, rows

    def close(self) -> None:
        """It is in memory."""

    def end(self) -> None:
        """Removes everything; the store is empty afterwards."""
        while self.eaters:
            self.cancel({}, 0, 0, 0)
        for name in sorted(self.plain.queues):
            queue, plain_queue = self.host.queues[name.encode()], self.plain.queues[name]
            for entry in list(plain_queue.ready):
                if entry not in plain_queue.ready or plain_queue.single:
                    continue
                self.get({}, sorted(self.plain.queues).index(name), 0, 0)
            queue.purge()
        while self.held:
            queue, part, number, *_ = self.held.pop()
            queue.settle(part, number, 1, None)
        for name in list(self.host.queues):
            self.host.queue_definitions.delete(name, None)
        assert not self.store.runs
        assert not self.store.pages


@given(steps, st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_virtual_host_does_what_the_reference_does(program: list[Step], spills: bool) -> None:
    replay.play(replay.Log("queues", {"spills": spills}, [*BEGIN, *program]))
