"""Jellyfish: switches joined at random, all of one degree.

Source: Singla, Hong, Popa, Godfrey, NSDI 2012: pairs with free ports are joined at random; when all of them
are joined already, a random edge is replaced by two to serve two free ports.
"""

from __future__ import annotations

from ..network import Network, RoutingError, build, with_hosts
from ..rng import Rng

_ATTEMPTS = 100


def jellyfish(switches: int, degree: int, rng: Rng, hosts: int = 1) -> Network:
    """Returns a connected network of `switches`, each joined to `degree` others, with `hosts` on each.

    If `switches * degree` is odd, one switch has one port less. Raises RoutingError if no such network
    exists.
    """
    if not 2 <= degree < switches:
        raise RoutingError(
            f"jellyfish: degree {degree} with {switches} switches; from 2 to one less than these"
        )
    for _ in range(_ATTEMPTS):
        edges = _join(switches, degree, rng)
        if _is_connected(switches, edges):
            names = [f"s{number}" for number in range(switches)]
            network = build(names, sorted(edges))
            return with_hosts(network, hosts) if hosts else network
    raise RoutingError(f"jellyfish: no connected network of {switches} switches and degree {degree} found")


def _join(switches: int, degree: int, rng: Rng) -> set[tuple[int, int]]:
    edges: set[tuple[int, int]] = set()
    free = dict.fromkeys(range(switches), degree)
    while True:
        open_switches = [switch for switch in free if free[switch]]
        pairs = [
            (a, b)
            for i, a in enumerate(open_switches[:40])
            for b in open_switches[i + 1 :]
            if (a, b) not in edges
        ]
        if pairs:
            rng.shuffle(open_switches)
            pair = _random_pair(open_switches, edges) or pairs[rng.randrange(len(pairs))]
            edges.add(pair)
            for end in pair:
                free[end] -= 1
        elif not _break_up(free, edges, rng):
            return edges


def _random_pair(shuffled: list[int], edges: set[tuple[int, int]]) -> tuple[int, int] | None:
    pair = (min(shuffled[:2]), max(shuffled[:2]))
    return None if pair in edges else pair


def _break_up(free: dict[int, int], edges: set[tuple[int, int]], rng: Rng) -> bool:
    """Inserts two free ports, of one switch or of two joined ones, into an edge between two others. Returns
    whether one was found.
    """
    ports = [switch for switch, count in free.items() for _ in range(min(count, 2))][:2]
    listed = sorted(edges)
    rng.shuffle(listed)
    for a, b in listed if len(ports) == 2 else ():
        for c, d in ((a, b), (b, a)):
            new = {(min(ports[0], c), max(ports[0], c)), (min(ports[1], d), max(ports[1], d))}
            if len({a, b} & set(ports)) == 0 and len(new - edges) == 2:
                edges.remove((a, b))
                edges |= new
                for switch in ports:
                    free[switch] -= 1
                return True
    return False


def _is_connected(nodes: int, edges: set[tuple[int, int]]) -> bool:
    near: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    seen, waiting = {0}, [0]
    while waiting:
        for other in near[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return len(seen) == nodes
