"""A sender and its receivers over a bad network, in simulated time."""

from __future__ import annotations

import random

import pytest
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import ORIGIN, Network

from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import PeerState, ReceiverState
from treecast.middleware.wire.segment_bodies import Expiry

BAD = Weather(loss=0.10, duplication=0.05, reordering=0.05)
SETTINGS = StreamSettings(mtu=1400)


def finish(network: Network, seconds: float = 60.0) -> None:
    network.sender.close(network.now)
    assert network.run_until(network.closed, seconds), {
        host: network.sender.row(host) for host in network.receivers
    }
    network.assert_accounts_close()


def test_eight_receivers_at_ten_percent_loss_with_reordering_and_duplication() -> None:
    network = Network(1, BAD, SETTINGS)
    hosts = range(2, 10)
    network.join_all(*hosts)
    sizes = random.Random(3)
    for _ in range(1000):
        for _ in range(10):
            network.publish(bytes(sizes.randrange(200)), records=1 + sizes.randrange(3))
        network.run(0.002)
    finish(network)
    for host in hosts:
        network.assert_exactly_once(host)
        row = network.sender.row(host)
        assert row.addressed == network.sender.end == row.live + row.repaired + row.replayed
        assert row.repaired > 0
    assert network.sender.counters.multicast_repairs > 0


def test_without_loss_nothing_is_repaired() -> None:
    network = Network(1, Weather(jitter=0.0), SETTINGS)
    network.join_all(2)
    for _ in range(100):
        network.publish(bytes(5000))
        network.run(0.001)
    finish(network)
    network.assert_exactly_once(2)
    assert network.sender.row(2).live == 100
    assert "REPAIR" not in network.sender.counters.sent


def test_the_last_message_is_recovered_by_heartbeats() -> None:
    network = Network(1, Weather(), SETTINGS)
    network.join_all(2)
    network.publish(b"first")
    network.run(0.5)
    network.weather.loss = 1.0
    network.publish(b"lost")
    network.run(0.001)
    network.weather.loss = 0.0
    network.run(2.0)
    network.assert_exactly_once(2)
    assert network.sender.row(2).repaired == 1


def test_large_messages_lose_parts_and_only_those_are_repaired() -> None:
    network = Network(5, Weather(loss=0.1), SETTINGS)
    network.join_all(2)
    for number in range(20):
        network.publish(bytes([number]) * 100_000)
        network.run(0.02)
    finish(network)
    network.assert_exactly_once(2)
    sent = network.sender.counters.sent
    assert 0 < sent["REPAIR"] < sent["DATA"] / 3


def test_a_receiver_joins_at_the_current_sequence() -> None:
    network = Network(2, BAD, SETTINGS)
    network.join_all(2)
    for _ in range(50):
        network.publish(b"before")
    network.run(1.0)
    late = network.join(3)
    assert network.run_until(lambda: late.state is ReceiverState.LIVE, 5)
    for _ in range(50):
        network.publish(b"after")
    finish(network)
    network.assert_exactly_once(2)
    network.assert_exactly_once(3, first=50)


def test_a_receiver_joins_from_the_beginning_and_is_replayed_to() -> None:
    settings = StreamSettings(retain_bytes=1 << 30, catch_up_after=100)
    network = Network(2, BAD, settings)
    network.join_all(2)
    for _ in range(2000):
        network.publish(b"before")
    network.run(3.0)
    network.join(3, Progress(0, 0))
    for _ in range(100):
        network.publish(b"meanwhile")
        network.run(0.002)
    finish(network)
    network.assert_exactly_once(3)
    row = network.sender.row(3)
    assert row.replayed > 1500


def test_a_host_that_was_cut_off_catches_up_while_others_see_nothing_of_it() -> None:
    settings = StreamSettings(catch_up_after=500, silent_after=2.0, report_idle=0.2)
    network = Network(4, Weather(loss=0.01), settings)
    network.join_all(2, 3)
    network.cut = {3}
    for _ in range(3000):
        network.publish(b"x" * 100)
        network.run(0.001)
    peer = network.sender.peers.get(3)
    assert peer is not None
    assert peer.state is PeerState.SILENT
    assert len(network.got[2]) > 2900
    network.cut = set()
    for _ in range(500):
        network.publish(b"y" * 100)
        network.run(0.001)
    finish(network)
    for host in (2, 3):
        network.assert_exactly_once(host)
    assert network.sender.row(3).replayed > 2000
    assert network.sender.row(2).replayed == 0


