"""Probes of links between label switches: one way, led by hop labels alone. Pure.

    Ethernet 0x9999 | hop: A's link to B | hop: B's controller | nonce (8) | number of the link (4)

The controller of A sends it into A, and gets it back from B. It cannot come back by A: a switch sends no copy
to where a packet came from, and removes all its own labels at once. So each direction has its own probe.

A switch whose session is lost may well forward. Then the probe begins or ends one link further on: D to A to
B, or A to B to C. A link of a switch that is not reached and has no further neighbour cannot be probed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from treecast.middleware.control.links.probes import Probe
from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.wire.label_stack import ETHERTYPE, LAST_ID, encode_labels, end_of_labels, hop

from .wires import MOST_LINKS

_ETHERNET: Final = bytes(12) + ETHERTYPE.to_bytes(2)
_NUMBER: Final = 4
NONCE: Final = 8  # bytes; hosts that do not know it cannot answer for a link


def controller_id(node: int) -> int:
    """Returns the id of the hop label that leads from a switch to its controller. No link has it.

    Raises RoutingError if there are too many nodes.
    """
    if LAST_ID - node < 2 * MOST_LINKS:
        raise RoutingError(f"more than {LAST_ID - 2 * MOST_LINKS} nodes: use a smaller network")
    return LAST_ID - node


class StackProbes:
    """`control.links.probes.Form`. `network`: with the links that are described, and no others."""

    blind_is_down = False

    def __init__(self, network: Network, nonce: bytes) -> None:
        self._network = network
        self._nonce = nonce
        self._inner = [
            [link for link in network.out[node] if not network.is_host[network.heads[link]]]
            for node in range(network.node_count)
        ]
        self.links = [link for switch in network.switches for link in self._inner[switch]]

    def link_of(self, packet: bytes) -> int:
        at = end_of_labels(memoryview(packet), len(_ETHERNET), len(packet))
        end = at + len(self._nonce)
        if at < 0 or packet[at:end] != self._nonce or len(packet) != end + _NUMBER:
            return -1
        return int.from_bytes(packet[end:])

    def probe(self, link: int, reached: Collection[int], down: int) -> Probe | None:
        ways = self._ways(link, reached)
        best = min(ways, key=lambda way: (sum(down >> one & 1 for one in way), len(way)), default=None)
        return None if best is None else self._probe(link, best)

    def _ways(self, link: int, reached: Collection[int]) -> Iterator[list[int]]:
        """Yields the links by which a probe can go: the link, and perhaps one before and one behind it."""
        network = self._network
        tail, head = network.tails[link], network.heads[link]
        before = [[]] if tail in reached else [[one ^ 1] for one in self._inner[tail]]
        behind = [[]] if head in reached else [[one] for one in self._inner[head]]
        for first in before:
            for last in behind:
                way = [*first, link, *last]
                nodes = [network.tails[way[0]], *[network.heads[one] for one in way]]
                if len(set(nodes)) == len(nodes) and {nodes[0], nodes[-1]} <= set(reached):
                    yield way

    def _probe(self, link: int, way: list[int]) -> Probe:
        last = self._network.heads[way[-1]]
        labels = [*map(hop, way), hop(controller_id(last))]
        text = self._nonce + link.to_bytes(_NUMBER)
        return Probe(self._network.tails[way[0]], _ETHERNET + encode_labels(labels) + text)
