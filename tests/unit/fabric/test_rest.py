"""Streams without news rest: what that costs, that nothing is found later for it, and who does not rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.fabric.links import Weather
from tests.unit.fabric.stations import Group, Stations

from treecast.middleware.fabric.core.peers import Peer
from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import PeerState, ReceiverState
from treecast.middleware.wire.segment import Kind

SETTINGS = StreamSettings(rests=True)
SETTLED = 15.0  # seconds after which all rest: members are announced, reported, offered
HOSTS = (1, 2, 3)


class World(Stations):
    """Hosts that count the packets they send by kind. `plain`: hosts that behave as if rest did not exist."""

    def __init__(
        self, hosts: int, plain: Sequence[int] = (), weather: Weather | None = None, seed: int = 5
    ) -> None:
        super().__init__(seed, weather or Weather(), SETTINGS, hosts)
        self.kinds: Counter[Kind] = Counter()
        self.lose: set[Kind] = set()  # kinds of packets that the network drops
        for host in plain:
            streams = self.stations[host].streams
            streams.turn.pairs = streams.receivers._pairs = None

    def send(self, source: int, to: Sequence[int], data: bytes) -> None:
        kind = Kind(data[0] & 0x0F)
        self.kinds[kind] += len(to)
        if kind not in self.lose:
            super().send(source, to, data)

    def mesh(self, streams: int) -> list[Group]:
        """Each host serves so many streams, and receives those of all others."""
        return [
            self.group(origin, stream, [host for host in self.stations if host != origin], multicast=False)
            for origin in self.stations
            for stream in range(1, streams + 1)
        ]

    def idle(self, seconds: float) -> Counter[Kind]:
        """Returns the packets of the next seconds."""
        self.kinds.clear()
        self.run(seconds)
        return Counter(self.kinds)

    def receiver(self, host: int, group: Group) -> Receiver:
        return self.stations[host].streams.receivers.members[group.key[:2]].receiver

    def resting(self) -> list[bool]:
        return [
            self.receiver(host, group)._reporting.rests and peer(group, host).rests
            for group in self.groups.values()
            for host in group.members
        ]

    def restart(self, host: int) -> None:
        """The host's receivers and their state are gone; its origins too."""
        for group in list(self.groups.values()):
            if host in group.members:
                self.stations[host].streams.receivers.leave(*group.key[:2])
            elif group.key[0] == host:
                self.stations[host].streams.remove(group.served)


def peer(group: Group, host: int) -> Peer:
    found = group.sender.peers.get(host)
    assert found is not None
    return found


def test_the_cost_at_rest_is_that_of_pairs_however_many_streams() -> None:
    costs = []
    for streams in (2, 40):
        world = World(4)
        world.mesh(streams)
        world.run(SETTLED)
        assert all(world.resting())
        costs.append(world.idle(30))
    assert costs[0] == costs[1]
    assert set(costs[0]) == {Kind.BEAT}
    assert costs[0][Kind.BEAT] <= 12 * 30 / 0.75  # of 12 ordered pairs


def test_resting_streams_have_nothing_due() -> None:
    world = World(2)
    world.mesh(10)
    world.run(SETTLED)
    for station in world.stations.values():
        streams = station.streams
        assert min(streams.receivers.next_deadline(world.now), streams.schedule.first) > world.now + 1000


def test_news_wakes_one_stream_and_no_other() -> None:
    world = World(3)
    groups = world.mesh(20)
    world.run(SETTLED)
    world.publish(groups[0], 100)
    assert world.run_until(lambda: world.complete(groups[0]), 0.01)
    world.run(0.02)
    assert world.resting().count(False) == 2
    world.run(SETTLED)
    assert all(world.resting())


@pytest.mark.parametrize("plain", [(1,), (2,)])
def test_hosts_of_an_earlier_version_go_on_as_before(plain: tuple[int, ...]) -> None:
    world = World(2, plain)
    groups = world.mesh(3)
    world.run(SETTLED)
    seen = world.idle(10)
    assert not any(world.resting())
    assert seen[Kind.REPORT] >= 60
    assert not seen[Kind.BEAT]
    for group in groups:
        assert all(peer(group, host).state is PeerState.LIVE for host in group.members)