def test_a_dead_receiver_stalls_nobody_and_costs_bounded_memory() -> None:
    settings = StreamSettings(log_bytes=200_000, silent_after=1.0, report_idle=0.2)
    network = Network(6, Weather(loss=0.05), settings)
    network.join_all(2, 3)
    network.dead = {3}
    for _ in range(3000):
        network.publish(b"x" * 100)
        network.run(0.001)
    network.run(1.0)
    network.assert_exactly_once(2)
    assert network.most_log <= 200_000 + 400
    row = network.sender.row(3)
    assert row.balanced
    assert row.expired[Expiry.SIZE] > 1000
    network.sender.remove_receiver(3)
    finish(network)
    assert network.sender.row(3).expired.keys() == {Expiry.SIZE, Expiry.LEFT} or network.sender.row(3).closed
    assert len(network.sender.log) == 0


def test_a_host_that_comes_back_too_late_counts_what_it_missed() -> None:
    settings = StreamSettings(log_bytes=100_000, silent_after=1.0, report_idle=0.2)
    network = Network(6, Weather(loss=0.05), settings)
    network.join_all(2, 3)
    network.cut = {3}
    for _ in range(2000):
        network.publish(b"x" * 100, records=2)
        network.run(0.001)
    network.cut = set()
    finish(network)
    row = network.sender.row(3)
    assert row.addressed == 4000
    assert row.expired[Expiry.SIZE] + row.repaired + row.replayed + row.live == 4000
    assert row.expired[Expiry.SIZE] > 1000
    tail = [one for one in network.payloads if one >= row.expired[Expiry.SIZE]]
    assert network.got[3] == tail


def test_messages_whose_time_is_over_are_skipped_and_counted() -> None:
    network = Network(6, Weather(), SETTINGS)
    network.join_all(2)
    network.weather.loss = 1.0
    for _ in range(10):
        network.publish(b"short", expires=network.now + 0.2)
    network.publish(b"long")
    network.run(0.5)
    network.weather.loss = 0.0
    finish(network)
    assert network.got[2] == [10]
    assert network.sender.row(2).expired == {Expiry.TIME_TO_LIVE: 10}


def test_a_restarted_receiver_goes_on_where_it_was() -> None:
    network = Network(8, BAD, SETTINGS)
    network.join_all(2, 3)
    for number in range(1000):
        network.publish(b"x" * 50)
        network.run(0.001)
        if number % 100 == 50:
            network.restart(2)
    finish(network)
    network.assert_exactly_once(2)
    network.assert_exactly_once(3)


def test_a_receiver_that_forgot_everything_begins_anew_and_the_accounts_still_close() -> None:
    network = Network(8, Weather(), SETTINGS)
    network.join_all(2)
    for _ in range(10):
        network.publish(b"x")
    network.run(1.0)
    network.cut = {2}
    for _ in range(5):
        network.publish(b"x")
    network.run(0.5)
    network.cut = set()
    network.join(2)
    network.run(1.0)
    for _ in range(7):
        network.publish(b"x")
    finish(network)
    row = network.sender.row(2)
    assert (row.addressed, row.live + row.repaired, row.expired) == (22, 17, {Expiry.FORGOTTEN: 5})
    assert network.got[2] == [*range(10), *range(15, 22)]


def test_other_holders_repair_when_the_origin_is_gone() -> None:
    settings = StreamSettings(hold_bytes=1 << 20, orphaned_after=1.0, heartbeat_longest=0.4)
    network = Network(9, Weather(), settings)
    network.join_all(2, 3, 4)
    network.publish(b"all")
    network.run(6.0)  # the members are announced
    network.cut = {4}
    for _ in range(20):
        network.publish(b"not for 4")
    network.run(0.2)
    network.cut = set()
    network.dead = {ORIGIN}
    network.run(10.0)
    assert network.receivers[4].state is ReceiverState.ORPHANED
    network.assert_exactly_once(4)
    assert network.receivers[4].over(network.now)


