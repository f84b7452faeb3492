"""A host's or neighbour's requests reach a switch late, twice, in another order or not at all."""

from __future__ import annotations

import heapq
import random
from itertools import count

import pytest

from treecast.middleware.control.stare_switch.embedded import BETWEEN_SWITCHES, EmbeddedController, Place
from treecast.middleware.fabric.stare.recent import Recent
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.subscriptions import Subscriptions, SubState
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.stare import StareHeader, StareKind
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame

PORT = 3
STATE = 300
OTHERS = 1000  # and above: their requests use up numbers, too
MAC, ADDRESS = bytes([2, 0, 0, 0, 0, 1]), bytes([10, 0, 0, 1])


class Table:
    """A `SwitchDriver`: the controller's writes, and the headers that it sent to `PORT`."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.sent: list[StareHeader] = []

    def write(self, state: int, ports: int) -> None:
        self.held[state] = ports

    def send(self, ports: int, frame: bytes) -> None:
        if ports == 1 << PORT:
            self.sent.append(decode_frame(frame).header)


def fresh_switch(*, tree: bool) -> tuple[EmbeddedController, Table]:
    """Returns a switch without state; `PORT` leads to a neighbour or to a host."""
    place, table = Place(frozenset({PORT} if tree else ()), MAC, ADDRESS), Table()
    return EmbeddedController(BETWEEN_SWITCHES, random.Random(2), place, table), table


class Pair:
    """The asking side (a host, or the neighbour's controller for its link) and the next switch's
    controller."""

    def __init__(self, asks: StareSettings, *, tree: bool) -> None:
        self.asking = Subscriptions(asks, random.Random(1))
        self.switch, self.table = fresh_switch(tree=tree)
        self._next = OTHERS

    def taken(self) -> list[StareHeader]:
        """Returns the requests to be sent."""
        found = list(self.asking.requests)
        self.asking.requests.clear()
        self.asking.changes.clear()
        return found

    def arrive(self, header: StareHeader, now: float) -> list[StareHeader]:
        """Delivers a request to the switch; returns its replies."""
        frame = encode_frame(StareFrame(header, MAC, ADDRESS))
        self.switch.packet_in(PORT.to_bytes(2) + frame, now)
        found = [one for one in self.table.sent if one.kind is StareKind.SUB_ACK]
        self.table.sent.clear()
        return found

    def exchange(self, now: float) -> list[StareHeader]:
        """Delivers all requests at once with their replies; returns the requests."""
        requests = self.taken()
        for header in requests:
            for ack in self.arrive(header, now):
                self.asking.acknowledged(ack, now)
        return requests

    def others(self, now: float, many: int) -> None:
        """Makes this many requests for other states, which all arrive at once."""
        before = self.taken()
        for state in range(self._next, self._next + many):
            self.asking.want(state, now)
        self._next += many
        for header in self.taken():
            ack = StareHeader(StareKind.SUB_ACK, header.state, 0, header.update)
            self.asking.acknowledged(ack, now)
        self.asking.requests += before

    @property
    def holds(self) -> bool:
        return bool(self.table.held.get(STATE, 0) >> PORT & 1)


KINDS = pytest.mark.parametrize(
    ("settings", "tree"), [(BETWEEN_SWITCHES, True), (StareSettings(), False)], ids=["neighbour", "host"]
)


@KINDS
@pytest.mark.parametrize("between", [0, 63, 64, 200, 8191, 8192, 16_383, 16_384])
def test_a_late_request_is_known_however_many_of_other_states_came_since(
    settings: StareSettings, tree: bool, between: int
) -> None:
    """Copies of all earlier requests come after the last, with that many new requests before it."""
    for wanted in (True, False):
        pair = Pair(settings, tree=tree)
        earlier: list[StareHeader] = []
        for does in (True, False, True, False)[: 3 if wanted else 4]:
            late = earlier
            pair.others(0.1, between if len(late) == 2 else 0)
            (pair.asking.want if does else pair.asking.unwant)(STATE, 0.1)
            earlier = late + pair.exchange(0.1)
        assert pair.holds == wanted
        for header in late:
            assert not pair.arrive(header, 0.12)
            assert pair.holds == wanted
        assert pair.switch.refused == {"STALE": len(late)}


class Way:
    """Loses a tenth, doubles a tenth, delays a third by up to `late` seconds."""

    def __init__(self, rng: random.Random, late: float) -> None:
        self._rng = rng
        self._late = late
        self._heap: list[tuple[float, int, StareHeader]] = []
        self._count = count()

    def put(self, header: StareHeader, now: float) -> None:
        rng = self._rng
        if rng.random() < 0.1:
            return
        for _ in range(2 if rng.random() < 0.1 else 1):
            at = now + 0.001 + (rng.random() * self._late if rng.random() < 0.33 else 0.0)
            heapq.heappush(self._heap, (at, next(self._count), header))

    @property
    def next(self) -> float:
        return self._heap[0][0] if self._heap else NEVER

    def take(self, now: float) -> list[StareHeader]:
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[2])
        return found


def until(pair: Pair, there: Way, back: Way, now: float, end: float) -> None:
    """Advances time from event to event."""
    while True:
        for header in pair.taken():
            there.put(header, now)
        now = max(min(there.next, back.next, pair.asking.next_deadline()), now)
        if now > end:
            return
        for header in there.take(now):
            for ack in pair.arrive(header, now):
                back.put(ack, now)
        for header in back.take(now):
            pair.asking.acknowledged(header, now)
        pair.asking.work(now)


@KINDS
@pytest.mark.parametrize("late", [0.02, 2.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_held_is_what_is_wanted_once_the_links_are_quiet(
    settings: StareSettings, tree: bool, late: float, seed: int
) -> None:
    """A few states change all the time, among requests for many others; nobody refreshes."""
    rng = random.Random(seed)
    pair = Pair(StareSettings(resend_tries=settings.resend_tries, refresh=0.0), tree=tree)
    there, back = Way(rng, late), Way(rng, late)
    now = 0.0
    for _ in range(300):
        state = rng.randrange(STATE, STATE + 6)
        (pair.asking.want if rng.random() < 0.5 else pair.asking.unwant)(state, now)
        pair.others(now, rng.choice((0, 5, 300)))
        pause = rng.choice((0.001, 0.01, 0.3))
        until(pair, there, back, now, now + pause)
        now += pause
    until(pair, there, back, now, now + 120.0)
    assert not pair.asking.waiting
    wanted = {s for s in range(STATE, STATE + 6) if pair.asking.state(s) is not None}
    held = {s for s in range(STATE, STATE + 6) if pair.table.held.get(s, 0) >> PORT & 1}
    assert held == wanted


def test_a_neighbour_repeats_all_in_rounds_over_links_that_lose() -> None:
    """A restarted controller hears everything again within a round."""
    rng = random.Random(5)
    pair = Pair(BETWEEN_SWITCHES, tree=True)
    there, back = Way(rng, 0.02), Way(rng, 0.02)
    states = range(STATE, STATE + 500)
    for state in states:
        pair.asking.want(state, 0.0)
    until(pair, there, back, 0.0, 30.0)
    assert set(pair.table.held) == set(states)
    assert not pair.asking.waiting
    pair.switch, pair.table = fresh_switch(tree=True)
    until(pair, there, back, 30.0, BETWEEN_SWITCHES.round - 1)
    assert not pair.table.held
    half = BETWEEN_SWITCHES.round * 1.5
    until(pair, there, back, BETWEEN_SWITCHES.round - 1, half)
    assert SubState.REGISTERING in {pair.asking.state(state) for state in states}
    assert not pair.asking.waiting  # except for repetitions
    assert 200 < len(pair.table.held) < 350
    until(pair, there, back, half, BETWEEN_SWITCHES.round * 2 + 30)
    assert set(pair.table.held) == set(states)


def test_what_a_neighbour_left_that_repeats_nothing_is_over_and_nothing_else() -> None:
    rng = random.Random(6)
    pair = Pair(BETWEEN_SWITCHES, tree=True)
    there, back = Way(rng, 0.02), Way(rng, 0.02)
    for state in range(STATE, STATE + 50):
        pair.asking.want(state, 0.0)
    now = 0.0
    for _ in range(10):  # while it asks
        until(pair, there, back, now, now + 500.0)
        now += 500.0
        pair.switch.work(now)
    assert all(pair.table.held[state] for state in range(STATE, STATE + 50))
    assert pair.switch.expired == 0
    for _ in range(5):
        now += 500.0
        pair.switch.work(now)
    assert pair.switch.expired == 50
    assert not any(pair.table.held.values())


def test_numbers_are_kept_for_a_while_and_not_without_bound() -> None:
    recent = Recent(10.0, most=3)
    for key in range(3):
        recent.put(key, key + 10, key * 8.0)  # 0 and 1 are of the first generation
    assert [recent.get(key, 19.9) for key in range(3)] == [10, 11, 12]
    assert [recent.get(key, 26.0) for key in range(3)] == [None, None, 12]
    assert recent.get(2, 60.0) is None
    for key in range(100):
        recent.put(key, key, 60.0)
        assert recent.get(key, 60.0) == key
        assert len(recent) <= 6
