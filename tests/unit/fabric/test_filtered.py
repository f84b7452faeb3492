"""Messages that are for some receivers of a stream: others are told that they were filtered."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import ORIGIN, Network

from treecast.middleware.fabric.core.outgoing import Outgoing
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import PeerState
from treecast.middleware.fabric.core.streams import Served, Witnesses

SETTINGS = StreamSettings()
READERS = (2, 3, 4)


class FilteredNetwork(Network):
    """A network that brings a message to the receivers it is for, as a carrier and unicast do."""

    def __init__(self, seed: int, weather: Weather, stream: StreamSettings = SETTINGS) -> None:
        super().__init__(seed, weather, stream)
        self.wanted: dict[int, list[int]] = {host: [] for host in READERS}
        self.naks = 0

    def _send(self, source: int, out: Outgoing) -> None:
        if source == ORIGIN and out.to is None and out.hosts is not None:
            live = self.sender.peers.live
            self.sender.peers.live = [host for host in live if host in out.hosts]
            super()._send(source, out)
            self.sender.peers.live = live
        else:
            super()._send(source, out)

    def send_to(self, hosts: frozenset[int], payload: bytes) -> int | None:
        sequence = self.sender.publish(payload, 1, self.now, content=b"abcd", hosts=hosts)
        if sequence is not None:
            self.payloads[sequence] = payload
            for host in hosts:
                self.wanted[host].append(sequence)
        return sequence


def closes(network: FilteredNetwork) -> None:
    """Ends the stream: each receiver has exactly what was for it, and the accounts say so."""
    network.sender.close(network.now)
    assert network.run_until(network.settled, 120)
    assert {host: network.got[host] for host in READERS} == network.wanted
    network.assert_accounts_close()
    for host in READERS:
        row = network.sender.row(host)
        assert row.filtered == network.sender.end - len(network.wanted[host])
        assert sum(row.expired.values()) == 0


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), loss=st.sampled_from([0.0, 0.02, 0.2]), size=st.sampled_from([10, 5000]))
def test_each_receiver_gets_what_is_for_it_and_accounts_close(seed: int, loss: float, size: int) -> None:
    network = FilteredNetwork(seed, Weather(loss=loss))
    network.join_all(*READERS)
    chance = random.Random(seed)
    for _ in range(60):
        hosts = frozenset(host for host in READERS if chance.random() < 0.3)
        network.send_to(hosts, bytes([chance.randrange(256)]) * size)
        if chance.random() < 0.5:
            network.run(chance.random() * 0.02)
    closes(network)


def test_a_receiver_for_which_nothing_is_does_not_hold_the_others_up() -> None:
    network = FilteredNetwork(1, Weather())
    network.join_all(*READERS)
    began = network.now
    sent = 0
    while sent < 4000:  # 8 MB, many windows
        while sent < 4000 and network.send_to(frozenset({2}), b"x" * 2000) is not None:
            sent += 1
        assert network.run_until(lambda: network.sender.has_room, 30)
    assert network.run_until(lambda: len(network.got[2]) == 4000, 60)
    alone = Network(1, Weather(), SETTINGS)
    alone.join_all(2)
    start, count = alone.now, 0
    while count < 4000:
        while count < 4000 and alone.publish(b"x" * 2000) is not None:
            count += 1
        assert alone.run_until(lambda: alone.sender.has_room, 30)
    assert alone.run_until(lambda: len(alone.got[2]) == 4000, 60)
    assert network.now - began <= 1.5 * (alone.now - start) + 0.5
    closes(network)


def test_a_receiver_that_was_away_is_replayed_to_only_what_is_for_it() -> None:
    network = FilteredNetwork(3, Weather(), replace(SETTINGS, silent_after=2.5))
    network.join_all(*READERS)
    network.cut.add(4)
    for number in range(2000):
        network.send_to(frozenset({2, 3, 4} if number % 100 == 0 else {2}), b"%d" % number)
        if number % 100 == 0:
            network.run(0.2)
    before = network.sent_by.get((ORIGIN, "replay"), 0)
    network.cut.clear()
    closes(network)
    assert network.sent_by.get((ORIGIN, "replay"), 0) - before < 20 * 400


def test_receivers_of_an_earlier_version_get_what_they_miss() -> None:
    """They refuse a skip with a reason that they do not know, and would ask for ever."""
    network = FilteredNetwork(4, Weather(loss=0.02), replace(SETTINGS, multicast_at=1))
    network.join_all(*READERS)
    network.sender.takes_filtered(4, takes=False)
    for number in range(300):
        network.send_to(frozenset({2, 3} if number % 3 else {2}), b"%d" % number)
        network.run(0.001)
    network.sender.close(network.now)
    assert network.run_until(network.settled, 60)
    assert network.got[4] == list(range(300))
    assert network.got[2] == network.wanted[2]
    assert network.got[3] == network.wanted[3]
    assert network.sender.row(4).filtered == 0
    network.assert_accounts_close()


def test_a_replay_of_what_is_not_for_a_receiver_gives_way_to_other_work() -> None:
    """Nothing of it is sent, so no window ends a turn."""
    network = FilteredNetwork(6, Weather(), replace(SETTINGS, silent_after=2.5))
    network.join_all(2, 3)
    network.cut.add(3)
    for number in range(20_000):
        network.send_to(frozenset({2}), b"")
        if number % 200 == 0:
            network.run(0.05)
    peer = network.sender.peers.get(3)
    assert peer is not None
    assert peer.state is PeerState.SILENT
    network.cut.clear()
    passed, most = peer.sent, 0

    def caught_up() -> bool:
        nonlocal passed, most
        before, passed = passed, peer.sent
        most = max(most, passed - before)
        return passed >= 20_000

    assert network.run_until(caught_up, 60)
    assert most < 10_000
    network.sender.close(network.now)
    assert network.run_until(network.settled, 60)
    assert network.sender.row(3).filtered == 20_000


def test_a_host_that_a_carrier_brings_none_of_its_few_messages_is_not_reached() -> None:
    """Switches may not know its filter, and heartbeats arrive all the same."""
    network = FilteredNetwork(7, Weather())
    network.join_all(*READERS)
    served = Served(network.sender, 0, Witnesses())
    served.use(1, 0, frozenset(READERS), network.now)
    lost: list[int] = []
    for number in range(600):
        network.send_to(frozenset({2, 3}) if number % 10 == 0 else frozenset({2}), b"x")
        peer = network.sender.peers.get(3)
        assert peer is not None
        peer.asked += number % 10 == 0
        network.run(0.01)
        lost += served.unreached(network.now)
    assert lost == [3]
    assert served.confirmed == {2, 4}
