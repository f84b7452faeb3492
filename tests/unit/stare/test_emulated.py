"""Both designs of STARE's switches in the emulator: the same packets give the same deliveries."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.dataplane.emulator import Endpoint, LinkSettings
from treecast.middleware.evaluation.stare.network import StareNetwork
from treecast.middleware.evaluation.stare.programs import program
from treecast.middleware.evaluation.stare.switches import DESIGNS
from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.wire.stare import PORT, StareHeader, StareKind, encode_header, group
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame, frame_around
from treecast.middleware.wire.stare_signals import Update

STATES = (256, 257, 300)
REST = 0.3  # simulated seconds between two steps, so that all effects of one are over


def network_of(seed: int) -> Network:
    """Returns two to six switches with some links besides the tree, and one or two hosts on each."""
    rng = random.Random(seed)
    count = rng.randint(2, 6)
    edges = [(rng.randrange(new), new) for new in range(1, count)]
    edges += [(rng.randrange(count), rng.randrange(count)) for _ in range(rng.randint(0, 2))]
    return with_hosts(build([f"s{n}" for n in range(count)], edges), rng.randint(1, 2))


def made(design: str, network: Network, seed: int, link: LinkSettings) -> StareNetwork:
    loaded = program(f"stare_{design}", STARE_STATES="512")
    return StareNetwork(network, design, seed, link=link, loaded=loaded)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "subscribe", "subscribe", "unsubscribe"]),
        st.integers(0, 1 << 16),
        st.binary(max_size=20),
    ),
    min_size=5,
    max_size=25,
)


def deliveries(design: str, seed: int, steps: list[tuple[str, int, bytes]]) -> list[list[Update]]:
    """Returns the updates that each VNF gets."""
    network = network_of(seed)
    net = made(design, network, seed, LinkSettings())
    got: list[list[Update]] = [[] for _ in range(4)]
    vnfs = [net.open(network.hosts[n % len(network.hosts)], got[n].append) for n in range(4)]
    for action, draw, value in steps:
        vnf, state = vnfs[draw % 4], STATES[draw // 4 % len(STATES)]
        if action == "publish":
            net.publish(vnf, state, value)
        elif action == "subscribe":
            net.subscribe(vnf, state)
        else:
            net.unsubscribe(vnf, state)
        net.run(REST)
    assert net.differences(STATES) == []
    net.check_invariants()
    return got


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000), STEPS)
def test_the_same_operations_give_the_same_deliveries(seed: int, steps: list[tuple[str, int, bytes]]) -> None:
    register, embedded = (deliveries(design, seed, steps) for design in DESIGNS)
    assert register == embedded


# --- the same packets, byte by byte

PACKETS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "publish", "register", "register", "remove", "ipv4", "garbage"]),
        st.integers(0, 1 << 16),
        st.integers(0, 1 << 16),
    ),
    min_size=5,
    max_size=30,
)


def frame_of(net: StareNetwork, what: str, host: int, draw: int, number: int) -> bytes:
    state, mac, address = STATES[draw % len(STATES)], net.mac(host), net.address(host)
    hosts = net.network.hosts
    match what:
        case "publish":
            body = encode_header(StareHeader(StareKind.PUBLISH, state, 1, number)) + draw.to_bytes(4)
            return frame_around(body, group(state), mac, address, ttl=2 + draw % 20)
        case "ipv4":
            to = net.address(hosts[draw % len(hosts)])
            return frame_around(draw.to_bytes(4), to, mac, address, PORT, 2 + draw % 20)
        case "garbage":
            return random.Random(draw).randbytes(draw % 90)
    kind = StareKind.SUB_REGISTER if what == "register" else StareKind.SUB_REMOVE
    return encode_frame(StareFrame(StareHeader(kind, state, 0, number), mac, address))


def seen(design: str, seed: int, packets: list[tuple[str, int, int]]) -> dict[int, list[object]]:
    """Returns the frames that arrive at each host: acknowledgements by their headers, others by their
    bytes."""
    network = network_of(seed)
    net = made(design, network, seed, LinkSettings())
    ends = {host: Endpoint() for host in network.hosts}
    for host, end in ends.items():
        net.emulator.attach(host, end)
    for number, (what, which, draw) in enumerate(packets):
        host = network.hosts[which % len(network.hosts)]
        ends[host].send(frame_of(net, what, host, draw, number))
        net.emulator.wake(host)
        net.run(REST)
    return {host: [_shown(frame) for _, _, frame in end.arrived] for host, end in ends.items()}


def _shown(frame: bytes) -> object:
    """Returns only the header of an acknowledgement, as its time to live is the host's or the
    controller's."""
    if frame[30] == 0xEF:
        found = decode_frame(frame)
        if found.header.kind is StareKind.SUB_ACK:
            return found.header, found.mac, found.address
    return frame


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10_000), PACKETS)
def test_the_same_packets_give_the_same_packets(seed: int, packets: list[tuple[str, int, int]]) -> None:
    register, embedded = (seen(design, seed, packets) for design in DESIGNS)
    assert register == embedded


# --- the network itself


@pytest.mark.parametrize("design", DESIGNS)
def test_a_seed_gives_the_same_run(design: str) -> None:
    bad = LinkSettings(loss=0.1, duplicate=0.1, reorder=0.1)

    def once() -> object:
        network = network_of(3)
        net = made(design, network, 3, bad)
        got: list[Update] = []
        one, two = (net.open(host, got.append) for host in network.hosts[:2])
        net.subscribe(two, 256)
        for number in range(20):
            net.publish(one, 256, b"%d" % number)
            net.run(0.05)
        net.run(5)
        assert got[-1].value == b"19"
        return got, [(way.packets, way.lost, way.doubled) for way in net.emulator.ways], net.signals.sent

    assert once() == once()


def test_a_difference_is_seen() -> None:
    net = made("register", network_of(1), 1, LinkSettings())
    assert net.differences(STATES) == []
    switch = next(iter(net.switches.values()))
    switch.switch.control.register("StareIngress.subscribers").write(300, 2)
    node = next(iter(net.switches))
    assert net.differences(()) == [(node, 300, 2, 0)]


def test_what_waited_for_a_vnf_goes_when_it_unsubscribes() -> None:
    net = made("embedded", network_of(1), 1, LinkSettings())
    got: list[Update] = []
    host = net.network.hosts[0]
    one, two = net.open(host, got.append), net.open(host, got.append)
    net.subscribe(two, 256)
    net.publish(one, 256, b"waits")
    net.unsubscribe(two, 256)
    net.run(1)
    assert got == []