def test_a_stream_by_a_carrier_does_not_rest() -> None:
    """Its heartbeats and reports are the evidence that the carrier still works."""
    world = World(3)
    group = world.group(1, 1, [2, 3], multicast=False)
    world.run(SETTLED)
    assert all(world.resting())
    group.multicast = True
    world._confirm(group)
    world.touch(group)
    world.run(3)
    assert not any(world.resting())
    seen = world.idle(10)
    assert seen[Kind.HEARTBEAT] >= 20
    assert seen[Kind.REPORT] >= 20


def test_a_new_member_is_announced_to_those_that_rest() -> None:
    world = World(4)
    group = world.group(1, 1, [2, 3], multicast=False)
    world.run(SETTLED)
    world.join(group, 4, group.sender.end)
    world.run(SETTLED)
    assert all(set(world.receiver(host, group).members) == {2, 3, 4} for host in group.members)
    assert all(world.resting())
    world.leave(group, 3)
    world.run(SETTLED)
    assert all(set(world.receiver(host, group).members) == {2, 4} for host in group.members)
    assert all(world.resting())


# --- what has to be found


@pytest.mark.parametrize("plain", [(), HOSTS])
def test_a_dead_host_is_found_within_the_same_times(plain: tuple[int, ...]) -> None:
    world = World(3, plain)
    groups = world.mesh(5)
    world.run(SETTLED)
    world.cut = {3}
    world.run(SETTINGS.orphaned_after + 0.1)
    world.run(SETTINGS.silent_after - SETTINGS.orphaned_after)
    for group in groups:
        if group.key[0] == 3:
            assert all(world.receiver(host, group).state is ReceiverState.ORPHANED for host in group.members)
        else:
            assert peer(group, 3).state is PeerState.SILENT
    world.cut = set()
    world.run(SETTLED)
    for group in groups:
        assert all(peer(group, host).state is PeerState.LIVE for host in group.members)
        assert all(world.receiver(host, group).state is ReceiverState.LIVE for host in group.members)
    assert all(world.resting()) == (not plain)


def test_one_forgotten_stream_among_many_is_found() -> None:
    """The host is there, and beats; but it does not serve, or receive, what the other one believes."""
    world = World(2)
    forgotten, left, *others = world.mesh(5)
    world.run(SETTLED)
    world.stations[1].streams.remove(forgotten.served)
    world.stations[2].streams.receivers.leave(*left.key[:2])
    world.run(SETTINGS.silent_after + 0.2)
    assert world.receiver(2, forgotten).state is ReceiverState.ORPHANED
    assert peer(left, 2).state is PeerState.SILENT
    world.run(SETTLED)
    assert all(world.receiver(host, group)._reporting.rests for group in others for host in group.members)


def test_a_restarted_host_does_not_keep_streams_at_rest() -> None:
    world = World(2)
    groups = world.mesh(3)
    world.run(SETTLED)
    world.restart(2)
    world.run(SETTINGS.silent_after + 0.2)
    for group in groups:
        if group.key[0] == 1:
            assert peer(group, 2).state is PeerState.SILENT
        else:
            assert world.receiver(1, group).state is ReceiverState.ORPHANED


def kept(world: World, host: int, kind: Kind) -> list[bytes]:
    """Returns a list of the packets of this kind that the host gets from now on."""
    found: list[bytes] = []
    station = world.stations[host]
    take = station.arrives

    def arrives(data: bytes, now: float) -> None:
        if Kind(data[0] & 0x0F) is kind:
            found.append(data)
        take(data, now)

    station.arrives = arrives  # type: ignore[method-assign]
    return found


def test_a_beat_counts_once_and_not_after_a_later_one() -> None:
    world = World(2)
    world.mesh(1)
    world.run(SETTLED)
    beats = kept(world, 2, Kind.BEAT)
    world.run(3)
    world.lose = {Kind.BEAT}
    world.run(0.01)
    station = world.stations[2]
    before = station.streams.pairs.received
    for data in beats[:]:
        station.arrives(data, world.now)
    world.run(0.01)
    assert station.streams.pairs.received == before
    assert station.complaints["OLD_BEAT"] >= 3


