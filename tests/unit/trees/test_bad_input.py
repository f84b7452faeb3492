"""Invalid requests and packets: unreachable receivers, networks with more links than labels, switches without
room for rules, stacks without room in a frame, and unknown labels."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.unit.routing.networks import networks, receivers_of

from treecast.middleware.control.advice.place import AdvicePlace
from treecast.middleware.control.switches import SwitchState
from treecast.middleware.control.trees import states
from treecast.middleware.control.trees.adapting import Observed, better_trees
from treecast.middleware.control.trees.description import Described, HostPlace
from treecast.middleware.control.trees.manager import TreeManager
from treecast.middleware.control.trees.store import MemoryStore
from treecast.middleware.evaluation.thesis.encoding import ENCODERS, encoder_of
from treecast.middleware.evaluation.twins import FRAME, switched
from treecast.middleware.fabric.carriers.carrier import Place
from treecast.middleware.fabric.carriers.labels import BY_ETHERNET, LabelRules, Labels
from treecast.middleware.routing.forwarding import faults, simulate
from treecast.middleware.routing.network import Network, RoutingError, Unreachable, build
from treecast.middleware.routing.schemes.common import delivery_tree
from treecast.middleware.routing.schemes.hops import Hops
from treecast.middleware.routing.schemes.split import split
from treecast.middleware.routing.schemes.stored import publisher_tree
from treecast.middleware.routing.topologies import fat_tree
from treecast.middleware.routing.virtual.cache import Stacks
from treecast.middleware.routing.virtual.encoder import Encoder
from treecast.middleware.routing.virtual.learning import learn
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.routing.virtual.stacks import LabelForwarder, check_encoding, check_ids, request
from treecast.middleware.routing.virtual.strategies import NEED_KNOWLEDGE, STRATEGIES, Knowledge, install
from treecast.middleware.wire.label_stack import LAST_ID, decode_labels, encode_labels, hop, stop, tree

# Two switches with two hosts each, without a link between them: a, b | c, d.
APART = build(["s", "t", "a", "b", "c", "d"], [(0, 2), (0, 3), (1, 4), (1, 5)], hosts=[2, 3, 4, 5])
STAR = build(["s", *"abcd"], [(0, n) for n in range(1, 5)], hosts=range(1, 5))

# Strategies that lay trees between any clients, or to all of a publisher's subscribers.
REFUSING = {"random", "random-variant", "partitions", "relation", "frequency-relation", "hybrid"} | {
    "hybrid-partitions"
}


class Wire:
    address = "nowhere"

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, datagrams: list[bytes]) -> None:
        self.sent += datagrams


def carrier(network: Network, room: int) -> tuple[Labels, Wire]:
    """Returns the first host's carrier; host ids are node numbers."""
    wire = Wire()
    found = Labels(BY_ETHERNET, room)
    found.begin(network.hosts[0], wire)
    for node in network.hosts:
        found.set_host(node, Place(name=network.names[node]))
    found.learn(LabelRules(1, network, RuleBase(network, 4)))
    return found, wire


# --- receivers that cannot be reached


@pytest.mark.parametrize("name", ENCODERS)
def test_an_unreachable_receiver_is_refused(name: str) -> None:
    encode = encoder_of(name, APART, RuleBase(APART, 4))
    with pytest.raises(RoutingError, match="cannot be reached"):
        encode(request(APART, 2, [3, 4]))


def test_trees_of_other_schemes_are_refused_too() -> None:
    for make in (delivery_tree, publisher_tree):
        with pytest.raises(RoutingError, match="cannot be reached"):
            make(APART, 2, [3, 5])


def test_the_carrier_sends_to_those_that_it_reaches() -> None:
    labels, wire = carrier(APART, 100)
    labels.send(5000, [b"data"], [3, 4, 5])
    assert wire.sent == [encode_labels([hop(APART.link(0, 3))]) + b"data"]


