"""The tree of a network of STARE switches moves off dead links: controllers hold what subscriptions imply."""

from __future__ import annotations

from collections import deque
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks

from treecast.middleware.control.links.probes import ANSWERED, MISSED, Probes
from treecast.middleware.control.stare_switch.embedded import BETWEEN_SWITCHES, EmbeddedController, Place
from treecast.middleware.control.stare_switch.network import Described, HostPlace, SwitchPlace
from treecast.middleware.control.stare_switch.tree import (
    PROBED,
    PortProbes,
    inner_ports,
    names_of,
    ports_towards,
    tree_of,
)
from treecast.middleware.routing.network import Network, RoutingError, described
from treecast.middleware.routing.steiner.common import nodes_of
from treecast.middleware.wire.stare import StareHeader, StareKind
from treecast.middleware.wire.stare_frames import StareFrame, encode_frame

STATES = (300, 301)
MAC, ADDRESS = bytes([2, 0, 0, 0, 0, 1]), bytes([10, 0, 0, 1])


class Site:
    """Controllers without their switches: their frames go over links that are up, at once."""

    def __init__(self, network: Network, rng: Random) -> None:
        self.network, self.rng = network, rng
        self.now = 0.0
        self.cut: set[int] = set()  # edges
        self.tree = tree_of(network, 0, 0)
        self.tables: dict[int, dict[int, int]] = {node: {} for node in network.switches}
        self.waiting: deque[tuple[int, int, bytes]] = deque()
        self.wants: dict[int, set[int]] = {host: set() for host in network.hosts}
        self.numbers = 0
        self.at = {
            node: EmbeddedController(
                BETWEEN_SWITCHES, Random(node), self.place(node), Driver(self, node), expire=0.0
            )
            for node in network.switches
        }

    def place(self, node: int) -> Place:
        tree = inner_ports(self.network, node, self.tree)
        return Place(tree, MAC, ADDRESS, b"", inner_ports(self.network, node, -1) - tree)

    def settle(self) -> None:
        """Delivers all frames, and lets 40 s pass for what is repeated."""
        for _ in range(80):
            while self.waiting:
                node, port, frame = self.waiting.popleft()
                self.at[node].packet_in(port.to_bytes(2) + frame, self.now)
            self.now += 0.5
            for controller in self.at.values():
                controller.work(self.now)

    def want(self, host: int, state: int, wanted: bool) -> None:
        (self.wants[host].add if wanted else self.wants[host].discard)(state)
        self.numbers += 1
        kind = StareKind.SUB_REGISTER if wanted else StareKind.SUB_REMOVE
        frame = encode_frame(StareFrame(StareHeader(kind, state, 0, self.numbers), MAC, ADDRESS))
        link = self.network.out[host][0]
        self.waiting.append((self.network.heads[link], self.network.ports[link ^ 1], frame))

    def move(self) -> None:
        """The tree leaves links that are down; switches hear of it one after the other."""
        down = sum(3 << 2 * edge for edge in self.cut)
        self.tree = tree_of(self.network, down, self.tree)
        for node in self.rng.sample(self.network.switches, len(self.network.switches)):
            self.at[node].become(self.place(node), self.now)
            if self.rng.random() < 0.3:
                self.settle()

    def implied(self, node: int, state: int) -> int:
        """Returns the ports that lead to subscribers along the tree over links that are up."""
        found = 0
        for link in self.network.out[node]:
            if any(state in self.wants[host] for host in self.behind(link)):
                found |= 1 << self.network.ports[link]
        return found

    def behind(self, first: int) -> set[int]:
        network, found, waiting = self.network, set(), [first]
        while waiting:
            link = waiting.pop()
            edge, head = link >> 1, network.heads[link]
            if edge in self.cut or not self.tree >> edge & 1:
                continue
            if network.is_host[head]:
                found.add(head)
            waiting += [one for one in network.out[head] if one != link ^ 1]
        return found


class Driver:
    def __init__(self, site: Site, node: int) -> None:
        self._site, self._node = site, node

    def write(self, state: int, ports: int) -> None:
        self._site.tables[self._node][state] = ports

    def send(self, ports: int, frame: bytes) -> None:
        site, network = self._site, self._site.network
        for link in network.out[self._node]:
            head = network.heads[link]
            sent = ports >> network.ports[link] & 1 and link >> 1 not in site.cut
            if sent and not network.is_host[head]:
                site.waiting.append((head, network.ports[link ^ 1], frame))


