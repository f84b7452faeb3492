"""Writes to the coordinator's store: batches, order, outages, refusals, bounds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Mapping, Sequence

import pytest
from tests.unit.relay.homes.town import until

from treecast.middleware.api.entries import HomeKind
from treecast.middleware.broker.homes import HomeName
from treecast.middleware.model.counters import HomeCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.relay.homes.mirror import HomeMirror, Kept
from treecast.middleware.relay.homes.ports import Alone, MirrorSettings, StateWrite, Version

G, H = HomeName(HomeKind.GROUP, "g"), HomeName(HomeKind.GROUP, "h")
AWAY = TreecastError(Fault.COORDINATOR_UNAVAILABLE)
MOVED = TreecastError(Fault.NOT_COORDINATOR)


class Store:
    """The coordinator's store: keeps all writes, unless a test says otherwise."""

    def __init__(self) -> None:
        self.items: dict[HomeName, dict[bytes, bytes]] = {}
        self.calls: list[list[StateWrite]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.error: Exception | None = None
        self.forgets = False  # stores the writes, but loses the answer
        self.refused: dict[HomeName, TreecastError] = {}

    async def put(self, writes: Sequence[StateWrite]) -> Mapping[int, TreecastError]:
        self.calls.append([*writes])
        await self.go.wait()
        if self.error is not None:
            raise self.error
        for write in writes:
            if write.name not in self.refused:
                self._keep(write)
        if self.forgets:
            raise AWAY
        return {n: self.refused[w.name] for n, w in enumerate(writes) if w.name in self.refused}

    def _keep(self, write: StateWrite) -> None:
        if write.forget:
            self.items.pop(write.name, None)
            return
        kept = self.items.setdefault(write.name, {})
        for key, value in write.items.items():
            if value is None:
                kept.pop(key, None)
            else:
                kept[key] = value


class Bench:
    def __init__(self, **settings: float) -> None:
        self.store = Store()
        self.counters = HomeCounters()
        self.lost: list[tuple[HomeName, int, dict[bytes, bytes | None]]] = []
        self.sent: list[tuple[HomeName, set[bytes]]] = []
        self.comparing = asyncio.Event()
        self.comparing.set()
        self.mirror = HomeMirror(
            self.store,  # type: ignore[arg-type]
            self.counters,
            self,
            lost=self._lose,
            sent=lambda name, keys: self.sent.append((name, set(keys))),
            settings=MirrorSettings(**{"patience": 0.0, "pause": 0.01, **settings}),
        )

    def _lose(self, name: HomeName, epoch: int, refusal: TreecastError, alone: Mapping[bytes, Alone]) -> None:
        self.lost.append((name, epoch, {key: item.value for key, item in alone.items()}))

    async def compare(self, names: Collection[HomeName]) -> None:
        await self.comparing.wait()

    def version(self, name: HomeName, count: int) -> Version:
        return Version(count)

    def put(self, name: HomeName, items: dict[bytes, bytes | None], epoch: int = 1, **how: bool):
        return self.mirror.put(StateWrite(name, epoch, items, **how))

    async def drained(self) -> None:
        while self.mirror._task is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_what_comes_while_a_call_is_under_way_is_the_next_call(bench: Bench) -> None:
    bench.store.go.clear()
    first = bench.put(G, {b"a": b"1"})
    await asyncio.sleep(0)
    rest = [bench.put(G, {b"a": b"2"}), bench.put(H, {b"b": b"1"}), bench.put(G, {b"c": b"1"})]
    await asyncio.sleep(0)
    assert not first.done()
    bench.store.go.set()
    assert await asyncio.gather(first, *rest) == [Kept.STORED] * 4
    assert [[(w.name, w.items) for w in call] for call in bench.store.calls] == [
        [(G, {b"a": b"1"})],
        [(G, {b"a": b"2", b"c": b"1"}), (H, {b"b": b"1"})],
    ]


async def test_a_coordinator_that_does_not_answer_is_waited_for_a_while(bench: Bench) -> None:
    bench = Bench(patience=30.0)
    bench.store.error = AWAY
    waiting = bench.put(G, {b"a": b"1"})
    await until(lambda: len(bench.store.calls) == 3)
    assert not waiting.done()
    bench.store.error = None
    assert await waiting is Kept.STORED
    assert (bench.counters.store_lost, bench.counters.accepted_alone) == (0, 0)


async def test_an_error_that_nobody_foresaw_is_as_a_coordinator_that_does_not_answer(bench: Bench) -> None:
    bench.store.error = ValueError("surprise")
    first = bench.mirror.put(StateWrite(G, 1, {b"k": b"1"}), 1)
    assert await asyncio.wait_for(first, 10) is Kept.ALONE
    bench.store.error = None
    await until(lambda: bench.store.items.get(G) == {b"k": b"1"} and not bench.mirror.away)
    second = bench.mirror.put(StateWrite(G, 1, {b"k": b"2"}), 2)
    assert await asyncio.wait_for(second, 10) is Kept.STORED


async def test_without_the_store_writes_are_accepted_and_remembered_by_key(bench: Bench) -> None:
    bench.store.error = AWAY
    assert await bench.put(G, {b"a": b"1"}) is Kept.ALONE
    bench.store.go.clear()
    attempts = len(bench.store.calls)
    await until(lambda: len(bench.store.calls) > attempts)  # the pause is over and an attempt is under way
    for value in (b"2", b"3"):
        assert await bench.put(G, {b"a": value, b"b" + value: b"x"}) is Kept.ALONE
    bench.store.go.set()
    await until(lambda: not bench.mirror._under_way)  # the attempt has failed
    assert await bench.put(G, {b"b2": None}) is Kept.ALONE
    assert bench.mirror.waiting == 3
    bench.store.error = None
    await bench.drained()
    assert bench.store.items == {G: {b"a": b"3", b"b3": b"x"}}
    assert set().union(*(keys for _, keys in bench.sent)) == {b"a", b"b2", b"b3"}
    assert not bench.mirror.away
    assert await bench.put(G, {b"a": b"4"}) is Kept.STORED


async def test_refused_is_the_home_that_moved_and_nobody_else(bench: Bench) -> None:
    bench.store.refused = {G: MOVED}
    moved, other = await asyncio.gather(bench.put(G, {b"a": b"1"}), bench.put(H, {b"a": b"1"}))
    assert isinstance(moved, TreecastError)
    assert other is Kept.STORED
    assert bench.lost == [(G, 1, {})]
    assert bench.counters.store_refused == {"NOT_COORDINATOR": 1}


async def test_what_a_home_that_moved_had_accepted_alone_is_handed_back(bench: Bench) -> None:
    bench.store.error = AWAY
    await bench.put(G, {b"a": b"1"})
    bench.mirror.remember(StateWrite(G, 1, {b"old": b"0"}))
    bench.store.error, bench.store.refused = None, {G: MOVED}
    await bench.drained()
    assert bench.lost == [(G, 1, {b"a": b"1"})]


async def test_a_dropped_home_is_not_sent(bench: Bench) -> None:
    bench.store.error = AWAY
    await bench.put(G, {b"a": b"1"})
    await bench.put(H, {b"a": b"1"})
    assert bench.mirror.drop(G, MOVED) == {b"a": Alone(b"1", 0)}
    bench.store.error = None
    await bench.drained()
    assert bench.store.items == {H: {b"a": b"1"}}


async def test_a_newer_epoch_ends_what_waits_in_an_older_one(bench: Bench) -> None:
    bench.store.go.clear()
    bench.put(H, {b"x": b"1"})
    await asyncio.sleep(0)
    old = bench.put(G, {b"a": b"1"}, epoch=1)
    new = bench.put(G, {b"b": b"1"}, epoch=2)
    bench.store.go.set()
    assert isinstance(await old, TreecastError)
    assert await new is Kept.STORED
    assert bench.store.items[G] == {b"b": b"1"}


async def test_forgetting_takes_all_items_unless_something_follows(bench: Bench) -> None:
    await bench.put(G, {b"a": b"1"})
    assert await bench.put(G, {b"a": None}, forget=True) is Kept.STORED
    assert bench.store.items == {}
    bench.store.go.clear()
    bench.put(H, {b"x": b"1"})
    await asyncio.sleep(0)
    bench.put(G, {b"a": None}, forget=True)
    last = bench.put(G, {b"b": b"1"})
    bench.store.go.set()
    await last
    assert bench.store.items[G] == {b"b": b"1"}
    assert not any(write.forget for write in bench.store.calls[-1])


async def test_calls_are_bounded_in_homes_and_bytes(bench: Bench) -> None:
    bench = Bench(homes=3, bytes=100)
    names = [HomeName(HomeKind.GROUP, f"g{n}") for n in range(7)]
    writes = [bench.put(name, {b"k": b"v"}) for name in names]
    large = bench.put(G, {b"%d" % n: b"x" * 40 for n in range(10)})
    assert await asyncio.gather(*writes, large) == [Kept.STORED] * 8
    assert all(len(call) <= 3 for call in bench.store.calls)
    sizes = [
        sum(len(k) + len(v or b"") for w in call for k, v in w.items.items()) for call in bench.store.calls
    ]
    assert max(sizes) <= 160
    assert len(bench.store.items[G]) == 10


async def test_closing_sends_what_is_left(bench: Bench) -> None:
    waiting = bench.put(G, {b"a": b"1"})
    await bench.mirror.close(1.0)
    assert waiting.result() is Kept.STORED
    assert await bench.put(G, {b"a": b"2"}) is Kept.ALONE


async def test_closing_without_a_coordinator_answers_who_waits() -> None:
    bench = Bench(patience=60.0)
    bench.store.go.clear()
    waiting = bench.put(G, {b"a": b"1"})
    await asyncio.sleep(0)
    await bench.mirror.close(0.01)
    assert waiting.result() is Kept.ALONE


@pytest.mark.parametrize("seed", range(20))
async def test_drawn_writes_end_up_in_the_store_in_their_order(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(homes=2, bytes=60)
    names = [HomeName(HomeKind.GROUP, f"g{n}") for n in range(4)]
    written: dict[HomeName, dict[bytes, bytes]] = {name: {} for name in names}
    answers = []
    for number in range(150):
        if rng.random() < 0.2:
            bench.store.error = rng.choice((None, None, AWAY))
            bench.store.forgets = rng.random() < 0.3
            (bench.store.go.set if rng.random() < 0.7 else bench.store.go.clear)()
        name, key = rng.choice(names), b"%d" % rng.randrange(4)
        value = None if rng.random() < 0.2 else b"%d" % number
        answers.append(bench.put(name, {key: value}))
        written[name].pop(key, None)
        if value is not None:
            written[name][key] = value
        await asyncio.sleep(rng.choice((0, 0, 0.001, 0.005)))
    bench.store.error, bench.store.forgets = None, False
    bench.store.go.set()
    assert set(await asyncio.gather(*answers)) <= {Kept.STORED, Kept.ALONE}
    await bench.drained()
    assert {name: bench.store.items.get(name, {}) for name in names} == written
