"""Paths through switches without support for stacks (3.4.1): there the packet travels inside IP and UDP.

An overlay consists of the supporting switches and the hosts. Two of them that are joined by legacy switches
have a tunnel instead of a link. Trees, encoders and forwarders work on it as on any network; `under` lists
the links that a tunnel really uses, and `bytes_below` counts them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..forwarding import Outcome
from ..network import Network, RoutingError, build

# IPv4's 20 bytes and UDP's 8 (port 39321) around the stack.
TUNNEL_BYTES = 28


class Overlay(Struct, frozen=True):
    """`network` shares node names with the network below; `under` is per link of it."""

    network: Network
    under: list[tuple[int, ...]]

    def bytes_below(self, outcome: Outcome) -> dict[int, int]:
        """Returns the bytes that an overlay's packet put on the links below, including tunnel headers."""
        found: dict[int, int] = {}
        for link, amount in outcome.link_bytes.items():
            way = self.under[link]
            extra = TUNNEL_BYTES * outcome.copies[link] if len(way) > 1 else 0
            for one in way:
                found[one] = found.get(one, 0) + amount + extra
        return found


def overlay(network: Network, legacy: Iterable[int]) -> Overlay:
    """Returns the network without its legacy switches. Raises RoutingError if one is not a switch, or none is
    left.

    A host on a legacy switch ends all tunnels itself: others can reach only hosts that support this. Here it
    gets one tunnel, to the nearest supporting switch.
    """
    gone = set(legacy)
    if any(network.is_host[node] for node in gone):
        raise RoutingError("a host is not a legacy switch")
    kept = [node for node in range(network.node_count) if node not in gone]
    if not any(not network.is_host[node] for node in kept):
        raise RoutingError("no switch with support for stacks is left")
    ways = _direct(network, gone)
    for node in kept:
        if not network.is_host[node]:
            for end, way in _through(network, node, gone).items():
                ways.setdefault((min(node, end), max(node, end)), way if node < end else _back(way))
    _one_tunnel_per_host(network, ways)
    return _build(network, kept, ways)


Ways = dict[tuple[int, int], tuple[int, ...]]


def _direct(network: Network, gone: set[int]) -> Ways:
    return {
        (min(a, b), max(a, b)): (network.link(min(a, b), max(a, b)),)
        for a, b in network.ends
        if a not in gone and b not in gone
    }


def _through(network: Network, start: int, gone: set[int]) -> dict[int, tuple[int, ...]]:
    """Returns the shortest paths from a node over legacy switches alone to other nodes."""
    ways: dict[int, tuple[int, ...]] = {start: ()}
    found: dict[int, tuple[int, ...]] = {}
    level = [start]
    while level:
        below = []
        for node in level:
            for link in network.out[node]:
                head = network.heads[link]
                if head not in ways and (node in gone or head in gone):
                    ways[head] = (*ways[node], link)
                    if head in gone:
                        below.append(head)
                    else:
                        found[head] = ways[head]
        level = below
    return found


def _back(way: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(link ^ 1 for link in reversed(way))


def _one_tunnel_per_host(network: Network, ways: Ways) -> None:
    for host in network.hosts:
        mine = sorted((len(ways[pair]), pair) for pair in ways if host in pair)
        for _, pair in mine[1:]:
            del ways[pair]


def _build(network: Network, kept: list[int], ways: Ways) -> Overlay:
    place = {node: number for number, node in enumerate(kept)}
    pairs = list(ways)
    over = build(
        [network.names[node] for node in kept],
        [(place[a], place[b]) for a, b in pairs],
        hosts=[place[host] for host in network.hosts],
    )
    under: list[tuple[int, ...]] = []
    for pair in pairs:
        under += [ways[pair], _back(ways[pair])]
    return Overlay(over, under)