@settings(max_examples=25, deadline=None)
@given(networks(6, hosts=True, least=3), st.integers(0, 10**6))
def test_controllers_follow_a_tree_that_moves(network: Network, seed: int) -> None:
    rng = Random(seed)
    site = Site(network, rng)
    inner = [
        edge for edge, pair in enumerate(network.ends) if not any(network.is_host[node] for node in pair)
    ]
    for _ in range(4):
        for _ in range(rng.randint(0, 4)):
            site.want(rng.choice(network.hosts), rng.choice(STATES), rng.random() < 0.7)
        if rng.random() < 0.5:
            site.settle()
        site.cut = set(rng.sample(inner, rng.randint(0, min(2, len(inner)))))
        whole = network.without(sum(1 << edge for edge in site.cut))
        site.move()
        assert site.tree.bit_count() == network.node_count - 1
        site.settle()
        for node, controller in site.at.items():
            controller.check_invariants()
            for state in STATES:
                if len(set(whole.part)) == 1:
                    assert controller.ports(state) == site.implied(node, state)
                assert site.tables[node].get(state, 0) == controller.ports(state)
                # Nothing is sent outside the tree.
                outside = inner_ports(network, node, ~site.tree)
                assert not controller.ports(state) & sum(1 << port for port in outside)
        if len(set(whole.part)) > 1:  # what neighbours asked for last stays: they cannot say more
            site.cut = set()
            site.move()
            site.settle()


@given(networks(7, hosts=True, least=2), st.integers(0, 10**6))
def test_a_tree_changes_only_where_it_must(network: Network, seed: int) -> None:
    rng = Random(seed)
    inner = [
        edge for edge, pair in enumerate(network.ends) if not any(network.is_host[node] for node in pair)
    ]
    tree = tree_of(network, 0, 0)
    for _ in range(5):
        cut = set(rng.sample(inner, rng.randint(0, min(3, len(inner)))))
        down = sum(3 << 2 * edge for edge in cut)
        before, tree = tree, tree_of(network, down, tree)
        assert nodes_of(network, tree).bit_count() == network.node_count
        assert tree.bit_count() == network.node_count - 1
        less = network.without(sum(1 << edge for edge in cut))
        alive = sum(1 << edge for edge in range(network.edge_count) if edge not in cut)
        assert (tree & alive).bit_count() == network.node_count - len(set(less.part)), "as many as can be"
        assert before & alive & ~tree == 0, "what works stays"
        towards = ports_towards(network, tree)
        for switch in network.switches:
            assert towards[switch].keys() == set(network.hosts)


def test_probes_go_from_controller_to_controller() -> None:
    network = described(("s", "t", "u"), ("a",), [("a", "s"), ("s", "t"), ("t", "u"), ("u", "s")])
    form = PortProbes(network, MAC, ADDRESS)
    probes = Probes(network, form)
    cut: set[int] = set()

    def rounds(count: int, reached: list[int]) -> None:
        for _ in range(count):
            for probe in probes.round(reached):
                link = network.link_at(probe.node, int.from_bytes(probe.frame[:2]))
                if link not in cut:
                    assert probes.answer(network.ports[link ^ 1].to_bytes(2) + probe.frame[2:])

    rounds(ANSWERED + 1, [0, 1, 2])
    assert not probes.down
    cut.add(network.link(1, 2))
    rounds(MISSED + 1, [0, 1, 2])
    assert probes.names() in (["t -> u"], ["u -> t"])
    cut.clear()
    rounds(ANSWERED + 1, [0, 1, 2])
    assert not probes.down
    rounds(MISSED + 1, [0, 1])
    assert len(probes.names()) == 2, "the controller of u is a part of it"
    other = StareHeader(StareKind.SUB_REMOVE, 300, 0, 2)
    wrong_port = StareHeader(StareKind.SUB_REMOVE, PROBED, 0, network.link(0, 1))
    for packet in (b"", bytes(60)):
        assert not probes.answer(packet)
    for header in (other, wrong_port):
        assert not probes.answer((9).to_bytes(2) + encode_frame(StareFrame(header, MAC, ADDRESS)))


def test_a_description_is_checked() -> None:
    switch, host = (
        SwitchPlace("x", "02:00:00:00:00:f1", "10.0.0.9"),
        HostPlace("02:00:00:00:00:01", ["10.0.0.1"]),
    )
    links = [("a", "s"), ("s", "t"), ("b", "t")]
    made = Described(links, {"s": switch, "t": switch}, {"a": host, "b": host})
    network = made.network()
    tree = tree_of(network, 0, 0)
    assert names_of(network, tree) == ["s-t"]
    assert made.place(network, 0, tree).tree == {2}
    assert made.place(network, 0, 0) == Place(
        frozenset(), bytes.fromhex("0200000000f1"), bytes([10, 0, 0, 9]), b"", frozenset({2})
    )
    assert made.routes(network, 1, tree)[bytes([10, 0, 0, 1]), 32] == (
        2,
        bytes.fromhex("020000000001"),
    ) or made.routes(network, 1, tree)
    for wrong in (HostPlace("02", ["10.0.0.1"]), HostPlace("02:00:00:00:00:01", ["nowhere"])):
        with pytest.raises(RoutingError, match="is no"):
            Described(links, {"s": switch, "t": switch}, {"a": wrong, "b": host}).routes(network, 0, tree)
