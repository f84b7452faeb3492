"""The paths that routers use by themselves, without the links that are down. Pure.

A copy on its way to a SID follows the routes of routers. The path of a tree may differ from these, because
the tree avoids links that are loaded. Then one SID on the way keeps the copy on its path (`Pin`): the packet
goes to this SID first, in an outer header. A path that needs more than one such SID is not planned.
"""

from __future__ import annotations

from msgspec import Struct

from ..network import Network, RoutingError, Unreachable
from .paths import Paths
from .segments import Branch
from .shapes import MOST_BRANCHES, Planned, Shape, Way, direct, place


class Pin(Struct, frozen=True):
    """The SID that a packet goes to first: of a node (End), or of a link (End.X), which is else -1."""

    node: int
    link: int = -1


class Ways:
    """Paths in a network. `down`: links that carry nothing now (bits)."""

    def __init__(self, network: Network, paths: Paths) -> None:
        self.network = network
        self.down = 0
        self._paths = paths
        self._direct = direct(paths)

    def path(self, start: int, end: int) -> Way | None:
        """Returns the links by which routers bring a packet from one node to another; None if none lead
        there.
        """
        try:
            return self._paths.path(start, end, self.down)
        except Unreachable:
            return None

    def plan(self, root: int, leaves: int, avoid: int) -> Planned:
        """`shapes.Planner`: shortest paths without links that are down or to be avoided.

        Raises Unreachable if there are none, or if more than one SID would be needed on the way to a SID, and
        RoutingError if a router would have to copy to itself.
        """
        planned = self._direct(root, leaves, avoid | self.down)
        if planned.top is None:
            return planned
        self._check(planned.way[1:], planned.top)
        if self.pin(planned.way[1:], planned.top.node) is None:
            return planned
        # Hosts send to one SID. The first router has a segment with one branch, which is kept on the path.
        router = self.network.heads[planned.way[0]]
        return Planned(planned.way[:1], place(router, False, [(planned.way[1:], planned.top)]))

    def _check(self, way: Way, shape: Shape) -> None:
        """`way`: without the link that the router which copies chooses itself."""
        self.pin(way, shape.node)
        for below, inner in shape.below:
            if not below:
                raise RoutingError(
                    f"{self.network.names[shape.node]} would make more than {MOST_BRANCHES} copies"
                )
            self._check(below[1:], inner)

    def pinned(self, branch: Branch) -> Pin | None:
        """Returns the SID that keeps a copy on a branch's path; None if routers use that path anyway, or no
        SID keeps it there any more because links are down.
        """
        try:
            return self.pin(branch.way[1:], branch.node)
        except Unreachable:
            return None

    def pin(self, way: Way, end: int) -> Pin | None:
        """Returns the SID that keeps a packet on a path to a node. Raises Unreachable if one is too few."""
        network = self.network
        if network.is_host[end]:  # its router hands the packet over
            way = way[:-1]
        if not way or self._leads(way):
            return None
        for at in range(len(way) - 1, 0, -1):
            if self._leads(way[:at]) and self._leads(way[at:]):
                return Pin(network.heads[way[at - 1]])
        for at, link in enumerate(way):
            if self._leads(way[:at]) and self._leads(way[at + 1 :]):
                return Pin(network.tails[link], link)
        names = ", ".join([network.link_name(link) for link in way])
        raise Unreachable(f"one SID does not keep packets on the path {names}")

    def _leads(self, way: Way) -> bool:
        """Whether routers use this path by themselves."""
        if not way:
            return True
        return self.path(self.network.tails[way[0]], self.network.heads[way[-1]]) == way

    def alone(self) -> list[int]:
        """Returns the routers of which all links are down."""
        inner = {
            node: self.network.link_masks[node] & ~self._to_hosts(node) for node in self.network.switches
        }
        return [node for node, links in inner.items() if links and not links & ~self.down]

    def _to_hosts(self, node: int) -> int:
        """Returns a router's links to hosts (bits), which are not probed."""
        network = self.network
        return sum(1 << link for link in network.out[node] if network.is_host[network.heads[link]])
