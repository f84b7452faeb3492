"""Strategies that know the network: topological, cycles, partitions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from ...bits import members
from ...clusters import communities
from ...network import Network
from ...rng import Rng
from ...rooted import breadth_first, distances
from ...steiner import steiner_tree
from ...steiner.common import nodes_of, spanning_tree
from .knowledge import Knowledge

_FAR = 1000


def topological(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields stars: at every switch, combinations of the links that lead down to hosts.

    First all links of a switch, then pairs, fours and so on: combinations of 2 ** n links, n from 1 (the
    thesis' reduced set under a limit), then the rest. Switches take turns, so that all get their share.
    """
    low = _levels(network)
    queues = [_combinations(_down(network, switch, low)) for switch in network.switches]
    while queues:
        still = []
        for queue in queues:
            edges = next(queue, 0)
            if edges:
                still.append(queue)
                yield edges
        queues = still


def _levels(network: Network) -> list[int]:
    """Returns the hops to the nearest host; 0 everywhere if there are none."""
    if not network.hosts:
        return [0] * network.node_count
    far = [distances(network, host) for host in network.hosts]
    return [min(one[node] for one in far) for node in range(network.node_count)]


def _down(network: Network, switch: int, low: list[int]) -> list[int]:
    """Returns the edges of a switch that lead nearer to hosts; all of them if there are no hosts."""
    links = network.out[switch]
    if not network.hosts:
        return [link >> 1 for link in links]
    return [link >> 1 for link in links if low[network.heads[link]] < low[switch]]


def _combinations(edges: list[int]) -> Iterator[int]:
    sizes = [len(edges), *(2**n for n in range(1, len(edges).bit_length()))]
    sizes += [size for size in range(2, len(edges)) if size not in sizes]
    seen = set()
    for size in sizes:
        for chosen in combinations(edges, size) if size >= 2 else ():
            mask = sum(1 << edge for edge in chosen)
            if mask not in seen:
                seen.add(mask)
                yield mask


def cycles(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields every cycle of a smallest cycle basis, without one edge so that it is a tree; then combinations
    of two, three and so on. Yields nothing without cycles.
    """
    basis = cycle_basis(network)
    for count in range(1, len(basis) + 1):
        for chosen in combinations(basis, count):
            cycle = 0
            for one in chosen:
                cycle ^= one
            if is_cycle(network, cycle):
                edges = members(cycle)
                yield cycle & ~(1 << edges[rng.randrange(len(edges))])


def cycle_basis(network: Network) -> list[int]:
    """Returns the shortest independent cycles (edges as bits): Horton's candidates, then elimination.

    Source: Horton, A polynomial-time algorithm to find the shortest cycle basis of a graph, 1987.
    """
    candidates: set[int] = set()
    for root in network.switches:
        tree = breadth_first(network, root)
        ways = _ways(network, root, tree)
        for edge, (a, b) in enumerate(network.ends):
            if a != b and not tree >> edge & 1 and a in ways and b in ways:
                candidates.add(ways[a] ^ ways[b] ^ 1 << edge)
    basis: list[int] = []
    reduced: dict[int, int] = {}  # by highest bit
    for cycle in sorted(candidates, key=lambda mask: (mask.bit_count(), mask)):
        rest = cycle
        while rest and rest.bit_length() in reduced:
            rest ^= reduced[rest.bit_length()]
        if rest:
            reduced[rest.bit_length()] = rest
            basis.append(cycle)
    return basis


def _ways(network: Network, root: int, tree: int) -> dict[int, int]:
    """Returns, for every node, the edges of the tree on the way from the root."""
    ways, waiting = {root: 0}, [root]
    while waiting:
        node = waiting.pop()
        for link in network.out[node]:
            if tree >> (link >> 1) & 1 and network.heads[link] not in ways:
                ways[network.heads[link]] = ways[node] | 1 << (link >> 1)
                waiting.append(network.heads[link])
    return ways


def is_cycle(network: Network, edges: int) -> bool:
    """Returns whether edges are one simple cycle."""
    nodes = members(nodes_of(network, edges))
    if not edges or any((network.edge_masks[node] & edges).bit_count() != 2 for node in nodes):
        return False
    return spanning_tree(network, members(edges), [1] * network.edge_count).bit_count() == len(nodes) - 1


def partitions(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields hub-and-spoke trees on communities of the network."""
    return hub_and_spoke(network, communities(network), rng)


def hub_and_spoke(network: Network, groups: list[list[int]], rng: Rng) -> Iterator[int]:
    """Yields small trees inside groups and backbones between their hubs (a group's first node), in turn,
    without end.

    The first of each covers the whole group, or all hubs; then come random sets, which inside a group always
    contain its hub.
    """
    hubs = [group[0] for group in groups]
    full = True
    while len(hubs) > 1 or any(_clients(network, group) for group in groups):
        if len(hubs) > 1:
            chosen = hubs if full else rng.sample(hubs, 2 + rng.randrange(len(hubs) - 1))
            yield steiner_tree(network, chosen)
        for group in groups:
            clients = _clients(network, group)
            if clients:
                picked = clients if full else rng.sample(clients, 1 + rng.randrange(len(clients)))
                yield _inside(network, group, [group[0], *picked])
        full = False


def _clients(network: Network, group: list[int]) -> list[int]:
    if not network.hosts:
        return group[1:]
    return [host for host in network.hosts if network.switch_of(host) in group]


def _inside(network: Network, group: list[int], terminals: list[int]) -> int:
    """Returns a tree that leaves its group only if there is no other way."""
    inner = set(group)
    costs = [
        1 if network.switch_of(a) in inner and network.switch_of(b) in inner else _FAR
        for a, b in network.ends
    ]
    return steiner_tree(network, terminals, costs=costs)
