"""Interests that shift, as in the thesis' migrations (6.6.1): uniform, nearby, distant.

Five label switches in a ring with a chord, two hosts at each. A phase has publishers with a few receiver sets
each, all drawn from a seed.
"""

from __future__ import annotations

from random import Random
from typing import Final

from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.routing.virtual.candidates import Weights

Wishes = list[tuple[int, list[int]]]  # publisher, receivers

SWITCHES: Final = 5
LINKS: Final = ((0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 3))
HOSTS: Final = 2  # per switch
PHASES: Final = ("uniform", "nearby", "distant")
PUBLISHERS: Final = 4
SETS: Final = 2  # of each publisher
RECEIVERS: Final = 4


def label_network() -> Network:
    return with_hosts(build([f"s{n}" for n in range(1, SWITCHES + 1)], LINKS), HOSTS)


def wishes(network: Network, phase: str, seed: int) -> Wishes:
    """Returns what publishers send to whom in a phase; publishers stay, receivers move."""
    found: Wishes = []
    for publisher in Random(seed).sample(network.hosts, PUBLISHERS):
        near = _by_distance(network, publisher)
        among = {"uniform": near, "nearby": near[:6], "distant": near[-6:]}[phase]
        rng = Random(f"{seed} {phase} {publisher}")
        found += [(publisher, sorted(rng.sample(among, RECEIVERS))) for _ in range(SETS)]
    return found


def _by_distance(network: Network, host: int) -> list[int]:
    """Returns the other hosts, the nearest first; among equals by number."""
    far = {network.switch_of(host): 0}
    waiting = [network.switch_of(host)]
    for node in waiting:
        for link in network.out[node]:
            if network.heads[link] not in far:
                far[network.heads[link]] = far[node] + 1
                waiting.append(network.heads[link])
    return sorted((one for one in network.hosts if one != host), key=lambda one: (far[one], one))


def truth(wanted: Wishes) -> Weights:
    """Returns the weights of a phase: each set is as likely as the others."""
    found: dict[tuple[int, tuple[int, ...]], float] = {}
    for publisher, receivers in wanted:
        found[publisher, tuple(receivers)] = found.get((publisher, tuple(receivers)), 0.0) + 1.0
    return found
