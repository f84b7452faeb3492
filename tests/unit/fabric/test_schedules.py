"""Schedules drawn by hypothesis: everything arrives once and in order, or is counted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network

from treecast.middleware.fabric.core.settings import StreamSettings

HOSTS = (2, 3, 4)
Step = Callable[[Network], None]


def publish(count: int, size: int, records: int, to_live: float) -> Step:
    def step(network: Network) -> None:
        for _ in range(count):
            network.publish(bytes(size), records, expires=network.now + to_live)

    return step


def let(seconds: float) -> Step:
    return lambda network: network.run(seconds)


def cut(hosts: set[int]) -> Step:
    def step(network: Network) -> None:
        network.cut = hosts

    return step


def weather(loss: float, duplication: float, reordering: float) -> Step:
    def step(network: Network) -> None:
        network.weather = Weather(loss, duplication, reordering)

    return step


def restart(host: int) -> Step:
    return lambda network: network.restart(host)


LONG = 1e9
PUBLISH = st.builds(
    publish, st.integers(1, 60), st.sampled_from([0, 10, 700, 3000]), st.integers(1, 5), st.just(LONG)
)
EXPIRING = st.builds(publish, st.integers(1, 20), st.just(10), st.integers(1, 5), st.floats(0.001, 0.5))
CHANCE = st.floats(0, 0.4)
OTHERS = [
    st.builds(let, st.floats(0.0001, 0.05)),
    st.builds(let, st.floats(0.05, 2.0)),
    st.builds(cut, st.sets(st.sampled_from(HOSTS), max_size=2)),
    st.builds(weather, CHANCE, CHANCE, CHANCE),
    st.builds(restart, st.sampled_from(HOSTS)),
]


def play(steps: list[Step], seed: int, multicast: bool, own: StreamSettings) -> Network:
    network = Network(seed, Weather(), own, multicast=multicast)
    network.join_all(*HOSTS)
    for step in steps:
        step(network)
    network.cut = set()
    network.weather = Weather()
    network.sender.close(network.now)
    assert network.run_until(network.settled, 120)
    network.assert_accounts_close()
    return network


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(PUBLISH, *OTHERS), max_size=12), st.integers(0, 99), st.booleans())
def test_everything_arrives_once_and_in_order(steps: list[Step], seed: int, multicast: bool) -> None:
    network = play(
        steps, seed, multicast, StreamSettings(catch_up_after=50, silent_after=0.5, report_idle=0.1, mtu=600)
    )
    for host in HOSTS:
        network.assert_exactly_once(host)
        row = network.sender.row(host)
        assert row.addressed == network.sender.end == row.live + row.repaired + row.replayed


def test_the_end_is_not_told_before_what_comes_before_it_is_sent() -> None:
    """Two receivers miss what was sent, and hold the rest up until they have it. If they are told the end,
    they count what was never sent as missed, wait for a replay, and the origin waits for them."""
    own = StreamSettings(catch_up_after=50, silent_after=0.5, report_idle=0.1, mtu=600)
    steps = [publish(26, 3000, 1, LONG), cut({2, 3}), let(0.03125), publish(5, 0, 5, LONG)]
    network = play(steps, 0, False, own)
    for host in HOSTS:
        network.assert_exactly_once(host)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(PUBLISH, EXPIRING, *OTHERS), max_size=12), st.integers(0, 99), st.booleans())
def test_what_does_not_arrive_is_counted_to_the_record(steps: list[Step], seed: int, multicast: bool) -> None:
    own = StreamSettings(
        catch_up_after=50, silent_after=0.5, report_idle=0.1, mtu=600, log_bytes=20_000, log_age=1.0
    )
    network = play(steps, seed, multicast, own)
    ends = [*sorted(network.payloads), network.sender.end]
    records = {one: following - one for one, following in pairwise(ends)}
    for host in HOSTS:
        got = network.got[host]
        assert got == sorted(set(got))  # in order, nothing twice
        row = network.sender.row(host)
        assert row.addressed == network.sender.end
        assert sum(records[one] for one in got) == row.live + row.repaired + row.replayed
        assert sum(row.expired.values()) == row.addressed - sum(records[one] for one in got)
