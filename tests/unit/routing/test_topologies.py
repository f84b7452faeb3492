"""Networks from text, from topohub, from generators."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.routing import topologies
from treecast.middleware.routing.network import Network, RoutingError, build, with_hosts

SAMPLE = """NODES 3
label x y
a 1.5 2
b 3 4
c 5 6

EDGES 5
label src dest weight bw delay
edge_0 0 1 2 1000 10
edge_1 1 0 2 1000 10
edge_2 1 2 1 1000 10
edge_3 2 1 1 1000 10
edge_4 1 2 7 1000 10
"""

GRAPHML = """<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="label" attr.type="string" for="node" id="d1" />
<key attr.name="Latitude" attr.type="double" for="node" id="d2" />
<key attr.name="Longitude" attr.type="double" for="node" id="d3" />
<graph edgedefault="undirected">
<node id="0"><data key="d1">Berlin</data><data key="d2">52.5</data><data key="d3">13.4</data></node>
<node id="1"><data key="d1">None</data><data key="d2">54.1</data><data key="d3">12.1</data></node>
<node id="2"><data key="d1">None</data><data key="d2">54.0</data><data key="d3">12.0</data></node>
<edge source="0" target="1" /><edge source="1" target="2" /><edge source="2" target="1" />
</graph></graphml>"""


def degrees(network: Network) -> list[int]:
    return [len(network.out[switch]) for switch in network.switches]


def test_repetita() -> None:
    network = topologies.parse_repetita(SAMPLE)
    assert network.names == ["a", "b", "c"]
    assert network.ends == [(0, 1), (1, 2)]  # directions and parallel edges merged
    assert network.weights == [2, 1]
    assert network.positions[0] == (1.5, 2)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("NODES 3", "NODES x", "line 1"),
        ("NODES 3", "NODES 30", "fewer than 30"),
        ("edge_4 1 2 7 1000 10", "edge_4 1 3 7 1000 10", "line 13"),
        ("edge_4 1 2 7 1000 10", "edge_4 1 2 7", "expected 6 fields"),
        ("a 1.5 2", "a 1.5 north", "coordinates"),
        ("EDGES 5", "EDGES 4", "nothing is expected"),
        ("b 3 4", "a 3 4", "twice"),
    ],
)
def test_repetita_refuses(old: str, new: str, said: str) -> None:
    with pytest.raises(RoutingError, match=said):
        topologies.parse_repetita(SAMPLE.replace(old, new))


@given(st.text(alphabet="NODESEG 0123\nab.-", max_size=60))
def test_repetita_refuses_or_reads_any_text(text: str) -> None:
    try:
        topologies.parse_repetita(text)
    except RoutingError:
        pass


def test_graphml() -> None:
    network = topologies.parse_graphml(GRAPHML)
    assert network.names == ["Berlin", "1", "2"]  # a label that is not unique is no name
    assert network.ends == [(0, 1), (1, 2)]
    assert network.positions[0] == (13.4, 52.5)


@pytest.mark.parametrize("text", ["", "<a/>", GRAPHML.replace('target="2"', 'target="9"'), "<graphml>"])
def test_graphml_refuses(text: str) -> None:
    with pytest.raises(RoutingError):
        topologies.parse_graphml(text)


def test_topohub() -> None:
    pytest.importorskip("topohub")
    network = topologies.from_topohub("Abilene")
    assert (network.node_count, network.edge_count) == (11, 14)
    with pytest.raises(RoutingError):
        topologies.from_topohub("NoSuchNetwork")


def test_fat_tree() -> None:
    network = topologies.fat_tree(4)
    assert (len(network.switches), len(network.hosts), network.edge_count) == (20, 16, 48)
    assert set(degrees(network)) == {4}
    with pytest.raises(RoutingError):
        topologies.fat_tree(3)


def test_facebook_fabric_has_the_thesis_size() -> None:
    network = topologies.facebook_fabric()
    assert (len(network.switches), len(network.hosts)) == (80, 64)
    assert sorted(set(degrees(network))) == [6, 8]  # racks: 4 up and 2 down; fabric and spine switches: 8


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(9, 24), st.integers(2, 4))
def test_jellyfish(seed: int, switches: int, degree: int) -> None:
    network = topologies.jellyfish(switches, degree, Random(seed))
    found = sorted(degrees(network))
    assert len(network.hosts) == switches
    assert found[1:] == [degree + 1] * (switches - 1)  # the host's port with them
    assert found[0] == degree + 1 - switches * degree % 2
    again = topologies.jellyfish(switches, degree, Random(seed))
    assert again.ends == network.ends


def test_regular() -> None:
    tree = topologies.k_ary_tree(3, 2)
    assert (len(tree.switches), len(tree.hosts), tree.edge_count) == (13, 9, 21)
    isp = topologies.isp()
    assert (len(isp.switches), len(isp.hosts)) == (16, 10)
    assert isp.link(isp.node("r12"), isp.node("r16")) >= 0


def test_links_and_ports() -> None:
    network = with_hosts(build(["a", "b", "c"], [(0, 1), (1, 2)]))
    for link in range(2 * network.edge_count):
        tail, head = network.tails[link], network.heads[link]
        assert (network.heads[link ^ 1], network.tails[link ^ 1]) == (tail, head)
        assert network.link(tail, head) == link == network.link_at(tail, network.ports[link])
    assert network.switch_of(network.node("b/0")) == 1
    assert network.node("2") == 2
    assert network.link_at(0, 9) == -1 == network.link_at(0, 0)
    with pytest.raises(RoutingError):
        network.link(0, 2)
    with pytest.raises(RoutingError):
        network.node("nobody")


@pytest.mark.parametrize(
    ("names", "edges", "hosts"),
    [
        ([], [], []),
        (["a", "a"], [], []),
        (["a"], [(0, 1)], []),
        (["a", "b"], [], [0]),
        (["a", "b"], [(0, 1)], [0, 1]),
    ],
)
def test_build_refuses(names: list[str], edges: list[tuple[int, int]], hosts: list[int]) -> None:
    with pytest.raises(RoutingError):
        build(names, edges, hosts=hosts)
