"""A group that no longer reaches some or all of its hosts, while unicast does. Time is virtual."""

from __future__ import annotations

import random

import pytest
from tests.unit.fabric.links import Weather
from tests.unit.fabric.stations import Group, Station, Stations

from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.streams import UNICAST, Served, Shipment

ORIGIN = 1
SOON = 1.0  # virtual seconds that a message may take while it is not decided yet
CARRIER = 1


class Network(Stations):
    """Stations of which some get nothing that is sent to a group, or that a carrier sends by name."""

    def __init__(self, seed: int, weather: Weather, hosts: int, *, named: bool = False) -> None:
        super().__init__(seed, weather, StreamSettings(), hosts)
        self.named = named
        self.deaf: set[int] = set()
        self.lost: list[tuple[float, int, int]] = []  # (time, stream, host) as found
        self.moves = True  # a host that is found is moved to unicast for all streams

    def _confirm(self, group: Group) -> None:
        self.use(group, frozenset(group.members))

    def use(self, group: Group, hosts: frozenset[int]) -> None:
        group.served.use(CARRIER, 0 if self.named else 1000, hosts, self.now)

    def serve(self, station: Station) -> list[Shipment]:
        shipments = super().serve(station)
        for served, host in station.streams.unreached:
            self._found(served, host)
        return shipments

    def _found(self, served: Served, host: int) -> None:
        self.lost.append((self.now, served.sender.key[1], host))
        for group in self.groups.values() if self.moves else ():
            self.use(group, group.served.confirmed - {host})

    def _ship(self, station: Station, shipments: list[Shipment]) -> int:
        for one in shipments:
            if one.carrier != UNICAST:
                for data in one.datagrams:
                    members = one.hosts if self.named else next(iter(self.groups.values())).members
                    self.send(station.host, [h for h in members if h not in self.deaf], bytes(data))
        return super()._ship(station, [one for one in shipments if one.carrier == UNICAST])

    def flow(self, group: Group, rate: float, seconds: float, size: int = 200) -> None:
        end, count = self.now + seconds, 0
        begun = self.now
        while self.now < end:
            self.publish(group, size)
            count += 1
            self.run(begun + count / rate - self.now)

    def worst(self, group: Group) -> float:
        return max(self.took[group.key])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("rate", [1 / 60, 0.5, 20.0, 200.0])
@pytest.mark.parametrize(("receivers", "deaf"), [(2, 2), (3, 1), (4, 3), (4, 4)])
def test_a_group_that_dies_is_left_soon_whatever_the_rate(
    receivers: int, deaf: int, rate: float, named: bool
) -> None:
    net = Network(3, Weather(), receivers + 1, named=named)
    members = list(range(2, receivers + 2))
    group = net.group(ORIGIN, 7, members)
    net.flow(group, max(rate, 1.0), 3.0)
    net.run(1.0)
    assert net.lost == []
    net.deaf = set(members[:deaf])
    begun = net.now
    net.flow(group, rate, 12.0 if rate >= 1 else 130.0)
    assert net.run_until(lambda: net.complete(group), 5.0)
    assert sorted({host for _, _, host in net.lost}) == sorted(net.deaf)
    assert len(net.lost) == deaf  # each once
    # three heartbeats and the report that follows; some more if the carrier gets time to find another way
    assert max(at for at, _, _ in net.lost) - begun < (9.0 if named else 4.5)
    assert net.worst(group) < SOON
    assert group.served.confirmed == frozenset(members) - net.deaf
    assert all(peer.left == 0 for peer in group.sender.peers)


def test_the_others_do_not_wait_for_a_host_that_the_group_does_not_reach() -> None:
    net = Network(5, Weather(rate=20e6), 4)
    group = net.group(ORIGIN, 7, [2, 3, 4])
    net.flow(group, 500.0, 1.0, 2000)
    net.deaf = {4}
    net.flow(group, 2000.0, 3.0, 2000)
    assert net.run_until(lambda: net.complete(group), 5.0)
    assert [host for _, _, host in net.lost] == [4]
    assert net.worst(group) < SOON


def test_many_streams_of_a_group_find_it_once() -> None:
    net = Network(6, Weather(), 3)
    groups = [net.group(ORIGIN, stream, [2, 3]) for stream in range(1, 41)]
    for group in groups:
        net.publish(group, 100)
    net.run(3.0)
    assert net.lost == []
    net.deaf = {3}
    net.run(6.0)
    assert [host for _, _, host in net.lost] == [3]
    assert all(group.served.confirmed == frozenset({2}) for group in groups)


@pytest.mark.parametrize("loss", [0.02, 0.1])
def test_loss_is_no_evidence(loss: float) -> None:
    """Many streams share what they see, so no host is found by chance."""
    net = Network(7, Weather(loss=loss), 4)
    groups = [net.group(ORIGIN, stream, [2, 3, 4]) for stream in range(1, 11)]
    for _ in range(30):
        for group in groups:
            net.publish(group, 100)
        net.run(1.0)
    assert net.lost == []


def test_hosts_that_stop_for_seconds_are_not_found() -> None:
    net = Network(8, Weather(), 4)
    group = net.group(ORIGIN, 7, [2, 3, 4])
    draw = random.Random(8)
    for _ in range(20):
        net.stall(draw.choice((1, 2, 3, 4)), draw.choice((0.3, 1.0, 3.0, 8.0)))
        net.flow(group, 20.0, 2.0)
    net.run(10.0)
    assert net.run_until(lambda: net.complete(group), 30.0)
    assert net.lost == []


def test_a_group_that_works_again_may_be_used_again() -> None:
    net = Network(9, Weather(), 4)
    group = net.group(ORIGIN, 7, [2, 3, 4])
    for _ in range(3):
        net.flow(group, 50.0, 2.0)
        net.deaf = {4}
        net.flow(group, 50.0, 3.0)
        assert [host for _, _, host in net.lost] == [4]
        net.deaf = set()
        net.lost.clear()
        net.use(group, frozenset({2, 3, 4}))
    net.flow(group, 50.0, 3.0)
    assert net.lost == []
    assert net.run_until(lambda: net.complete(group), 5.0)
