"""After any steps each message is ready, unsettled, settled or dead, exactly once; in the end the store is
empty.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.queues.host import Host, Taker, bodies_of

from treecast.middleware.broker.queues import MessageQueue, Part, QueueSettings

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["publish", "settle", "reject", "requeue", "fail", "consume", "cancel", "credit", "wait"]
        ),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
    max_size=60,
)
kinds = st.sampled_from(
    [
        {},
        {"queue_type": "quorum", "delivery_limit": 1},
        {"single_active_consumer": True},
        {"message_ttl": 3000},
        {"max_length": 5},
    ]
)


class World:
    """One queue with dead letters, its consumers, and the state of every message."""

    def __init__(self, kind: dict[str, object], spills: bool) -> None:
        self.host = Host(QueueSettings(resident_bytes=10, page_entries=2) if spills else None)
        self.host.queue("dead")
        self.queue: MessageQueue = self.host.queue(
            "q", dead_letter_exchange="", dead_letter_routing_key="dead", **kind
        )
        self.takers: list[Taker] = []
        self.held: list[tuple[Part, int, list[bytes], Taker]] = []  # part, first held message
        self.settled: list[bytes] = []
        self.published = 0

    def publish(self, count: int, priority: int) -> None:
        bodies = [b"%d" % (self.published + n) for n in range(count)]
        self.published += count
        self.host.publish(*bodies, priority=priority)

    def collect(self) -> None:
        """Collects the messages given to takers since the last call."""
        for taker in self.takers:
            for part in taker.parts:
                bodies, taker.got = taker.got[: part.count], taker.got[part.count :]
                assert part.run is None or bodies_of(part) == bodies
                self.held.append((part, 0, bodies, taker))
            taker.parts.clear()

    def end(self, what: str, which: int, count: int) -> None:
        """Settles or gives back the first messages of one of the held parts."""
        if not self.held:
            return
        part, offset, bodies, taker = self.held.pop(which % len(self.held))
        count = min(count + 1, len(bodies))
        if count < len(bodies):
            self.held.append((part, offset + count, bodies[count:], taker))
        queue, now = self.queue, self.host.now
        if what == "settle":
            queue.settle(part, offset, count, taker)
            self.settled += bodies[:count]
        elif what == "reject":
            queue.reject(part, offset, count, taker, now)
        else:
            queue.requeue(part, offset, count, taker, now, failed=what == "fail")
        queue.pump(now)
        self.host.vhost.touched(queue, now)

    def step(self, what: str, number: int, small: int) -> None:
        host, queue = self.host, self.queue
        if what == "publish":
            self.publish(number + 1, small)
        elif what == "consume":
            taker = Taker(str(len(self.takers)), number, priority=small)
            self.takers.append(taker)
            host.vhost.consume(queue, taker, host.now)
        elif what == "cancel" and self.takers:
            host.vhost.cancel(queue, self.takers[number % len(self.takers)], host.now)
        elif what == "credit" and self.takers:
            self.takers[number % len(self.takers)].credit += small
            queue.pump(host.now)
        elif what == "wait":
            host.wait(small)
        elif what in ("settle", "reject", "requeue", "fail"):
            self.end(what, number, small)
        self.collect()

    def check(self) -> None:
        assert self.queue.unsettled == sum(len(bodies) for _, _, bodies, _ in self.held)
        assert sum(taker.unsettled for taker in self.takers) == self.queue.unsettled
        dead = self.host.vhost.router.queue(b"dead").ready
        assert self.published == self.queue.ready + self.queue.unsettled + len(self.settled) + dead


@given(kinds, steps, st.booleans())
@settings(max_examples=150, deadline=None)
def test_nothing_is_lost_doubled_or_left_in_the_store(
    kind: dict[str, object], program: list[tuple[str, int, int]], spills: bool
) -> None:
    world = World(kind, spills)
    for what, number, small in program:
        world.step(what, number, small)
        world.check()
    for taker in world.takers:
        world.host.vhost.cancel(world.queue, taker, world.host.now)
    world.collect()
    for part, offset, bodies, taker in world.held:
        world.queue.requeue(part, offset, len(bodies), taker, world.host.now, failed=False)
    last = Taker("last", no_ack=True)
    world.host.vhost.consume(world.queue, last, world.host.now)
    left = last.got + world.host.drained("dead")
    assert Counter(left + world.settled) == Counter(b"%d" % n for n in range(world.published))
    assert not world.host.memory.runs
    assert not world.host.memory.pages
