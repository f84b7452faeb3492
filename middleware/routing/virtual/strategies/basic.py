"""Strategies that know only the network: broadcast, random, random-variant."""

from __future__ import annotations

from collections.abc import Iterator

from ...bits import mask_of
from ...network import Network
from ...rng import Rng
from ...rooted import breadth_first, center, distances
from ...steiner import steiner_tree
from ...steiner.common import prune
from .knowledge import Knowledge


def roots(network: Network) -> list[int]:
    """Returns the roots of broadcast trees: the switches farthest from hosts (a fabric's spines), or the
    centre.
    """
    if not network.hosts:
        return [center(network, network.switches)]
    hops = [distances(network, host) for host in network.hosts]
    far = [min(one[switch] for one in hops) for switch in network.switches]
    return [switch for switch, least in zip(network.switches, far, strict=True) if least == max(far)]


def broadcast_tree(network: Network, root: int) -> int:
    """Returns the breadth-first tree from a root to all clients, without branches that lead to none."""
    return prune(network, breadth_first(network, root), mask_of(network.clients))


def broadcast(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields one tree to all clients from every root; one in all for a network without hosts."""
    for root in roots(network):
        yield broadcast_tree(network, root)


def random_trees(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields Steiner trees over random sets of clients, of random size, without end."""
    clients = network.clients
    while len(clients) > 1:
        count = 2 + rng.randrange(len(clients) - 1)
        yield steiner_tree(network, rng.sample(clients, count))


def random_variant(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields one tree over all clients, then over random halves, quarters and so on down to pairs; repeats
    without end.
    """
    clients = list(network.clients)
    while len(clients) > 1:
        groups = 1
        while len(clients) >= 2 * groups:
            rng.shuffle(clients)
            for group in range(groups):
                yield steiner_tree(network, clients[group::groups])
            groups *= 2
