"""The emulator: its clock, the effects of links, batches, and an account of every packet."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.dataplane.emulator import (
    Device,
    Emulator,
    EmulatorError,
    Endpoint,
    LinkSettings,
    read_counts,
)
from treecast.middleware.dataplane.p4 import Out
from treecast.middleware.routing.network import Network, build


def pair(link: LinkSettings, seed: int = 1) -> tuple[Emulator, Endpoint, Endpoint]:
    """Returns two endpoints and their link."""
    emulator = Emulator(build(["a", "b"], [(0, 1)]), random.Random(seed), link)
    ends = Endpoint(), Endpoint()
    for node, end in enumerate(ends):
        emulator.attach(node, end)
    return emulator, *ends


def send(emulator: Emulator, end: Endpoint, packets: Sequence[bytes]) -> None:
    for packet in packets:
        end.send(packet)
    emulator.wake(0)


class Hub:
    """Forwards packets to all its other ports; remembers its batches."""

    def __init__(self, ports: int) -> None:
        self.ports = ports
        self.batches: list[tuple[float, list[tuple[int, bytes]]]] = []

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        self.batches.append((now, list(packets)))
        return [Out(to, one) for port, one in packets for to in range(1, self.ports + 1) if to != port]

    def next_deadline(self) -> float:
        return float("inf")


class Clock:
    """Wants a turn at each of its times."""

    def __init__(self, times: list[float]) -> None:
        self.times = times
        self.turns: list[float] = []

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        self.turns.append(now)
        self.times = [at for at in self.times if at > now]
        return []

    def next_deadline(self) -> float:
        return min(self.times, default=float("inf"))


def test_a_packet_comes_after_the_delay() -> None:
    emulator, a, b = pair(LinkSettings(delay=0.25))
    emulator.at(1.0, lambda: send(emulator, a, [b"one", b"two"]))
    emulator.run(1.2)
    assert (b.arrived, emulator.under_way) == ([], 2)
    emulator.run(1.0)
    assert b.arrived == [(1.25, 1, b"one"), (1.25, 1, b"two")]
    assert emulator.now == 2.2
    assert emulator.idle


def test_rate_and_queue() -> None:
    """At 8,000 bits a second a packet of 100 bytes takes 0.1 s; 250 bytes may wait."""
    emulator, a, b = pair(LinkSettings(rate=8000, delay=1.0, queue=250))
    send(emulator, a, [bytes([n]) * 100 for n in range(4)])
    emulator.run(5)
    assert [(round(at, 6), packet[0]) for at, _, packet in b.arrived] == [(1.1, 0), (1.2, 1)]
    counts = read_counts(emulator).links["a -> b"]
    assert (counts.packets, counts.bytes, counts.overflow) == (4, 400, 2)
    send(emulator, a, [bytes(100)])
    emulator.run(5)
    assert len(b.arrived) == 3


def test_loss_copies_and_overtaking_by_their_shares() -> None:
    emulator, a, b = pair(LinkSettings(loss=0.2, duplicate=0.1, reorder=0.1, late=0.5))
    packets = [n.to_bytes(2) for n in range(5000)]
    for number, packet in enumerate(packets):
        emulator.at(number * 0.01, lambda packet=packet: send(emulator, a, [packet]))
    emulator.run(100)
    counts = read_counts(emulator).links["a -> b"]
    assert counts.packets == 5000
    assert 900 < counts.lost < 1100
    assert 320 < counts.doubled < 480
    assert 320 < counts.late < 480
    assert len(b.arrived) == counts.packets - counts.lost + counts.doubled
    came = [packet for _, _, packet in b.arrived]
    assert came != sorted(came)
    assert set(came) <= set(packets)
    emulator.check_invariants()


def test_a_link_that_is_cut_and_mended() -> None:
    emulator, a, b = pair(LinkSettings())
    emulator.set_edge(0, LinkSettings(loss=1.0))
    send(emulator, a, [b"lost"])
    emulator.run(1)
    emulator.set_all(LinkSettings())
    send(emulator, a, [b"there"])
    emulator.run(1)
    assert [packet for _, _, packet in b.arrived] == [b"there"]


def test_packets_of_one_moment_are_one_batch_and_one_event() -> None:
    emulator = Emulator(build(["hub", "a", "b", "c"], [(0, 1), (0, 2), (0, 3)]), random.Random(1))
    hub, ends = Hub(3), [Endpoint() for _ in range(3)]
    emulator.attach(0, hub)
    for node, end in enumerate(ends, 1):
        emulator.attach(node, end)
        end.send(bytes([node]))
        end.send(bytes([node, 0]))
        emulator.wake(node)
    emulator.run(1)
    assert hub.batches == [(0.001, [(n, bytes([n, *rest])) for n in (1, 2, 3) for rest in ([], [0])])]
    assert [len(end.arrived) for end in ends] == [4, 4, 4]
    assert emulator.turns == 1 + 3 + 3


def test_deadlines_are_kept_at_the_next_tick() -> None:
    emulator = Emulator(build(["a", "b"], [(0, 1)]), random.Random(1), tick=0.01)
    clock = Clock([0.0, 0.015, 0.0199, 0.02, 0.031])
    emulator.attach(0, clock)
    emulator.run(1)
    assert clock.turns == [0.0, 0.02, 0.04]
    exact = Clock([0.015, 0.0151])
    emulator = Emulator(build(["a", "b"], [(0, 1)]), random.Random(1), tick=0)
    emulator.attach(0, exact)
    emulator.run(1)
    assert exact.turns == [0.015, 0.0151]


def test_a_deadline_that_moved_costs_no_turn() -> None:
    emulator = Emulator(build(["a", "b"], [(0, 1)]), random.Random(1))
    clock = Clock([0.5])
    emulator.attach(0, clock)
    clock.times = [0.8]
    emulator.run(1)
    assert clock.turns == [0.8]


def test_packets_without_a_way_are_counted() -> None:
    emulator, a, _ = pair(LinkSettings())
    del emulator.devices[1]
    a.send(b"there is no such port", 9)
    send(emulator, a, [b"nobody is there"])
    emulator.run(1)
    assert (emulator.no_link, emulator.unattached) == (1, 1)


def test_a_loop_without_delay_is_found() -> None:
    emulator = Emulator(
        build(["a", "b", "c"], [(0, 1), (1, 2), (2, 0)]), random.Random(1), LinkSettings(delay=0)
    )
    for node in range(3):
        emulator.attach(node, Hub(2))
    end = Endpoint()
    end.send(b"round")
    emulator.attach(0, end)
    emulator.attach(0, Hub(2))
    emulator._arrive(emulator.ways[0], b"round", 0.0)
    with pytest.raises(EmulatorError, match="stands still"):
        emulator.run(1)


@pytest.mark.parametrize(
    "wrong", [{"rate": -1}, {"delay": -1}, {"loss": 1.1}, {"duplicate": -0.1}, {"reorder": 2}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is"):
        LinkSettings(**wrong)  # type: ignore[arg-type]


def test_until_something_is_so() -> None:
    emulator, a, b = pair(LinkSettings(delay=0.1))
    send(emulator, a, [b"x"])
    assert emulator.run_until(lambda: bool(b.arrived), 1.0)
    assert emulator.now == 0.1
    assert not emulator.run_until(lambda: False, 1.0)


# --- properties


@st.composite
def networks(draw: st.DrawFn) -> Network:
    count = draw(st.integers(2, 8))
    edges = [(draw(st.integers(0, new - 1)), new) for new in range(1, count)]
    return build([f"n{n}" for n in range(count)], edges)


LINKS = st.builds(
    LinkSettings,
    rate=st.sampled_from([0.0, 1e5, 1e6]),
    delay=st.sampled_from([0.0, 0.001, 0.01]),
    loss=st.sampled_from([0.0, 0.2]),
    duplicate=st.sampled_from([0.0, 0.2]),
    reorder=st.sampled_from([0.0, 0.5]),
    queue=st.sampled_from([0, 200]),
)


def flood(network: Network, link: LinkSettings, seed: int) -> tuple[object, list[object]]:
    """Lets each leaf send into trees of hubs; returns everything that was seen."""
    emulator = Emulator(network, random.Random(seed), link)
    leaves = [node for node in range(network.node_count) if len(network.out[node]) == 1]
    devices: dict[int, Device] = {}
    for node in range(network.node_count):
        devices[node] = Endpoint() if node in leaves else Hub(len(network.out[node]))
        emulator.attach(node, devices[node])
    for number, leaf in enumerate(leaves * 3):
        end = devices[leaf]
        assert isinstance(end, Endpoint)
        end.send(bytes([number]) * 50)
        emulator.wake(leaf)
        emulator.run(0.0005)
        emulator.check_invariants()
    emulator.drain(60)
    emulator.check_invariants()
    assert emulator.under_way == 0
    return read_counts(emulator), [one.arrived for one in devices.values() if isinstance(one, Endpoint)]


@settings(max_examples=30)
@given(networks(), LINKS, st.integers(0, 1000))
def test_every_packet_is_accounted_for_and_a_seed_gives_the_same_run(
    network: Network, link: LinkSettings, seed: int
) -> None:
    assert flood(network, link, seed) == flood(network, link, seed)


@settings(max_examples=20)
@given(networks(), st.integers(0, 1000))
def test_on_good_links_each_leaf_gets_what_each_other_sends(network: Network, seed: int) -> None:
    _, arrived = flood(network, LinkSettings(), seed)
    for mine in arrived:
        assert isinstance(mine, list)
        assert len({packet for _, _, packet in mine}) == len(mine) == 3 * (len(arrived) - 1)
