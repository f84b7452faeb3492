"""Publishers and subscribers on a network: dense regions, notification shares, and migration.

The thesis, 6.5.2 and 6.6.1: 30 % of the clients publish, each to 30 % of the others; four regions around
k-means centres hold 60 % of the nodes, and clients are more likely there. The factor is not given; here it is
nine. A subscriber gets a share of a publisher's notifications, drawn evenly from 1 % to 100 %.
"""

from __future__ import annotations

from random import Random

from msgspec import Struct

from ..routing.clusters import dense_regions, k_medoids
from ..routing.network import Network
from ..routing.virtual.stacks import Request, request
from ..routing.virtual.strategies import Knowledge

DENSE = 9.0
SHARE = 0.3
DENSE_NODES = 0.6
SCENARIOS = ("uniform", "nearby", "distant")


class Population(Struct, frozen=True):
    """Every publisher's subscribers, with the share of its notifications that each gets."""

    subscribers: dict[int, dict[int, float]]
    regions: list[list[int]]

    @property
    def knowledge(self) -> Knowledge:
        return Knowledge(self.subscribers, self.regions)


def draw(clients: list[int], weights: list[float], count: int, rng: Random) -> list[int]:
    """Returns `count` different clients, each drawn by its weight."""
    keys = {client: rng.random() ** (1 / weight) for client, weight in zip(clients, weights, strict=True)}
    return sorted(clients, key=lambda client: keys[client], reverse=True)[:count]


def density(network: Network, regions: list[list[int]], dense: float = DENSE) -> list[float]:
    """Returns the weight of every client: `dense` in a region, 1 outside."""
    inside = {node for region in regions for node in region}
    return [dense if network.switch_of(client) in inside else 1.0 for client in network.clients]


def populate(
    network: Network, weights: list[float], share: float, rng: Random, regions: list[list[int]]
) -> Population:
    """Returns a newly drawn population; `share` of the other clients subscribe to each publisher."""
    clients = network.clients
    publishers = draw(clients, weights, max(1, round(SHARE * len(clients))), rng)
    return Population({one: _subscribers(one, clients, weights, share, rng) for one in publishers}, regions)


def _subscribers(
    publisher: int, clients: list[int], weights: list[float], share: float, rng: Random
) -> dict[int, float]:
    others = [(c, w) for c, w in zip(clients, weights, strict=True) if c != publisher]
    count = max(1, round(share * len(clients)))
    chosen = draw([c for c, _ in others], [w for _, w in others], count, rng)
    return {client: 0.01 + 0.99 * rng.random() for client in sorted(chosen)}


def scenario(network: Network, name: str, share: float, rng: Random) -> tuple[Population, Population]:
    """Returns the populations before and after all have moved (6.6.1)."""
    if name == "distant":
        groups = k_medoids(network, 4, rng)
        old, new = groups[::2], groups[1::2]
        first, second = (_dense_parts(network, some) for some in (old, new))
        known = [*first, *second]  # trees are made for the new clusters too (6.6.3)
    else:
        known = first = second = dense_regions(network, k_medoids(network, 4, rng), DENSE_NODES)
    dense = 1.0 if name == "uniform" else DENSE
    before = populate(network, density(network, first, dense), share, rng, known)
    after = populate(network, density(network, second, dense), share, rng, known)
    return before, after


def _dense_parts(network: Network, groups: list[list[int]]) -> list[list[int]]:
    """Returns the dense regions of some of the groups, as large a part of these as is dense of the whole
    network.
    """
    nodes = sum(len(group) for group in groups)
    return dense_regions(network, groups, DENSE_NODES * nodes / network.node_count)


def moved(before: Population, after: Population, churn: float, rng: Random) -> Population:
    """Returns the population after a share of all publishers, and of every publisher's subscribers, has
    moved.
    """
    mixed: dict[int, dict[int, float]] = {}
    pairs = list(zip(before.subscribers, after.subscribers, strict=True))
    turn = list(range(len(pairs)))
    rng.shuffle(turn)
    gone = {turn[i] for i in range(round(churn * len(turn)))}
    for number, (old, new) in enumerate(pairs):
        publisher = new if number in gone else old
        if publisher in mixed:  # somebody else moved there first
            publisher = old if publisher == new else new
        mixed[publisher] = _mix(before.subscribers[old], after.subscribers[new], publisher, churn, rng)
    return Population(mixed, before.regions)


def _mix(
    old: dict[int, float], new: dict[int, float], publisher: int, churn: float, rng: Random
) -> dict[int, float]:
    leaving = round(churn * len(old))
    kept = [node for node in rng.sample(sorted(old), len(old) - leaving) if node != publisher]
    found = {node: old[node] for node in kept}
    for node in rng.sample(sorted(new), len(new)):
        if len(found) < len(old) and node != publisher and node not in found:
            found[node] = new[node]
    return found or dict.fromkeys([next(n for n in (*new, *old) if n != publisher)], 1.0)


def notifications(network: Network, population: Population, count: int, rng: Random) -> list[Request]:
    """Returns `count` notifications of random publishers, each to subscribers drawn by their shares."""
    found: list[Request] = []
    publishers = sorted(population.subscribers)
    while len(found) < count:
        publisher = rng.choice(publishers)
        shares = population.subscribers[publisher]
        receivers = [node for node, part in shares.items() if rng.random() < part and node != publisher]
        if receivers:
            found.append(request(network, publisher, receivers))
    return found
