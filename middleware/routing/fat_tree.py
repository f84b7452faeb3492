"""Routing on subscriptions in hierarchical networks: Algorithm 1 of Camus (section IV.C), and fat trees.

A policy associates each port of a switch with subscriptions; a packet leaves by every port, other than the
one by which it came, that one of its subscriptions matches. All links towards higher switches are one
logical port, UP: a copy for it takes one of them, and what came down is never sent up again.

The paper's traffic policy is wrong as printed. Its line 22 unites F_q of the switch above, which is what lies
behind the port that leads down to the switch itself; and it needs F_up of the switch above, which no line
reads. `mended` unites F_p of the other ports with F_up of the switch above, from the top down.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from .rng import Rng

UP: Final = -1
"""The logical port towards higher switches."""


class Policy(enum.Enum):
    """The policies: what F_up holds."""

    MEMORY = "MR"  # every packet
    TRAFFIC = "TR"  # what somebody wants who is reached that way
    PRINTED = "TR as printed"


class Link(Struct, frozen=True):
    """A link upwards: to `switch`, at its local `port`."""

    switch: int
    port: int


class Hierarchy(Struct, frozen=True):
    """A network in layers, the lowest first. Switches and hosts are numbers.

    `access[h]` is (switch, port) of a host; `up[s]` the links upwards; `down[s]` the ports downwards, and
    `behind[s, p]` what a port leads to: a switch, or a host as -1 - h. `layers[s]` is 0 at the edge.
    """

    access: tuple[tuple[int, int], ...]
    up: tuple[tuple[Link, ...], ...]
    down: tuple[tuple[int, ...], ...]
    behind: Mapping[tuple[int, int], int]
    layers: tuple[int, ...]

    def bottom_up(self) -> list[int]:
        return sorted(range(len(self.layers)), key=lambda switch: self.layers[switch])

    def without(self, link: tuple[int, int]) -> Hierarchy:
        """Returns the network without the link between a switch and one above it."""
        low, high = link
        gone = {one.port for one in self.up[low] if one.switch == high}
        up = tuple(
            tuple(one for one in links if not (switch == low and one.switch == high))
            for switch, links in enumerate(self.up)
        )
        down = tuple(
            tuple(port for port in ports if not (switch == high and port in gone))
            for switch, ports in enumerate(self.down)
        )
        behind = {key: to for key, to in self.behind.items() if key[0] != high or key[1] not in gone}
        return Hierarchy(self.access, up, down, behind, self.layers)


def fat_tree(k: int) -> Hierarchy:
    """Returns Al-Fares' fat tree of k-port switches: k pods of k/2 edge and k/2 aggregation switches,
    (k/2)**2 core switches, k**3/4 hosts. k = 4 is the paper's Fig. 3: 20 switches, 16 hosts.
    """
    if k < 2 or k % 2:
        raise ValueError(f"a fat tree has an even number of ports above 0, not {k}")
    half = k // 2
    edges, cores = k * half, half * half
    up: list[list[Link]] = [[] for _ in range(2 * edges + cores)]
    behind: dict[tuple[int, int], int] = {}
    access: list[tuple[int, int]] = []
    for edge in range(edges):
        for port in range(half):
            behind[edge, port] = -1 - len(access)
            access.append((edge, port))
        for other in range(half):
            above = edges + edge // half * half + other
            behind[above, edge % half] = edge
            up[edge].append(Link(above, edge % half))
    for aggregation in range(edges):
        for place in range(half):
            core = 2 * edges + aggregation % half * half + place
            pod = aggregation // half
            behind[core, pod] = edges + aggregation
            up[edges + aggregation].append(Link(core, pod))
    ports = [range(half)] * (2 * edges) + [range(k)] * cores
    layers = (0,) * edges + (1,) * edges + (2,) * cores
    return Hierarchy(tuple(access), tuple(map(tuple, up)), tuple(map(tuple, ports)), behind, layers)


Filters = dict[tuple[int, int], frozenset[int] | None]
"""(switch, port) -> the hosts whose subscriptions the port stands for; None: every packet (the paper's
`true`).
"""


def route(network: Hierarchy, hosts: Iterable[int], policy: Policy) -> Filters:
    """Algorithm 1. `hosts` are those with subscriptions. Ports without any are left out."""
    found: dict[tuple[int, int], frozenset[int]] = {}
    for host in hosts:
        place = network.access[host]
        found[place] = found.get(place, frozenset()) | {host}
    for switch in network.bottom_up():
        below = _below(network, switch, found)
        for link in network.up[switch]:
            key = (link.switch, link.port)
            found[key] = found.get(key, frozenset()) | below
    filters: Filters = {key: wanted for key, wanted in found.items() if wanted}
    for switch in reversed(network.bottom_up()):
        if not network.up[switch]:
            continue
        if policy is Policy.MEMORY:
            filters[switch, UP] = None
            continue
        above = (
            _printed(network, switch, found) if policy is Policy.PRINTED else _mended(network, switch, found)
        )
        found[switch, UP] = above
        if above:
            filters[switch, UP] = above
    return filters


def _below(network: Hierarchy, switch: int, found: dict[tuple[int, int], frozenset[int]]) -> frozenset[int]:
    wanted = (found.get((switch, port), frozenset()) for port in network.down[switch])
    return frozenset().union(*wanted)


def _printed(network: Hierarchy, switch: int, found: dict[tuple[int, int], frozenset[int]]) -> frozenset[int]:
    """Lines 18 to 22 as they stand."""
    link = network.up[switch][0]
    others = [port for port in network.down[link.switch] if port != link.port]
    return frozenset().union(*(found.get((link.switch, link.port), frozenset()) for _ in others))


def _mended(network: Hierarchy, switch: int, found: dict[tuple[int, int], frozenset[int]]) -> frozenset[int]:
    """Unites over all links upwards: after a failure they may reach different hosts."""
    wanted: frozenset[int] = frozenset()
    for link in network.up[switch]:
        others = (port for port in network.down[link.switch] if port != link.port)
        wanted |= frozenset().union(*(found.get((link.switch, port), frozenset()) for port in others))
        wanted |= found.get((link.switch, UP), frozenset())
    return wanted


# --- the logical port


class UpChoice(enum.Enum):
    """How a copy for UP takes one of the links."""

    RANDOM = "random"
    ROUND_ROBIN = "round robin"
    ECMP = "ECMP"


def usable(network: Hierarchy) -> tuple[tuple[Link, ...], ...]:
    """Returns the links upwards by which a switch reaches as many hosts as by all together; after a failure
    some higher switches no longer reach every host. If no link reaches them all, those that reach most.
    """
    below: dict[int, frozenset[int]] = {}
    for switch in network.bottom_up():
        ends = [network.behind[switch, port] for port in network.down[switch]]
        below[switch] = frozenset().union(*(below[end] if end >= 0 else {-1 - end} for end in ends))
    found = list(network.up)
    beyond: dict[int, frozenset[int]] = {}
    for switch in reversed(network.bottom_up()):
        reached = [below[link.switch] | beyond[link.switch] for link in network.up[switch]]
        most = max(map(len, reached), default=0)
        pairs = zip(network.up[switch], reached, strict=True)
        found[switch] = tuple(link for link, hosts in pairs if len(hosts) == most)
        beyond[switch] = frozenset().union(*(hosts for hosts in reached if len(hosts) == most))
    return tuple(found)


class Uplinks:
    """The choices of one network; `flow` is a hash of what makes a flow."""

    def __init__(self, network: Hierarchy, how: UpChoice, rng: Rng) -> None:
        self._links = usable(network)
        self._how = how
        self._rng = rng
        self._turns: dict[int, int] = {}

    def choose(self, switch: int, flow: int) -> Link | None:
        """Returns one of the links of a switch; None if it has none."""
        links = self._links[switch]
        if not links:
            return None
        if self._how is UpChoice.RANDOM:
            return links[self._rng.randrange(len(links))]
        if self._how is UpChoice.ECMP:
            return links[flow % len(links)]
        turn = self._turns.get(switch, 0)
        self._turns[switch] = turn + 1
        return links[turn % len(links)]


class Delivery(Struct, frozen=True):
    """The result of one packet: hosts that got it, and copies on links into each layer of switches."""

    hosts: frozenset[int]
    copies: tuple[int, ...]


def deliver(
    network: Hierarchy,
    filters: Filters,
    source: int,
    matches: Callable[[int, int, int], bool],
    uplinks: Uplinks,
    flow: int = 0,
) -> Delivery:
    """Sends one packet of a host through the network.

    `matches(switch, port, host)`: whether the packet matches the host's subscriptions as that port has them.
    """
    switch, port = network.access[source]
    left = [(switch, port)]
    got: set[int] = set()
    copies = [0] * (max(network.layers) + 1)
    while left:
        switch, came = left.pop()
        copies[network.layers[switch]] += 1
        for out in (*network.down[switch], UP):
            if out == came or (switch, out) not in filters:
                continue
            wanted = filters[switch, out]
            if wanted is not None and not any(matches(switch, out, host) for host in wanted):
                continue
            if out != UP:
                to = network.behind[switch, out]
                if to < 0:
                    got.add(-1 - to)
                else:
                    left.append((to, UP))
            elif (link := uplinks.choose(switch, flow)) is not None:
                left.append((link.switch, link.port))
    return Delivery(frozenset(got), tuple(copies))


def changed(before: Filters, after: Filters) -> set[int]:
    """Returns the switches whose rules differ."""
    return {
        key[0]
        for key in before.keys() | after.keys()
        if before.get(key, frozenset()) != after.get(key, frozenset())
    }
