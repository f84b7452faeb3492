"""The tree of a network of STARE switches, and probes of its links. Pure.

STARE needs a tree: what goes in a circle is multiplied. The tree changes only where a link of it carries
nothing and another way leads around; a link that is up again stays out. So two switches never believe in
different trees for longer than it takes to tell them, and a link between them is in a tree for both or idle.

    Ethernet | IPv4 | UDP | STARE: SUB-remove of state 0, the number of the link as VNF id and update number

The controller of A sends a probe out of its port, and gets it back from B, whose program hands every request
to the controller.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from treecast.middleware.control.links.probes import Probe
from treecast.middleware.control.links.ways import ways
from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.steiner.common import spanning_tree
from treecast.middleware.wire.stare import StareError, StareHeader, StareKind
from treecast.middleware.wire.stare_frames import StareFrame, decode_frame, encode_frame

PROBED: Final = 0  # a state that is never allotted
_BITS: Final = 14  # of a VNF id, and of an update number
_PORT: Final = 2


def tree_of(network: Network, down: int, before: int) -> int:
    """Returns the edges (bits) of the tree: as many that are up as can be, then those of the tree before.

    `down`: links that carry nothing (bits).
    """
    costs = [2 * (down >> 2 * edge & 1) + (not before >> edge & 1) for edge in range(network.edge_count)]
    return spanning_tree(network, list(range(network.edge_count)), costs)


def inner_ports(network: Network, node: int, edges: int) -> frozenset[int]:
    """Returns the ports of a switch to other switches, over these edges."""
    links = [link for link in network.out[node] if edges >> (link >> 1) & 1]
    return frozenset(network.ports[link] for link in links if not network.is_host[network.heads[link]])


def ports_towards(network: Network, tree: int) -> dict[int, dict[int, int]]:
    """Returns the ports towards hosts along a tree, by switch and host."""
    every = (1 << network.edge_count) - 1
    found = ways(network.without(every & ~tree), network.hosts, {})
    return {
        switch: {host: network.ports[link] for host, link in its.items()} for switch, its in found.items()
    }


class PortProbes:
    """`control.links.probes.Form`. A link of a switch that is not reached is down: its controller is a part
    of the switch."""

    blind_is_down = True

    def __init__(self, network: Network, mac: bytes, address: bytes) -> None:
        self._network = network
        self._mac, self._address = mac, address
        ends = zip(network.tails, network.heads, strict=True)
        self.links = [
            link for link, pair in enumerate(ends) if not any(network.is_host[node] for node in pair)
        ]

    def probe(self, link: int, reached: Collection[int], down: int) -> Probe | None:
        if not {self._network.tails[link], self._network.heads[link]} <= set(reached):
            return None
        header = StareHeader(StareKind.SUB_REMOVE, PROBED, link >> _BITS, link & (1 << _BITS) - 1)
        frame = encode_frame(StareFrame(header, self._mac, self._address))
        return Probe(self._network.tails[link], self._network.ports[link].to_bytes(_PORT) + frame)

    def link_of(self, packet: bytes) -> int:
        """Returns the link that a packet tells of, which begins with the port it came by; -1 if it is no
        probe of a link that ends there."""
        try:
            header = decode_frame(memoryview(packet)[_PORT:]).header
        except StareError:
            return -1
        link = header.vnf << _BITS | header.update
        if header.state != PROBED or header.kind is not StareKind.SUB_REMOVE or link not in self.links:
            return -1
        return link if self._network.ports[link ^ 1] == int.from_bytes(packet[:_PORT]) else -1


def names_of(network: Network, edges: int) -> list[str]:
    """Returns the links between switches among some edges, for operators."""
    found = [network.ends[edge] for edge in members(edges)]
    inner = [pair for pair in found if not any(network.is_host[node] for node in pair)]
    return [f"{network.names[one]}-{network.names[other]}" for one, other in inner]
