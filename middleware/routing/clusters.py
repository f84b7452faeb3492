"""Groups of nodes: k-medoids by hops, dense regions around their centres, communities by modularity.

Sources: the thesis, 6.5.2 (k-means; here the distance is in hops and a centre is a node, because topology
files may lack coordinates) and 6.3.2; Clauset, Newman, Moore, Finding community structure in very large
networks, 2004.
"""

from __future__ import annotations

from .network import Network
from .rng import Rng
from .rooted import distances

_ROUNDS = 20


def k_medoids(network: Network, count: int, rng: Rng) -> list[list[int]]:
    """Returns the nodes in `count` groups around central nodes; each group begins with its centre.

    The first centres are drawn by squared distance from those already drawn (k-means++). Then each moves to
    the node with the least sum of distances in its group, until none moves.
    """
    far = [distances(network, node) for node in range(network.node_count)]
    count = min(count, network.node_count)
    centers = _draw(far, count, rng)
    for _ in range(_ROUNDS):
        groups = _assign(far, centers)
        moved = [
            min(group, key=lambda node: (sum(far[node][o] ** 2 for o in group), node)) for group in groups
        ]
        if moved == centers:
            break
        centers = moved
    groups = _assign(far, centers)
    return [[c, *(n for n in group if n != c)] for c, group in zip(centers, groups, strict=True)]


def _draw(far: list[list[int]], count: int, rng: Rng) -> list[int]:
    centers = [rng.randrange(len(far))]
    while len(centers) < count:
        weights = [min(far[center][node] ** 2 for center in centers) for node in range(len(far))]
        at = rng.random() * sum(weights)
        for node, weight in enumerate(weights):
            at -= weight
            if at < 0 and node not in centers:
                break
        centers.append(node if node not in centers else min(set(range(len(far))) - set(centers)))
    return centers


def _assign(far: list[list[int]], centers: list[int]) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in centers]
    for node in range(len(far)):
        nearest = min(range(len(centers)), key=lambda i: (node != centers[i], far[centers[i]][node], i))
        groups[nearest].append(node)
    return groups


def dense_regions(network: Network, groups: list[list[int]], share: float) -> list[list[int]]:
    """Returns the part of every group near its centre: breadth first, one node per group in turn, until
    `share` of all nodes is reached.
    """
    waiting = []
    for group in groups:
        far = distances(network, group[0])
        waiting.append(sorted(group, key=lambda node: (far[node], node)))
    regions: list[list[int]] = [[] for _ in groups]
    left = round(share * network.node_count)
    while left > 0 and any(waiting):
        for region, queue in zip(regions, waiting, strict=True):
            if queue and left > 0:
                region.append(queue.pop(0))
                left -= 1
    return regions


def communities(network: Network) -> list[list[int]]:
    """Returns the switches in the groups of greatest modularity that greedy merging finds.

    Each group begins with its hub: the node with the most edges, among equals the lowest number.
    """
    switches = network.switches
    pairs = [(a, b) for a, b in network.ends if a != b]  # no holes
    edges = [(a, b) for a, b in pairs if not network.is_host[a] and not network.is_host[b]]
    if not edges:
        return [[switch] for switch in switches]
    groups = {switch: [switch] for switch in switches}
    degree = dict.fromkeys(switches, 0)
    between: dict[tuple[int, int], int] = {}
    for a, b in edges:
        degree[a] += 1
        degree[b] += 1
        between[min(a, b), max(a, b)] = 1
    while between:
        # Modularity gained by merging, times 2m squared: integers keep ties exact.
        gains = {pair: 2 * len(edges) * n - degree[pair[0]] * degree[pair[1]] for pair, n in between.items()}
        pair = min(gains, key=lambda pair: (-gains[pair], pair))
        if gains[pair] <= 0:
            break
        _merge(pair, groups, degree, between)
    return [_hub_first(network, group) for _, group in sorted(groups.items())]


def _merge(
    pair: tuple[int, int],
    groups: dict[int, list[int]],
    degree: dict[int, int],
    between: dict[tuple[int, int], int],
) -> None:
    kept, gone = pair
    groups[kept] += groups.pop(gone)
    degree[kept] += degree.pop(gone)
    del between[pair]
    for a, b in [key for key in between if gone in key]:
        other = b if a == gone else a
        key = (min(kept, other), max(kept, other))
        between[key] = between.get(key, 0) + between.pop((a, b))


def _hub_first(network: Network, group: list[int]) -> list[int]:
    hub = min(group, key=lambda node: (-len(network.out[node]), node))
    return [hub, *sorted(node for node in group if node != hub)]
