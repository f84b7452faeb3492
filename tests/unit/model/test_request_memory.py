"""The budget of unfinished requests: it is never exceeded by much, and small requests always get on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.model.request_memory import (
    FEW,
    LEAST,
    PATIENCE,
    STALL,
    Holding,
    RequestMemory,
)

MIB = 1 << 20


class Client:
    """A connection that sends one request, and is read only while it does not wait."""

    def __init__(self, memory: RequestMemory) -> None:
        self.holding = Holding(memory, self)
        self.waits = False
        self.gone = False
        self.had = 0

    def wait_for_memory(self, waits: bool) -> None:
        self.waits = waits

    def abort(self) -> None:
        self.gone = True

    def send(self, size: int, now: float = 0.0) -> bool:
        """Sends until the request has `size` bytes. Returns whether the next bytes are read too."""
        got, self.had = size - self.had, size
        return self.holding.hold(size, got, now)


def test_a_request_that_fits_is_read_on_and_given_back_when_it_is_complete() -> None:
    memory = RequestMemory(100)
    client = Client(memory)
    assert client.send(60)
    assert client.send(100)
    assert (memory.held, len(memory)) == (100, 1)
    assert client.holding.hold(0, 5, 0.0)
    assert (memory.held, len(memory)) == (0, 0)


def test_a_large_request_waits_and_a_small_one_does_not() -> None:
    memory = RequestMemory(100)
    first, large, small = (Client(memory) for _ in range(3))
    assert first.send(90)
    assert large.send(10)
    assert not large.send(60)
    assert large.waits
    assert memory.held == 100  # the wish does not count
    assert small.send(20)
    first.holding.left()
    assert not large.waits
    assert memory.held == 80


def test_the_first_request_always_gets_on() -> None:
    memory = RequestMemory(100)
    first, second = Client(memory), Client(memory)
    assert first.send(60)
    assert second.send(40)
    assert first.send(300)
    assert not second.send(60)
    first.holding.hold(0, 0, 0.0)
    assert not second.waits


def test_beyond_the_hard_limit_the_largest_goes() -> None:
    memory = RequestMemory(100)
    clients = [Client(memory) for _ in range(12)]
    for count, client in enumerate(clients, 1):
        assert client.send(100 // count)
        assert memory.held <= memory.hard
    assert memory.dropped
    assert [one.gone for one in clients[1:4]] == [True, True, True]
    assert not clients[0].gone


def test_a_silent_one_goes_when_another_waits() -> None:
    memory = RequestMemory(MIB)
    silent, waiting = Client(memory), Client(memory)
    assert silent.send(MIB)
    assert not waiting.send(MIB)
    memory.tick(STALL / 2)
    assert not silent.gone
    memory.tick(STALL)  # it got a MiB in that time
    memory.tick(2 * STALL)
    assert silent.gone
    assert not waiting.waits
    memory.tick(2.5 * STALL)
    memory.tick(3 * STALL)
    assert not waiting.gone  # it waited itself until now


def test_a_slow_one_goes_only_when_another_waits() -> None:
    memory = RequestMemory(10 * MIB)
    slow, other = Client(memory), Client(memory)
    slow.send(9 * MIB)
    for turn in range(1, 20):
        assert slow.holding.hold(9 * MIB, LEAST // 2, turn * STALL)
        memory.tick(turn * STALL)
    assert not slow.gone
    assert not other.send(8 * MIB, 20 * STALL)
    for turn in range(20, 60):
        slow.holding.hold(9 * MIB, LEAST // 2, turn * STALL)
        memory.tick(turn * STALL)
    assert slow.gone
    assert not other.waits


def test_one_that_never_ends_goes_at_last() -> None:
    memory = RequestMemory(MIB)
    client, slow = Client(memory), Client(memory)
    client.send(10)
    slow.send(10)
    for turn in range(1, 4):
        slow.holding.hold(10, FEW, turn * PATIENCE - 1)
        memory.tick(turn * PATIENCE)
    assert client.gone
    assert not slow.gone
    assert memory.held == 10


def test_after_log_in_another_budget_counts() -> None:
    before, memory = RequestMemory(100), RequestMemory(1000)
    first, client = Client(before), Client(before)
    assert first.send(90)
    assert not client.send(80)
    client.holding.move(memory)
    assert not client.waits
    assert client.send(80)
    assert (before.held, memory.held) == (90, 80)


@given(st.data())
def test_memory_is_bounded_and_all_of_it_comes_back(data: st.DataObject) -> None:
    most, largest = 1000, 800
    memory = RequestMemory(most)
    clients = [Client(memory) for _ in range(8)]
    now = 0.0
    for _ in range(data.draw(st.integers(1, 60))):
        now += data.draw(st.sampled_from([0.0, 0.1, STALL]))
        client = data.draw(st.sampled_from(clients))
        if client.gone:
            continue
        step = data.draw(st.sampled_from(["grow", "end", "leave", "tick"]))
        if step == "grow" and not client.waits:
            client.send(min(client.had + data.draw(st.integers(1, largest)), largest), now)
        elif step == "end" and not client.waits:
            client.holding.hold(0, 1, now)
            client.had = 0
        elif step == "leave":
            client.holding.left()
            client.gone = True
        elif step == "tick":
            memory.tick(now)
        open_ = [one for one in clients if not one.gone]
        assert memory.held == sum(one.holding.size for one in open_) <= memory.hard + largest
        assert any(not one.waits for one in open_) or not open_
    for client in clients:
        client.holding.left()
    assert (memory.held, len(memory), memory.short) == (0, 0, False)