def test_copies_of_earlier_reports_do_not_end_the_rest() -> None:
    """The receiver would not report again, and count as silent."""
    world = World(2)
    world.mesh(1)
    reports = kept(world, 1, Kind.REPORT)
    world.run(SETTLED)
    assert len(reports) >= 2
    for data in reports[:-1]:
        world.stations[1].arrives(data, world.now)
    world.run(0.01)
    assert all(world.resting())
    assert set(world.idle(SETTLED)) == {Kind.BEAT}


def test_lost_beats_wake_streams_and_lose_nothing() -> None:
    world = World(2)
    groups = world.mesh(4)
    world.run(SETTLED)
    world.lose = {Kind.BEAT}
    world.run(20)
    assert not any(world.resting())
    for group in groups:
        assert all(peer(group, host).state is PeerState.LIVE for host in group.members)
    world.lose = set()
    world.run(SETTLED)
    assert all(world.resting())


# --- the same as without rest


HEARTBEATS = (0.01, 0.03, 0.07, 0.15)  # seconds after the last data
# A request waits for a part of the estimated round trip, which grows with each loss, with and without rest.
REQUESTED = 0.05


def found_after(world: World, group: Group, dark: float) -> float:
    """Publishes while nothing arrives for `dark` seconds. Returns when the last receiver asks for it."""
    world.weather = Weather(loss=1.0)
    world.publish(group, 10)
    begun = world.now
    world.run(dark)
    world.weather = Weather()
    asked: set[int] = set()

    def all_ask() -> bool:
        asked.update(
            host for host in group.members if Kind.NAK.name in world.receiver(host, group).counters.sent
        )
        return len(asked) == len(group.members)

    for host in group.members:
        world.receiver(host, group).counters.sent.pop(Kind.NAK.name, None)
    assert world.run_until(all_ask, 5)
    took = world.now - begun
    assert world.run_until(lambda: world.complete(group), 20)
    return took


PAUSES = st.lists(
    st.tuples(st.integers(0, 5), st.floats(0.01, 12), st.floats(0.001, 0.14)), min_size=1, max_size=5
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PAUSES, st.booleans(), st.integers(0, 99))
def test_the_loss_of_a_tail_is_found_within_the_same_times(
    steps: list[tuple[int, float, float]], plain: bool, seed: int
) -> None:
    """The first heartbeat that arrives shows what is missing, whether the stream has rested or not."""
    world = World(3, HOSTS if plain else (), seed=seed)
    groups = world.mesh(2)
    world.run(SETTLED)
    for number, pause, dark in steps:
        world.run(pause)
        first = min(at for at in HEARTBEATS if at > dark)
        assert found_after(world, groups[number], dark) <= first + REQUESTED


ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 5)),
    st.tuples(st.just("run"), st.floats(0.001, 9)),
    st.tuples(st.just("cut"), st.sampled_from(HOSTS)),
    st.tuples(st.just("mend"), st.just(0)),
    st.tuples(st.just("rejoin"), st.integers(0, 5)),
    st.tuples(st.just("stall"), st.sampled_from(HOSTS)),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, max_size=14), st.sampled_from([0.0, 0.15]), st.integers(0, 99), st.booleans())
def test_whatever_happens_all_arrives_and_all_rest_in_the_end(
    actions: list[tuple[str, float]], loss: float, seed: int, mixed: bool
) -> None:
    world = World(3, (3,) if mixed else (), Weather(loss, 0.05, 0.1), seed)
    groups = world.mesh(2)
    for what, which in actions:
        if what == "publish":
            world.publish(groups[int(which)], 500)
        elif what == "run":
            world.run(which)
        elif what == "cut":
            world.cut = {int(which)}
        elif what == "mend":
            world.cut = set()
        elif what == "stall":
            world.stall(int(which), 2.5)
        else:
            group = groups[int(which)]
            host = group.members[0]
            first = world.next[host, group.key]
            world.leave(group, host)
            world.join(group, host, first)
    world.cut = set()
    world.weather = Weather()
    assert world.run_until(lambda: all(map(world.complete, groups)), 60)
    world.run(2 * SETTLED)
    for group in groups:
        for host in group.members:
            assert peer(group, host).state is PeerState.LIVE
            assert world.receiver(host, group).state is ReceiverState.LIVE
            rests = mixed is False or 3 not in (host, group.key[0])
            assert (world.receiver(host, group)._reporting.rests and peer(group, host).rests) == rests
