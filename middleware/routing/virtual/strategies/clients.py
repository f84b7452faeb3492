"""Strategies that know the clients: tree, shared, path, threshold, relation, frequency-relation, clusters,
hybrid, hybrid-partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...bits import mask_of
from ...network import Network
from ...rng import Rng
from ...steiner import steiner_tree
from ...steiner.common import prune
from .basic import broadcast_tree, roots
from .knowledge import Knowledge
from .topology import hub_and_spoke, partitions

ALWAYS = 1.0


def prune_tree(network: Network, broadcast: int, terminals: list[int], least: int = 1) -> int:
    """Algorithm 5.2: returns a broadcast tree without branches to nodes outside `terminals`.

    Returns 0 if at most `least` edges are left. The printed loop ends when the set of leaves stays the same.
    """
    tree = prune(network, broadcast, mask_of(terminals))
    return tree if tree.bit_count() > least else 0


def base_trees(network: Network, knowledge: Knowledge, share: float) -> Iterator[int]:
    """Yields, for every publisher, the pruned broadcast tree to subscribers with at least a share of its
    notifications.

    Publishers are spread over the broadcast trees by their number.
    """
    starts = [broadcast_tree(network, root) for root in roots(network)]
    for number, publisher in enumerate(sorted(knowledge.subscribers)):
        stable = [node for node, part in knowledge.subscribers[publisher].items() if part >= share]
        yield prune_tree(network, starts[number % len(starts)], [publisher, *stable])


def virtual_paths(network: Network, knowledge: Knowledge) -> Iterator[int]:
    """Yields the path from every client to the root of a broadcast tree; all clients for one root, then for
    the next.
    """
    for root in roots(network):
        tree = broadcast_tree(network, root)
        for client in network.clients:
            yield prune_tree(network, tree, [client, root])


def tree(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields a tree per publisher to all potential subscribers."""
    return base_trees(network, knowledge, 0)


def shared(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields a tree for all publishers of a broadcast tree, to all their potential subscribers: fewer rules
    than a tree for each, and more stops (5.3.4, "shared").
    """
    starts = [broadcast_tree(network, root) for root in roots(network)]
    publishers = sorted(knowledge.subscribers)
    for number, start in enumerate(starts):
        own = publishers[number :: len(starts)]
        ends = {node for one in own for node in (one, *knowledge.subscribers[one])}
        if own:
            yield prune_tree(network, start, sorted(ends))


def path(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields a tree per publisher to permanent matches only, then virtual paths."""
    yield from base_trees(network, knowledge, ALWAYS)
    yield from virtual_paths(network, knowledge)


def threshold(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields a tree per publisher to subscribers with at least the threshold's share, then virtual paths."""
    yield from base_trees(network, knowledge, knowledge.threshold)
    yield from virtual_paths(network, knowledge)


def threshold_hops(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields threshold's trees without virtual paths: other receivers are reached by hops (Fig. 5.13)."""
    return base_trees(network, knowledge, knowledge.threshold)


def relation(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields a Steiner tree per publisher over all its subscribers."""
    return _steiner_trees(network, knowledge, 0)


def frequency_relation(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields a Steiner tree per publisher over subscribers with at least the threshold's share."""
    return _steiner_trees(network, knowledge, knowledge.threshold)


def _steiner_trees(network: Network, knowledge: Knowledge, share: float) -> Iterator[int]:
    for publisher in sorted(knowledge.subscribers):
        found = [node for node, part in knowledge.subscribers[publisher].items() if part >= share]
        yield steiner_tree(network, [publisher, *found])


def clusters(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields hub-and-spoke trees on the dense regions; the hub is the node with the most edges."""
    groups = []
    for region in knowledge.regions:
        switches = [node for node in region if not network.is_host[node]]
        if switches:
            hub = min(switches, key=lambda node: (-len(network.out[node]), node))
            groups.append([hub, *(node for node in switches if node != hub)])
    return hub_and_spoke(network, groups, rng) if groups else iter(())


def hybrid(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields trees of frequency-relation and clusters in turn."""
    return _in_turn(frequency_relation(network, knowledge, rng), clusters(network, knowledge, rng))


def hybrid_partitions(network: Network, knowledge: Knowledge, rng: Rng) -> Iterator[int]:
    """Yields trees of frequency-relation and partitions in turn (6.6.2: "an alternative implementation")."""
    return _in_turn(frequency_relation(network, knowledge, rng), partitions(network, knowledge, rng))


def _in_turn(*trees: Iterator[int]) -> Iterator[int]:
    queues = list(trees)
    while queues:
        for queue in list(queues):
            edges = next(queue, -1)
            if edges < 0:
                queues.remove(queue)
            else:
                yield edges
