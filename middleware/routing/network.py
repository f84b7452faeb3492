"""A network: switches and hosts, joined by links.

An undirected edge `e` is two directed links: `2e` from its first end to its second, `2e + 1` back. `link ^ 1`
is the reverse link and `link >> 1` the edge. A node's ports are numbered from 1 in the order in which its
edges were given, unless they are given themselves. A network without hosts is the thesis' chapter 6: every
node is a switch with its host inside.

The number of an edge names it on the wire. So an edge that is taken out leaves a hole: its number has an edge
from node 0 to itself (`HOLE`), which no node has among its links.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

HOLE: Final = (0, 0)


class RoutingError(ValueError):
    """A network, a receiver set or a limit that no tree or stack can serve. The text states which."""


class Unreachable(RoutingError):
    """There is no path between two nodes of a tree: the network is disconnected."""


class Network:
    """A network, created by `build` and never changed. Lists are indexed by node, or by link if stated."""

    def __init__(
        self,
        names: list[str],
        is_host: list[bool],
        ends: list[tuple[int, int]],
        weights: list[int],
        ports: Sequence[int] = (),
    ) -> None:
        """`ports`: by directed link; by default in the order of each node's edges."""
        self.names = names
        self.is_host = is_host
        self.ends = ends
        self.weights = weights
        self.tails: list[int] = []
        self.heads: list[int] = []
        self.ports: list[int] = []
        self.out: list[list[int]] = [[] for _ in names]
        self.edge_masks: list[int] = [0] * len(names)
        self.link_masks: list[int] = [0] * len(names)
        self.positions: list[tuple[float, float]] = []
        self.host_mask = 0
        for node in range(len(names)):
            if is_host[node]:
                self.host_mask |= 1 << node
        for edge in range(len(ends)):
            first, second = ends[edge]
            self._add(2 * edge, first, second)
            self._add(2 * edge + 1, second, first)
        if ports:
            self.ports = list(ports)
        self.part = self._parts()  # by node; nodes with the same number can reach each other

    def _parts(self) -> list[int]:
        found = [-1] * len(self.names)
        for first in range(len(self.names)):
            waiting = [first] if found[first] < 0 else []
            while waiting:
                node = waiting.pop()
                if found[node] < 0:
                    found[node] = first
                    waiting += [self.heads[link] for link in self.out[node]]
        return found

    def _add(self, link: int, tail: int, head: int) -> None:
        self.tails.append(tail)
        self.heads.append(head)
        if tail == head:  # a hole
            self.ports.append(0)
            return
        self.out[tail].append(link)
        self.ports.append(len(self.out[tail]))
        self.edge_masks[tail] |= 1 << (link >> 1)
        self.link_masks[tail] |= 1 << link

    @property
    def node_count(self) -> int:
        return len(self.names)

    @property
    def edge_count(self) -> int:
        return len(self.ends)

    @property
    def hosts(self) -> list[int]:
        return [node for node in range(len(self.names)) if self.is_host[node]]

    @property
    def switches(self) -> list[int]:
        return [node for node in range(len(self.names)) if not self.is_host[node]]

    @property
    def clients(self) -> list[int]:
        """The nodes with publishers and subscribers: hosts, or every node if hosts are inside."""
        return self.hosts or list(range(len(self.names)))

    def link(self, tail: int, head: int) -> int:
        """Returns the link from one node to a neighbour. Raises RoutingError if there is none."""
        for link in self.out[tail]:
            if self.heads[link] == head:
                return link
        raise RoutingError(f"no link from {self.names[tail]} to {self.names[head]}")

    def link_at(self, node: int, port: int) -> int:
        """Returns the link that leaves a port, or -1."""
        out = self.out[node]
        if 0 < port <= len(out) and self.ports[out[port - 1]] == port:
            return out[port - 1]
        for link in out:
            if self.ports[link] == port:
                return link
        return -1

    def switch_of(self, host: int) -> int:
        """Returns the switch that a host is attached to; for a switch, the switch itself."""
        return self.heads[self.out[host][0]] if self.is_host[host] else host

    def node(self, name: str) -> int:
        """Returns a node by its name, or by its number if no name matches. Raises RoutingError if there is
        none.
        """
        if name in self.names:
            return self.names.index(name)
        if name.isdigit() and int(name) < len(self.names):
            return int(name)
        raise RoutingError(f"no node {name!r}; there are {len(self.names)}, such as {self.names[0]!r}")

    def link_name(self, link: int) -> str:
        return f"{self.names[self.tails[link]]} -> {self.names[self.heads[link]]}"

    def without(self, edges: int) -> Network:
        """Returns the network without some edges (bits): all others keep their numbers and ports.

        A host that has no edge left is none in it.
        """
        ends = [HOLE if edges >> edge & 1 else self.ends[edge] for edge in range(len(self.ends))]
        left = {node for pair in ends if pair[0] != pair[1] for node in pair}
        is_host = [host and node in left for node, host in enumerate(self.is_host)]
        found = Network(self.names, is_host, ends, self.weights, self.ports)
        found.positions = self.positions
        return found


