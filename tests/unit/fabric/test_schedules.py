"""Schedules drawn by hypothesis: everything arrives once and in order, or is counted."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import replay
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network

from treecast.middleware.fabric.core.settings import StreamSettings

HOSTS = (2, 3, 4)
LOSSLESS = StreamSettings(catch_up_after=50, silent_after=0.5, report_idle=0.1, mtu=600)
FORGETFUL = StreamSettings(
    catch_up_after=50, silent_after=0.5, report_idle=0.1, mtu=600, log_bytes=20_000, log_age=1.0
)


class Stream:
    """One stream to three hosts. `lossless`: its log keeps all; else it forgets, and messages expire."""

    def __init__(self, seed: int, multicast: bool, lossless: bool) -> None:
        self.lossless = lossless
        own = LOSSLESS if lossless else FORGETFUL
        self.network = Network(seed, Weather(), own, multicast=multicast)
        self.network.join_all(*HOSTS)

    def step(self, what: str, *arguments: Any) -> None:
        getattr(self, what)(*arguments)

    def publish(self, count: int, size: int, records: int, to_live: float) -> None:
        for _ in range(count):
            self.network.publish(bytes(size), records, expires=self.network.now + to_live)

    def let(self, seconds: float) -> None:
        self.network.run(seconds)

    def cut(self, hosts: list[int]) -> None:
        self.network.cut = set(hosts)

    def weather(self, loss: float, duplication: float, reordering: float) -> None:
        self.network.weather = Weather(loss, duplication, reordering)

    def restart(self, host: int) -> None:
        self.network.restart(host)

    def said(self) -> object:
        return self.network.now, self.network.got, self.network.sent_by

    def close(self) -> None:
        """It is in memory."""

    def end(self) -> None:
        """Everything has arrived once and in order, or is counted to the record."""
        network = self.network
        network.cut = set()
        network.weather = Weather()
        network.sender.close(network.now)
        assert network.run_until(network.settled, 120)
        network.assert_accounts_close()
        for host in HOSTS:
            (self._arrived if self.lossless else self._counted)(host)

    def _arrived(self, host: int) -> None:
        self.network.assert_exactly_once(host)
        row = self.network.sender.row(host)
        assert row.addressed == self.network.sender.end == row.live + row.repaired + row.replayed

    def _counted(self, host: int) -> None:
        network = self.network
        ends = [*sorted(network.payloads), network.sender.end]
        records = {one: following - one for one, following in pairwise(ends)}
        got, row = network.got[host], network.sender.row(host)
        assert got == sorted(set(got))  # in order, nothing twice
        assert row.addressed == network.sender.end
        assert sum(records[one] for one in got) == row.live + row.repaired + row.replayed
        assert sum(row.expired.values()) == row.addressed - sum(records[one] for one in got)


LONG = 1e9
CHANCE = st.floats(0, 0.4)
PUBLISH = st.tuples(
    st.just("publish"),
    st.integers(1, 60),
    st.sampled_from([0, 10, 700, 3000]),
    st.integers(1, 5),
    st.just(LONG),
)
EXPIRING = st.tuples(
    st.just("publish"), st.integers(1, 20), st.just(10), st.integers(1, 5), st.floats(0.001, 0.5)
)
OTHERS = [
    st.tuples(st.just("let"), st.floats(0.0001, 0.05)),
    st.tuples(st.just("let"), st.floats(0.05, 2.0)),
    st.tuples(st.just("cut"), st.lists(st.sampled_from(HOSTS), max_size=2, unique=True)),
    st.tuples(st.just("weather"), CHANCE, CHANCE, CHANCE),
    st.tuples(st.just("restart"), st.sampled_from(HOSTS)),
]
Steps = list[tuple[Any, ...]]


def play(steps: Steps, seed: int, multicast: bool, lossless: bool) -> None:
    given = {"seed": seed, "multicast": multicast, "lossless": lossless}
    replay.play(replay.Log("stream", given, [*steps]))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(PUBLISH, *OTHERS), max_size=12), st.integers(0, 99), st.booleans())
def test_everything_arrives_once_and_in_order(steps: Steps, seed: int, multicast: bool) -> None:
    play(steps, seed, multicast, lossless=True)


def test_the_end_is_not_told_before_what_comes_before_it_is_sent() -> None:
    """Two receivers miss what was sent, and hold the rest up until they have it. If they are told the end,
    they count what was never sent as missed, wait for a replay, and the origin waits for them."""
    steps: Steps = [("publish", 26, 3000, 1, LONG), ("cut", [2, 3]), ("let", 0.03125)]
    play([*steps, ("publish", 5, 0, 5, LONG)], 0, False, lossless=True)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(PUBLISH, EXPIRING, *OTHERS), max_size=12), st.integers(0, 99), st.booleans())
def test_what_does_not_arrive_is_counted_to_the_record(steps: Steps, seed: int, multicast: bool) -> None:
    play(steps, seed, multicast, lossless=False)