def test_what_no_holder_has_is_given_up_and_counted() -> None:
    settings = StreamSettings(orphaned_after=1.0, heartbeat_longest=0.4, give_up_after=5.0)
    network = Network(9, Weather(), settings)
    network.join_all(2)
    network.weather.loss = 1.0
    network.publish(b"lost", records=3)
    network.run(0.005)
    network.weather.loss = 0.0
    network.publish(b"last")
    network.run(0.0011)
    network.dead = {ORIGIN}
    network.run(10.0)
    assert network.got[2] == [3]
    assert network.receivers[2].progress.totals.expired == {Expiry.ORIGIN_GONE: 3}


def test_the_rate_of_live_data_is_kept() -> None:
    settings = StreamSettings(rate=100_000.0, burst=5000, unsent_bytes=50_000)
    network = Network(9, Weather(), settings)
    network.join_all(2)
    taken = [network.publish(bytes(1000)) for _ in range(100)]
    assert sum(one is not None for one in taken) == 50
    network.run(0.2)
    assert 20 <= len(network.got[2]) <= 27  # 5,000 bytes at once, then 100 per millisecond
    finish(network)
    network.assert_exactly_once(2)


@pytest.mark.parametrize("seed", range(4))
def test_everything_at_once(seed: int) -> None:
    chance = random.Random(seed)
    settings = StreamSettings(catch_up_after=200, silent_after=1.0, report_idle=0.2, mtu=600)
    weather = Weather(loss=0.2, duplication=0.2, reordering=0.2)
    network = Network(seed, weather, settings, multicast=seed % 2 == 1)
    network.join_all(*range(2, 6))
    for number in range(1500):
        network.publish(chance.randbytes(chance.randrange(1500)), records=1 + chance.randrange(4))
        network.run(0.002)
        if number % 200 == 100:
            network.cut = {chance.randrange(2, 6)}
        if number % 200 == 180:
            network.cut = set()
        if number % 333 == 0:
            network.restart(chance.randrange(2, 6))
    network.cut = set()
    finish(network)
    for host in range(2, 6):
        network.assert_exactly_once(host)


def test_without_loss_everything_is_replayed_exactly_once() -> None:
    settings = StreamSettings(retain_bytes=1 << 30, catch_up_after=100)
    network = Network(2, Weather(delay=0.02, jitter=0.0), settings)
    network.join_all(2)
    for _ in range(1000):
        network.publish(b"x")
        network.run(0.001)
    network.run(1.0)
    network.join(3, Progress(0, 0))
    for _ in range(200):
        network.publish(b"y")
        network.run(0.001)
    finish(network)
    network.assert_exactly_once(3)
    row = network.sender.row(3)
    assert network.sender.counters.sent["REPLAY"] == row.replayed
    assert row.replayed >= 1000


def test_a_window_of_replay_that_is_lost_as_a_whole_is_sent_again() -> None:
    settings = StreamSettings(retain_bytes=1 << 30, catch_up_after=10, replay_window=1000)
    network = Network(2, Weather(), settings)
    network.join_all(2)
    for _ in range(100):
        network.publish(bytes(100))
    network.run(1.0)
    network.join(3, Progress(0, 0))
    assert network.run_until(lambda: len(network.sender.peers) == 2, 1)
    network.cut = {3}  # packets in flight to it are lost as well
    network.run(0.3)
    network.cut = set()
    assert network.receivers[3].next == 0
    assert network.run_until(lambda: network.receivers[3].next == 100, 10)


def test_a_replay_brings_everything_once() -> None:
    """A receiver near the end again does not ask for records that the replay is about to bring."""
    settings = StreamSettings(
        catch_up_after=3000,
        silent_after=2.0,
        report_idle=0.2,
        replay_window=100_000,
        report_bytes=25_000,
        repair_rate=2e6,
        repair_burst=1500,
    )
    network = Network(4, Weather(delay=0.005), settings)
    network.join_all(2)
    network.cut = {2}
    for _ in range(4000):
        network.publish(bytes(1000))
    network.run(3.0)
    network.cut = set()
    finish(network)
    network.assert_exactly_once(2)
    row = network.sender.row(2)
    assert (row.replayed, row.repaired) == (4000, 0)  # wherever the receiver becomes live again
    assert network.sender.counters.sent["REPLAY"] < 4200
    assert "REPAIR" not in network.sender.counters.sent
    assert network.receivers[2].counters.sent.get("NAK", 0) < 5