def build(
    names: Sequence[str],
    edges: Iterable[tuple[int, int]],
    *,
    hosts: Iterable[int] = (),
    weights: Iterable[int] | None = None,
) -> Network:
    """Returns a network from edges between node numbers.

    Parallel edges become one, with the smallest weight; loops are left out. `weights` goes with `edges`; the
    default weight is 1. Raises RoutingError for unknown nodes, repeated names, and hosts that are not
    attached to exactly one switch.
    """
    if not names:
        raise RoutingError("a network has at least one node")
    if len(set(names)) != len(names):
        raise RoutingError("a node name is given twice")
    merged: dict[tuple[int, int], int] = {}
    listed = list(edges)
    for (first, second), weight in zip(listed, weights or [1] * len(listed), strict=True):
        if not (0 <= first < len(names) and 0 <= second < len(names)):
            raise RoutingError(f"edge {first} -- {second} names an unknown node")
        if weight < 0:
            raise RoutingError(f"edge {first} -- {second} has weight {weight}, which is below 0")
        if first != second:
            key = (min(first, second), max(first, second))
            merged[key] = min(weight, merged.get(key, weight))
    is_host = [False] * len(names)
    for host in hosts:
        is_host[host] = True
    network = Network(list(names), is_host, list(merged), list(merged.values()))
    _check_hosts(network)
    return network


def _check_hosts(network: Network) -> None:
    for host in network.hosts:
        out = network.out[host]
        if len(out) != 1 or network.is_host[network.heads[out[0]]]:
            raise RoutingError(f"host {network.names[host]} must be attached to exactly one switch")


def with_hosts(network: Network, per_switch: int = 1) -> Network:
    """Returns the same network with hosts on every switch; a switch's links to others keep their ports."""
    names, edges, hosts = list(network.names), list(network.ends), []
    for switch in network.switches:
        for number in range(per_switch):
            hosts.append(len(names))
            edges.append((switch, len(names)))
            names.append(f"{network.names[switch]}/{number}")
    weights = [*network.weights, *([1] * len(hosts))]
    found = build(names, edges, hosts=[*network.hosts, *hosts], weights=weights)
    if network.positions:
        found.positions = [*network.positions, *(network.positions[found.switch_of(h)] for h in hosts)]
    return found


def numbered(
    names: Sequence[str], ends: Sequence[tuple[int, int]], hosts: Iterable[int], ports: Sequence[int] = ()
) -> Network:
    """Returns a network whose edges have given numbers, with holes.

    Raises RoutingError for unknown nodes, repeated names, an edge that is given twice, and hosts that are not
    attached to exactly one switch.
    """
    edges = [pair for pair in ends if pair[0] != pair[1]]
    known = build(names, edges, hosts=hosts)
    if known.edge_count != len(edges):
        raise RoutingError("an edge is given twice: ids of links would be others")
    return Network(known.names, known.is_host, list(ends), [1] * len(ends), ports)


def described(
    switches: Iterable[str], hosts: Iterable[str], links: Iterable[tuple[str, str]], kind: str = "switch"
) -> Network:
    """Returns the network of a description by names. `kind`: the word for a switch in errors.

    `links`: an end may be a node's name, or `name:port`. A port that is not given is the end's place among
    the node's links.

    Raises RoutingError if two nodes share a name, a link names an unknown node or is given twice, or a host
    is not attached to exactly one switch.
    """
    inner = list(switches)
    names = [*inner, *hosts]
    if len(set(names)) != len(names):
        raise RoutingError(f"a host and a {kind} have one name")
    places = {name: number for number, name in enumerate(names)}
    pairs = [(end_of(one, places), end_of(other, places)) for one, other in links]
    for name, _ in [end for pair in pairs for end in pair]:
        if name not in places:
            raise RoutingError(f"a link ends at {name!r}, which is no host and no {kind}")
    edges = [(places[one], places[other]) for (one, _), (other, _) in pairs]
    network = build(names, edges, hosts=range(len(inner), len(names)))
    if network.edge_count != len(edges):
        raise RoutingError("a link is given twice")
    given = []
    for (one, port), (other, its) in pairs:  # edges begin at the node with the lower number
        given += [port, its] if places[one] < places[other] else [its, port]
    network.ports = [port or own for port, own in zip(given, network.ports, strict=True)]
    return network


def end_of(text: str, places: Collection[str]) -> tuple[str, int]:
    """Returns the name and the port of a link's end in a description; port 0 if none is given."""
    name, _, port = text.rpartition(":")
    if text not in places and name in places and port.isdigit() and int(port):
        return name, int(port)
    return text, 0


def check_ports(network: Network) -> Network:
    """Returns the network. Raises RoutingError if a port of a switch has two links."""
    for node in network.switches:
        ports = [network.ports[link] for link in network.out[node]]
        if len(set(ports)) != len(ports):
            twice = next(port for port in ports if ports.count(port) > 1)
            raise RoutingError(
                f"port {twice} of {network.names[node]} has two links: write ports with ends, as name:port"
            )
    return network
