"""Drawn schedules against a plain reference: each call ends once, and each group's calls begin in order."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.fabric.channel.hosts import Host, connected, until
from tests.unit.fabric.channel.pairs import End, open_pair

from treecast.middleware.fabric.channel import Answer, ChannelError, ChannelSettings
from treecast.middleware.fabric.channel.codec import MAX_PAYLOAD, Kind
from treecast.middleware.fabric.channel.incoming import Answered, Cancelled, Ended, Requested
from treecast.middleware.fabric.channel.outgoing import Call
from treecast.middleware.model.errors import Fault, TreecastError

WINDOW = 64 * 1024
SIZES = (0, 1, 100, 5000, 60_000, WINDOW, MAX_PAYLOAD, MAX_PAYLOAD + 1, 3 * MAX_PAYLOAD + 17)
Operation = tuple[str, bool, int, int, int]


class Reference:
    """One direction of calls: which were made, arrived and ended. It has no windows, frames or turns."""

    def __init__(self, sends: End, takes: End) -> None:
        self.sends = sends
        self.takes = takes
        self.made: list[Call] = []
        self.sizes: list[tuple[int, int]] = []
        self.cancelled: set[int] = set()
        self.arrived: list[Requested] = []
        self.unanswered: list[Requested] = []
        self.on_the_way: dict[int, tuple[bytes, int]] = {}  # answers
        self.ended: Counter[int] = Counter()

    def call(self, group: int, head: int, body: int, notice: bool) -> None:
        number = len(self.made)
        kind = Kind.NOTICE if notice else Kind.CALL
        text = b"%d " % number + bytes(head)
        self.made.append(self.sends.call(group * 20 + number % 20, text, bytes([number % 251]) * body, kind))
        self.sizes.append((len(text), body))

    def cancel(self, number: int) -> None:
        if not self.made or (call := self.made[number % len(self.made)]).kind is Kind.NOTICE:
            return
        number %= len(self.made)
        if number in self.cancelled or self.ended[number]:
            return
        self.cancelled.add(number)
        if call.begun:
            self.sends.session.cancel(call)
        else:
            self.sends.queue.forget(call)

    def answer(self, which: int, size: int, refuse: bool) -> None:
        if not self.unanswered:
            return
        request = self.unanswered.pop(which % len(self.unanswered))
        session = self.takes.session
        if request.notice:
            session.done(request.call)
        elif refuse:
            session.refuse(request.call, "NOT_LEADER", "x" * size)
        else:
            session.answer(request.call, request.head, bytes([request.head[0]]) * size)

    def look(self) -> None:
        """Takes the events of both ends and compares them with the calls that were made."""
        for event in self.takes.events:
            if isinstance(event, Requested):
                self._arrived(event)
            else:
                assert isinstance(event, Cancelled | Answered), event
        for event in self.sends.events:
            if isinstance(event, Answered):
                self._answered(event)

    def _arrived(self, request: Requested) -> None:
        number = int(request.head.split()[0])
        head, body = self.sizes[number]
        assert len(request.head) == head
        assert bytes(request.body) == bytes([number % 251]) * body
        self.arrived.append(request)
        self.unanswered.append(request)

    def _answered(self, event: Answered) -> None:
        number = self.made.index(event.call)
        assert number not in self.cancelled
        if not event.refused:
            assert int(event.head.split()[0]) == number
            assert set(event.body) <= {event.head[0]}
        self.ended[number] += 1

    def check(self) -> None:
        """Checks the whole run after all answers."""
        numbers = [int(request.head.split()[0]) for request in self.arrived]
        by_group: dict[int, list[int]] = defaultdict(list)
        for number in numbers:
            by_group[self.made[number].group].append(number)
        assert all(group == sorted(set(group)) for group in by_group.values())
        for number, call in enumerate(self.made):
            if call.kind is Kind.NOTICE:
                assert numbers.count(number) == 1
            elif number not in self.cancelled:
                assert (numbers.count(number), self.ended[number]) == (1, 1)
            else:
                assert numbers.count(number) <= 1
        session = self.sends.session
        assert session.in_flight == self.sends.queue.calls == self.sends.queue.bytes == 0
        assert not self.takes.session._serving.parts
        assert self.takes.session.handling == 0


operations = st.one_of(
    st.tuples(
        st.just("call"), st.booleans(), st.integers(0, 4), st.sampled_from(SIZES), st.sampled_from(SIZES)
    ),
    st.tuples(st.just("notice"), st.booleans(), st.integers(0, 4), st.just(0), st.sampled_from(SIZES)),
    st.tuples(
        st.just("answer"), st.booleans(), st.integers(0, 9), st.sampled_from(SIZES), st.sampled_from([0, 1])
    ),
    st.tuples(st.just("cancel"), st.booleans(), st.integers(0, 50), st.just(0), st.just(0)),
    st.tuples(st.just("move"), st.booleans(), st.sampled_from([1, 5000, 1 << 19]), st.just(0), st.just(0)),
)


@settings(max_examples=60)
@given(st.lists(operations, max_size=60))
def test_every_call_ends_once_and_groups_keep_their_order(
    schedule: list[tuple[str, bool, int, int, int]],
) -> None:
    pair = open_pair(ChannelSettings(window=WINDOW, longest=4 << 20))
    ends = (pair.dialler, pair.acceptor)
    references = [Reference(ends[0], ends[1]), Reference(ends[1], ends[0])]

    def move(forth: bool, limit: int) -> bool:
        sends, takes = ends if forth else ends[::-1]
        data = sends.data(limit)
        takes.take(takes.session.receive(data, 0.0))
        for reference in references:
            reference.look()
        for end in ends:
            end.events.clear()
        return bool(data)

    for end in ends:
        end.events.clear()
    for name, forth, first, second, third in schedule:
        reference = references[forth]
        if name in ("call", "notice"):
            reference.call(first, second, third, name == "notice")
        elif name == "answer":
            reference.answer(first, second, bool(third))
        elif name == "cancel":
            reference.cancel(first)
        else:
            move(forth, first)
    while True:
        moved = [move(True, 1 << 20), move(False, 1 << 20)]
        waiting = [reference for reference in references if reference.unanswered]
        for reference in waiting:
            reference.answer(0, 10, False)
        if not any(moved) and not waiting:
            break
    for reference in references:
        reference.check()


# --- over sockets, with hosts that are killed


class Caller:
    """Makes calls at random and records how each ended."""

    def __init__(self, host: Host, rng: Random) -> None:
        self.host = host
        self.rng = rng
        self.made = 0
        self.ends: Counter[str] = Counter()
        self.running: list[asyncio.Future[Answer]] = []
        self.sent: dict[int, bool] = {}  # failed calls: whether they may have been handled

    def call(self, other: int) -> None:
        body = bytes(self.rng.choice((0, 10, 1000, 100_000, 700_000)))
        head = b"%d %d" % (self.host.host_id, self.made)
        number = self.made
        future = self.host.channels.call(
            other, self.rng.choice((41, 42, 61)), head, body, timeout=self.rng.choice((0.05, 30, 30, 30))
        )
        self.made += 1
        self.running.append(future)
        future.add_done_callback(lambda done: self._ended(number, head, done))

    def _ended(self, number: int, head: bytes, done: asyncio.Future[Answer]) -> None:
        error = done.exception()
        if error is None:
            assert done.result().head == head
            self.ends["answered"] += 1
        elif isinstance(error, ChannelError):
            self.ends["unknown" if error.sent else "not sent"] += 1
            self.sent[number] = error.sent
        else:
            assert isinstance(error, TreecastError)
            assert error.fault is Fault.NOT_LEADER
            self.ends["refused"] += 1


@pytest.mark.parametrize("seed", range(4))
async def test_hosts_that_come_and_go(start_host: Callable[..., Awaitable[Host]], seed: int) -> None:
    rng = Random(seed)

    async def later(head: bytes) -> Answer:
        await asyncio.sleep(rng.random() / 100)
        return Answer(head)

    def handle(host: int, method: int, head: bytes, body: memoryview) -> Answer | Awaitable[Answer]:
        if method == 42:
            return later(head)
        if method == 61 and len(body) == 10:
            raise TreecastError(Fault.NOT_LEADER)
        return Answer(head, body)

    stays, goes = await start_host(1, handle), await start_host(2, handle)
    address = goes.address
    caller = Caller(stays, rng)
    lives = [goes]
    for run in range(2, 5):
        stays.knows(goes)
        goes.knows(stays)
        await connected(stays, goes)
        for _ in range(rng.randrange(60)):
            caller.call(2)
            if rng.random() < 0.2:
                await asyncio.sleep(0.002)
        goes.kill()
        for _ in range(20):
            caller.call(2)
        goes = await start_host(2, handle, address=address, incarnation=run)
        lives.append(goes)
    await asyncio.wait(caller.running, timeout=40)
    await until(lambda: sum(caller.ends.values()) == caller.made)
    handled = [(run, head, method // 20) for run, life in enumerate(lives) for _, method, head in life.seen]
    heads = Counter(head for _, head, _ in handled)
    assert max(heads.values()) == 1
    for number, sent in caller.sent.items():
        assert sent or heads[b"1 %d" % number] == 0
    for group in (2, 3):
        order = [int(head.split()[1]) for _, head, found in handled if found == group]
        assert order == sorted(order)
    assert caller.ends["answered"] > 5
    await until(lambda: [run for _, run in stays.ups] == [1, 2, 3, 4])
    assert not [event for event in stays.counters.problems if event in ("FORGED", "UNEXPECTED", "WINDOW")]
    await until(lambda: stays.channels.peers()[0].in_flight == 0)


def test_the_reference_can_fail() -> None:
    """The reference finds lost answers."""
    pair = open_pair()
    reference = Reference(pair.dialler, pair.acceptor)
    reference.call(1, 0, 0, False)
    pair.pump()
    assert not pair.dialler.of(Ended)
    with pytest.raises(AssertionError):
        reference.check()