def test_the_carrier_reaches_hosts_that_links_lead_to() -> None:
    """A link that is down is a hole in the network; hosts behind it get unicast until it is up."""
    network = build(["s", "t", "a", "b", "c"], [(0, 1), (0, 2), (0, 3), (1, 4)], hosts=[2, 3, 4])
    labels, wire = carrier(network, 100)
    assert set(labels._node) == {2, 3, 4}
    labels.learn(LabelRules(2, network.without(0b1), RuleBase(network.without(0b1), 4)))
    assert set(labels._node) == {2, 3}
    labels.send(0, [b"data"], [3, 4])
    assert wire.sent == [encode_labels([hop(network.link(0, 3))]) + b"data"]
    labels.learn(LabelRules(2, network, RuleBase(network, 4)))
    assert set(labels._node) == {2, 3}, "a version is told again as it was"
    labels.learn(LabelRules(3, network, RuleBase(network, 4)))
    assert set(labels._node) == {2, 3, 4}


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_trees_of_a_network_whose_links_are_down(name: str) -> None:
    """A strategy for the whole network gives way to one that knows links alone."""
    network = fat_tree(4)
    switches = {network.names[node]: "unused" for node in network.switches}
    ends = zip(network.tails[::2], network.heads[::2], strict=True)
    links = [(network.names[tail], network.names[head]) for tail, head in ends]
    hosts = {network.names[node]: HostPlace() for node in network.hosts}
    described = Described(links, switches, hosts, strategy=name, adapt=30.0)
    whole = described.network()
    alone = whole.edge_masks[whole.switch_of(whole.hosts[0])] & ~whole.edge_masks[whole.hosts[0]]
    less = whole.without(alone)
    trees = described.trees_around(less)
    assert bool(trees) == (name != "hops")
    rules = RuleBase(less, 1000)
    for edges in trees:
        rules.add(edges)
    rules.check_invariants()


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_strategies_on_a_network_in_two_parts(name: str) -> None:
    """Strategies that make trees to subscribers refuse and suggest a remedy; others install trees."""
    knowledge = Knowledge({2: {3: 0.9, 4: 0.9}}, [[0, 2, 3]])
    if name in REFUSING:
        with pytest.raises(Unreachable, match=r"cannot be reached .*: join them, .*broadcast, topological"):
            install(APART, 3, STRATEGIES[name], knowledge, Random(1))
    else:
        install(APART, 3, STRATEGIES[name], knowledge, Random(1)).check_invariants()


# --- networks beyond 2 ** 14 links


def test_a_network_with_too_many_links() -> None:
    wide = fat_tree(28)  # 5,488 hosts, 32,928 links
    assert len(wide.tails) > LAST_ID + 1
    source, receiver = wide.hosts[0], wide.hosts[-1]
    for ask in (
        lambda: check_ids(wide),
        lambda: request(wide, source, [receiver]),
        lambda: Stacks(Encoder(wide, RuleBase(wide, 1)), source),
    ):
        with pytest.raises(RoutingError, match=f"{len(wide.tails)} links; labels name 16384"):
            ask()


# --- no room for rules


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@settings(max_examples=3, deadline=None)
@given(network=networks(8, hosts=True), seed=st.integers(0, 10**6))
def test_switches_without_room_for_rules(name: str, network: Network, seed: int) -> None:
    rng = Random(seed)
    source, receivers = receivers_of(network, rng)
    knowledge = Knowledge({source: dict.fromkeys(receivers, 0.5)}, [network.switches])
    rules = install(network, 0, STRATEGIES[name], knowledge, rng)
    assert (rules.trees, rules.total) == ({}, 0)
    asked = request(network, source, receivers)
    assert learn(network, rules, [asked], rng).rules.trees == {}
    found = Encoder(network, rules).encode(asked)
    assert (found.trees, found.stops) == ((), ())
    outcome = simulate(network, LabelForwarder(network, rules), source, found.labels)
    assert faults(network, source, receivers, outcome) == []


def test_a_limit_below_nothing_is_refused() -> None:
    with pytest.raises(RoutingError, match="-1 rules"):
        RuleBase(STAR, -1)


def test_a_manager_of_switches_without_room() -> None:
    told: list[Mapping[int, int]] = []

    class Publishers:
        async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
            told.append(trees)

    class Switch:
        open = True

        async def read(self) -> SwitchState:
            return SwitchState.of()

        async def bring_to(self, desired: SwitchState) -> int:
            return 0

    manager = TreeManager(STAR, {0: Switch()}, Publishers(), MemoryStore(), limit=0)
    asyncio.run(manager.start())
    assert asyncio.run(manager.update([0b0011, 0b1111])).trees == {}
    assert told == [{}]
    seen = Observed(STAR)
    seen.add({"a": {("b", "c", "d"): 500}})
    assert better_trees(manager.rules, seen, Random(1), 30) is None


# --- no room in a frame


def test_a_header_that_holds_no_receivers_stack() -> None:
    scheme = Hops(STAR)
    everybody = publisher_tree(STAR, 1, [2, 3, 4])
    size = lambda edges: scheme.size(scheme.encode(1, edges))  # noqa: E731
    least = size(publisher_tree(STAR, 1, [2]))
    assert [receivers for _, receivers in split(STAR, 1, everybody, least, size)] == [[2], [3], [4]]
    with pytest.raises(RoutingError, match=f"{least} bytes, and there is room for {least - 1}"):
        split(STAR, 1, everybody, least - 1, size)


