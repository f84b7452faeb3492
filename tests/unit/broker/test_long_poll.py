"""The long poll of a fetch, on a loop whose time only the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from treecast.middleware.broker.long_poll import TICK, FetchWait, LongPolls
from treecast.middleware.broker.values import Isolation


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until `pass_time`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.turns = 0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        self.turns += 1
        super()._run_once()  # type: ignore[misc]

    def settle(self) -> None:
        """Runs everything that is ready, and no timer that is not due."""
        for _ in range(3):
            self.call_soon(self.stop)
            self.run_forever()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.settle()


class Partition:
    """Records its watchers."""

    def __init__(self) -> None:
        self.waiters: dict[FetchWait, Isolation] = {}

    def watch(self, waiter: FetchWait, isolation: Isolation) -> None:
        self.waiters[waiter] = isolation

    def unwatch(self, waiter: FetchWait) -> None:
        self.waiters.pop(waiter, None)

    def grow(self, size: int) -> None:
        for waiter in tuple(self.waiters):
            waiter.grown(size)


class Bench:
    def __init__(self, loop: StillLoop) -> None:
        self.loop = loop
        self.polls = LongPolls(loop)
        self.partitions = [Partition(), Partition(), Partition()]
        self.done = 0

    def wait(
        self, missing: int, timeout: float = 10.0, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> FetchWait:
        return FetchWait(self.polls, self.partitions, isolation, missing, timeout, self._count)  # type: ignore[arg-type]

    def _count(self) -> None:
        self.done += 1

    @property
    def watched(self) -> int:
        return sum(len(partition.waiters) for partition in self.partitions)


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = StillLoop()
    yield Bench(loop)
    loop.close()


def test_bytes_add_up_over_partitions(bench: Bench) -> None:
    wait = bench.wait(100)
    bench.partitions[0].grow(60)
    bench.loop.settle()
    assert (bench.done, wait.over) == (0, False)
    bench.partitions[2].grow(40)
    assert (bench.done, wait.over) == (0, True)  # not from within the append
    bench.loop.settle()
    assert (bench.done, bench.watched) == (1, 0)


def test_what_is_foreseen_ends_a_wait_that_it_is_enough_for_and_is_not_counted(bench: Bench) -> None:
    wait = bench.wait(100)
    wait.foreseen(60)
    bench.partitions[0].grow(60)
    assert not wait.over
    wait.foreseen(39)
    assert not wait.over
    wait.foreseen(40)
    assert (bench.done, wait.over) == (0, True)
    bench.loop.settle()
    assert (bench.done, bench.watched) == (1, 0)


def test_holds_lie_in_each_other(bench: Bench) -> None:
    polls = bench.polls
    bench.wait(1)
    polls.hold()
    polls.hold()
    bench.partitions[0].grow(1)
    polls.let_go()
    assert bench.done == 0
    polls.let_go()
    assert bench.done == 1  # without a pass of the loop
    bench.wait(1)
    bench.partitions[0].grow(1)
    assert bench.done == 1
    bench.loop.settle()
    assert bench.done == 2


def test_the_deadline_ends_it(bench: Bench) -> None:
    bench.wait(100, timeout=5.0)
    bench.partitions[0].grow(99)
    bench.loop.pass_time(4.9)
    assert bench.done == 0
    bench.loop.pass_time(0.2)
    assert (bench.done, bench.watched) == (1, 0)


def test_a_deleted_partition_ends_it(bench: Bench) -> None:
    wait = bench.wait(100)
    wait.gone()
    bench.loop.settle()
    assert (bench.done, bench.watched) == (1, 0)


@pytest.mark.parametrize(
    "last",
    [
        lambda bench, wait: bench.partitions[0].grow(100),
        lambda bench, wait: wait.gone(),
        lambda bench, wait: wait.grown(1000),
        lambda bench, wait: bench.loop.pass_time(60.0),
    ],
)
def test_it_ends_once(bench: Bench, last: Callable[[Bench, FetchWait], None]) -> None:
    wait = bench.wait(100)
    bench.partitions[0].grow(100)
    last(bench, wait)
    bench.loop.pass_time(60.0)
    assert bench.done == 1


@pytest.mark.parametrize("grown", [0, 99, 100])
def test_a_cancelled_wait_says_nothing(bench: Bench, grown: int) -> None:
    wait = bench.wait(100)
    bench.partitions[0].grow(grown)
    wait.cancel()
    bench.partitions[0].grow(100)
    bench.loop.pass_time(60.0)
    assert (bench.done, bench.watched, wait.over) == (0, 0, True)


def test_a_bound_that_moved_ends_a_committed_wait(bench: Bench) -> None:
    bench.wait(100, isolation=Isolation.READ_COMMITTED)
    assert {i for p in bench.partitions for i in p.waiters.values()} == {Isolation.READ_COMMITTED}
    bench.partitions[1].grow(0)
    bench.loop.settle()
    assert bench.done == 1


def test_the_deadlines_of_many(bench: Bench) -> None:
    """Each ends at its own time, at most one tick late, in whatever order they began."""
    timeouts = [5.0, 1.0, 9.0, 1.0, 0.0, 3.5, 9.004]
    waits = [bench.wait(100, timeout=timeout) for timeout in timeouts]
    waits[5].cancel()
    for now in (0.02, 0.99, 1.02, 3.52, 4.99, 5.02, 8.99, 9.02):
        bench.loop.pass_time(now - bench.loop.now)
        for timeout, wait in zip(timeouts, waits, strict=True):
            assert wait.over == (timeout + TICK <= now or wait is waits[5]), (timeout, now)
    assert (bench.done, bench.watched) == (6, 0)


def test_no_timer_runs_for_nobody(bench: Bench) -> None:
    for _ in range(100):
        bench.wait(1, timeout=5.0)
        bench.partitions[0].grow(1)
        bench.loop.settle()
    bench.loop.pass_time(5.1)
    assert bench.done == 100
    assert not bench.loop._scheduled  # type: ignore[attr-defined]


def test_one_timer_runs_for_all(bench: Bench) -> None:
    for number in range(50):
        bench.wait(1, timeout=5.0 + number)
    assert len(bench.loop._scheduled) == 1  # type: ignore[attr-defined]


def test_while_a_chunk_is_served_nobody_is_told(bench: Bench) -> None:
    bench.polls.hold()
    first, second = bench.wait(1), bench.wait(1)
    bench.partitions[0].grow(1)
    assert (first.over, second.over) == (True, True)
    bench.loop.settle()
    assert bench.done == 0
    second.cancel()
    before = bench.loop.turns
    bench.polls.let_go()
    assert (bench.done, bench.loop.turns) == (1, before)
    bench.wait(1)
    bench.partitions[0].grow(1)
    assert bench.done == 1  # not from within the append
    bench.loop.settle()
    assert bench.done == 2


def test_one_that_fails_leaves_the_others(bench: Bench) -> None:
    failures: list[object] = []
    bench.loop.set_exception_handler(lambda loop, context: failures.append(context["exception"]))

    def fail() -> None:
        raise ValueError

    FetchWait(bench.polls, bench.partitions, Isolation.READ_UNCOMMITTED, 1, 1.0, fail)  # type: ignore[arg-type]
    bench.wait(1)
    bench.partitions[0].grow(1)
    bench.loop.settle()
    assert (bench.done, [type(failure) for failure in failures]) == (1, [ValueError])


def test_waiting_costs_no_turns_of_the_loop(bench: Bench) -> None:
    bench.wait(100)
    before = bench.loop.turns
    bench.loop.settle()
    idle = bench.loop.turns - before
    for _ in range(50):
        bench.partitions[0].grow(1)
    before = bench.loop.turns
    bench.loop.settle()
    assert (bench.loop.turns - before, bench.done) == (idle, 0)
    assert not bench.loop._ready  # type: ignore[attr-defined]
