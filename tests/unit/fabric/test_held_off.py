"""A host leaves the group if it is slow or quiet. It gets no replay for a while, but before the log
drops what it lacks."""

from __future__ import annotations

import pytest
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network
from tests.unit.fabric.slow_receivers import DELAYS, RATES, Case, burst

from treecast.middleware.fabric.core.settings import StreamSettings

MIB = 1 << 20
PAYLOAD = bytes(10_000)
CUT = 0.35  # seconds: longer than `quiet_after`


def flow(log_bytes: int, cuts: int) -> tuple[Network, int]:
    """Sends 30 MB/s in batches that take several turns to three hosts for 2.5 s, one of them cut off `cuts`
    times. Returns (the network, records).
    """
    settings = StreamSettings(log_bytes=log_bytes, unsent_bytes=1 << 30)
    net = Network(3, Weather(rate=100e6), settings)
    net.join_all(2, 3, 4)
    begun, count = net.now, 0
    for turn in range(500):
        at = turn * 0.005
        cut = any(0.5 + 0.8 * one <= at < 0.5 + 0.8 * one + CUT for one in range(cuts))
        net.cut = {4} if cut else set()
        for _ in range(15):
            net.publish(PAYLOAD)
            count += 1
        net.run(max(0.0, begun + at + 0.005 - net.now))
    net.cut = set()
    net.run(10.0)
    return net, count


@pytest.mark.parametrize("cuts", [1, 2])
def test_a_bounded_log_loses_nothing_of_who_is_cut_off_for_a_moment(cuts: int) -> None:
    net, count = flow(16 * MIB, cuts)
    for host in (2, 3, 4):
        assert len(net.got[host]) == count
        net.assert_exactly_once(host)
    peer = net.sender.peers.get(4)
    assert peer is not None
    assert peer.left == cuts


def test_its_replay_begins_when_it_lacks_a_quarter_of_the_log() -> None:
    """It would be held off for 5 s, which a log without a bound allows."""
    settings = StreamSettings(log_bytes=16 * MIB, unsent_bytes=1 << 30, slow_out=5.0)
    net = Network(3, Weather(rate=100e6), settings)
    net.join_all(2, 3, 4)
    net.cut = {4}
    while (peer := net.sender.peers.get(4)) is not None and not peer.held_off:
        net.publish(PAYLOAD)
        net.run(0.002)
    net.cut = set()
    assert peer is not None
    left, was = net.now, net.sender.live.bytes
    while peer.held_off:
        net.publish(PAYLOAD)
        net.run(0.001)
    assert net.now < left + 1.0
    assert net.sender.live.bytes - was <= 4 * MIB + len(PAYLOAD)


def left_of(hosts: set[int], seconds: float) -> tuple[Network, set[int]]:
    """Cuts hosts of 2, 3 and 4 off during a stream of 100 KB/s. Returns (the network, those that left)."""
    net = Network(5, Weather(), StreamSettings(log_bytes=64 << 20))
    net.join_all(2, 3, 4)
    for turn in range(int((1.0 + seconds) / 0.01)):
        net.cut = hosts if turn >= 100 else set()
        net.publish(bytes(1000))
        net.run(0.01)
    return net, {peer.host for peer in net.sender.peers if peer.left}


def test_most_hosts_that_are_quiet_leave_if_another_reports() -> None:
    net, left = left_of({3, 4}, 0.8)
    assert left == {3, 4}
    assert len(net.got[2]) >= len(net.payloads) - 1


def test_none_leaves_at_once_if_most_are_quiet() -> None:
    _, left = left_of({3, 4}, 0.45)
    assert not left


def test_one_that_is_quiet_leaves_sooner() -> None:
    _, left = left_of({3}, 0.45)
    assert left == {3}


def test_none_leaves_if_all_are_quiet() -> None:
    net, left = left_of({2, 3, 4}, 3.0)
    assert not left
    net.cut = set()
    net.run(5.0)
    assert all(len(net.got[host]) == len(net.payloads) for host in (2, 3, 4))


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("share", [0.95, 0.6])
def test_one_that_is_a_little_slower_sets_the_pace_and_stays(rate: float, delay: float, share: float) -> None:
    """Data waits in its queue all the time, and hardly in those of the others."""
    found = burst(Case(4, rate, delay, share))
    assert not found.left
    slower = found.net.sender.live.setter
    assert slower is not None
    assert slower.host == 5


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("rate", RATES)
def test_one_with_a_tenth_of_the_rate_leaves_however_long_the_path(rate: float, delay: float) -> None:
    found = burst(Case(4, rate, delay, 0.1))
    assert found.left
    # The others wait for it for half a second; over a path of 10 ms their own window opens afterwards.
    assert 12 / found.rate < 12e6 / rate + 1.0
    net = found.net
    assert net.run_until(lambda: net.receivers[5].next == net.sender.end, 120)
    net.assert_exactly_once(5)