def test_a_carrier_whose_frames_hold_no_stack() -> None:
    """Nothing is sent, and repairs by unicast remain; a frame with room for one label is sent to each
    receiver."""
    labels, wire = carrier(STAR, 3)
    labels.send(5000, [b"data"], [2, 3, 4])
    assert wire.sent == []
    labels, wire = carrier(STAR, 4)
    labels.send(5000, [b"data"], [2, 3, 4])
    assert len(wire.sent) == 3


# --- more labels than switches have room for


def test_a_stack_that_switches_would_drop_is_not_made() -> None:
    """With one label per receiver, 150 receivers are two packets of a carrier, and `treecast route` refuses
    them."""
    wide = build(["s", *(f"h{n}" for n in range(151))], [(0, n) for n in range(1, 152)], hosts=range(1, 152))
    labels, wire = carrier(wide, 1400)
    labels.send(5000, [b"data"], list(range(2, 152)))
    stacks = [decode_labels(datagram)[0] for datagram in wire.sent]
    assert [len(stack) for stack in stacks] == [75, 75]
    assert len({label for stack in stacks for label in stack}) == 150
    with pytest.raises(RoutingError, match="150 labels; switches have room for 128: send to fewer"):
        check_encoding(Encoder(wide, RuleBase(wide, 0)).encode(request(wide, 1, list(range(2, 152)))))


# --- strategies without observations


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_manager_starts_with_trees_or_says_why_not(name: str) -> None:
    """Strategies based on observed notifications used to find no trees, or only paths, without a message."""
    network = fat_tree(4)
    switches = {network.names[node]: "unused" for node in network.switches}
    ends = zip(network.tails[::2], network.heads[::2], strict=True)
    links = [(network.names[tail], network.names[head]) for tail, head in ends]
    hosts = {network.names[node]: HostPlace() for node in network.hosts}
    described = Described(links, switches, hosts, strategy=name)
    if name in NEED_KNOWLEDGE:
        with pytest.raises(
            RoutingError, match=r"`adapt` or \[advice\] brings: .* choose hops, broadcast, random,"
        ):
            described.check()
        advice = AdvicePlace(kafka="10.0.0.1:9092")
        for learns in (replace(described, adapt=30.0), replace(described, advice=advice)):
            trees = learns.trees(learns.check())
            assert trees
            assert f"{name!r} begins with the trees of 'random'" in learns.remark(trees)
    else:
        trees = described.trees(described.network())
        assert bool(trees) == (name != "hops")
        assert not described.remark(trees)


@pytest.mark.parametrize(
    ("strategy", "limit", "said"),
    [
        ("cycles", 40, "finds no tree here"),
        ("random", 0, "room for 0 rules"),
        ("hops", 40, ""),
        ("random", 4, ""),
    ],
)
def test_a_manager_without_trees_says_so(strategy: str, limit: int, said: str) -> None:
    """A line of switches has no cycle."""
    links = [("alpha", "s1"), ("s1", "s2"), ("s2", "beta")]
    hosts = {"alpha": HostPlace(), "beta": HostPlace()}
    described = Described(links, {"s1": "unused", "s2": "unused"}, hosts, strategy=strategy, limit=limit)
    remark = described.remark(described.trees(described.network()))
    assert said in remark
    assert bool(remark) == bool(said)


# --- unknown labels


@settings(max_examples=8, deadline=None)
@given(network=networks(5, hosts=True), seed=st.integers(0, 10**6))
def test_unknown_labels_on_the_wire(network: Network, seed: int) -> None:
    """Receivers behind P4 switches get their copies, and nobody gets an extra one."""
    rng = Random(seed)
    source, receivers = receivers_of(network, rng)
    known = Encoder(network, RuleBase(network, 0)).encode(request(network, source, receivers)).labels
    others = [kind(rng.randint(len(network.tails), LAST_ID)) for kind in (hop, stop, tree) for _ in range(3)]
    stack = [*known, *others]
    rng.shuffle(stack)
    run = switched("virtual_trees")
    nothing = RuleBase(network, 0)
    run.become(network, {switch: states.labels(network, switch, nothing, {}) for switch in network.switches})
    carried = run.send(source, FRAME + encode_labels(stack) + b"data")
    got = {
        network.heads[link]: len(frames)
        for link, frames in carried.frames.items()
        if network.is_host[network.heads[link]]
    }
    assert got == dict.fromkeys(receivers, 1)
    assert (carried.astray, carried.looped) == ([], False)


def test_only_unknown_labels_go_nowhere() -> None:
    run = switched("virtual_trees")
    run.become(STAR, {0: states.labels(STAR, 0, RuleBase(STAR, 0), {})})
    carried = run.send(1, FRAME + encode_labels([hop(LAST_ID), tree(77), stop(500)]) + b"data")
    assert list(carried.frames) == [STAR.out[1][0]]  # the publisher's own link
