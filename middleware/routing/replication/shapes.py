"""The shape of a tree: the nodes where packets are copied, and the links between them.

A shape is a node with its subtree: a leaf, or a node that copies, with a shape behind each branch. Nodes that
only forward are links of a branch. A node that copies becomes a replication segment (RFC 9524): its branches
lead to replication SIDs of other nodes or to a leaf's local SID. A node that also delivers is a bud node.

| function | tree |
| --- | --- |
| `direct` | the shortest paths from the root to the leaves |
| `by_rendezvous` | a shortest path to a rendezvous point, and from there |
| `on_spanning_tree` | the part of one spanning tree between root and leaves, whatever the root |
| `by_gateways` | two tiers: shortest paths to a gateway of each zone, and within the zone from there |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from ..bits import mask_of, members
from ..network import Network, RoutingError, Unreachable
from ..rooted import preorder
from .paths import Paths

# The branches of one segment that `p4/srv6_replication.p4` has room for. A node with more copies to itself
# first.
MOST_BRANCHES = 64

Way = tuple[int, ...]  # links in order


class Shape(Struct, frozen=True):
    """A node and its subtree.

    `leaves` are all leaves behind it, including itself if it `delivers` (bits of nodes); `links` are all
    links behind it (bits of links); `below` has for each branch the links to the next place, and that place.
    """

    node: int
    leaves: int
    links: int = 0
    delivers: bool = False
    below: tuple[tuple[Way, Shape], ...] = ()

    @property
    def copies(self) -> bool:
        """Whether the node needs a replication segment; a leaf has its router's local SID."""
        return bool(self.below)

    @property
    def key(self) -> tuple[int, int, int]:
        """The identity of equal subtrees: the node, its leaves, and its links."""
        return self.node, self.leaves, self.links


class Planned(Struct, frozen=True):
    """A whole tree: the links from the root to the first place, and that place; None without receivers."""

    way: Way
    top: Shape | None

    @property
    def links(self) -> int:
        found = self.top.links if self.top is not None else 0
        for link in self.way:
            found |= 1 << link
        return found

    @property
    def copies(self) -> Counter[int]:
        """How many copies of a packet each link carries. A tree of tiers may need two on one link."""
        found = Counter(self.way)
        waiting = [self.top] if self.top is not None else []
        for shape in waiting:
            for way, below in shape.below:
                found.update(way)
                waiting.append(below)
        return found


Planner = Callable[[int, int, int], Planned]  # root, leaves (bits), links to avoid (bits)

NOTHING = Planned((), None)


def leaf(node: int) -> Shape:
    """Returns a leaf."""
    return Shape(node, 1 << node, 0, True)


def place(node: int, delivers: bool, below: Sequence[tuple[Way, Shape]]) -> Shape:
    """Returns a node that copies. With more than `MOST_BRANCHES` branches it copies to segments of
    its own.
    """
    room = MOST_BRANCHES - delivers
    while len(below) > room:
        below = [
            ((), place(node, False, below[first : first + MOST_BRANCHES]))
            if len(below[first : first + MOST_BRANCHES]) > 1
            else below[first]
            for first in range(0, len(below), MOST_BRANCHES)
        ]
    leaves, links = (1 << node) * delivers, 0
    for way, shape in below:
        leaves |= shape.leaves
        links |= shape.links
        for link in way:
            links |= 1 << link
    return Shape(node, leaves, links, delivers, tuple(below))


def grow(network: Network, arrived: Sequence[int], root: int, ends: dict[int, Shape]) -> Planned:
    """Returns the tree from a root to some ends, along the last links of paths.

    An end is a leaf, or another tier's subtree. Raises Unreachable if no path leads there.
    """
    behind = _branches(network, arrived, root, ends)
    order = [root]
    for node in order:
        order += [network.heads[link] for link in behind[node]]
    found: dict[int, tuple[Way, Shape]] = {}
    for node in reversed(order):
        parts = []
        for link in behind[node]:
            way, shape = found.pop(network.heads[link])
            parts.append(((link, *way), shape))
        found[node] = _joined(node, ends.get(node), parts)
    return Planned(*found[root])


def _branches(
    network: Network, arrived: Sequence[int], root: int, ends: dict[int, Shape]
) -> dict[int, list[int]]:
    """Returns the outgoing links of every node of the tree."""
    behind: dict[int, list[int]] = {root: []}
    for end in sorted(ends):
        node, fresh = end, []
        while node not in behind:
            behind[node] = []
            link = arrived[node]
            if link < 0:
                raise Unreachable(f"no path from {network.names[root]} to {network.names[end]}")
            fresh.append(link)
            node = network.tails[link]
        for link in fresh:
            behind[network.tails[link]].append(link)
    return behind


def _joined(node: int, end: Shape | None, parts: list[tuple[Way, Shape]]) -> tuple[Way, Shape]:
    """Returns the shape behind a node and the way there: the node forwards, is an end, or copies."""
    if end is None:
        return parts[0] if len(parts) == 1 else ((), place(node, False, sorted(parts)))
    if not parts:
        return (), end
    if end.copies:  # the other tier's place stays separate: this one leads to it
        return (), place(node, False, [((), end), *sorted(parts)])
    return (), place(node, True, sorted(parts))


def _leaves(leaves: int) -> dict[int, Shape]:
    return {node: leaf(node) for node in members(leaves)}


def direct(paths: Paths) -> Planner:
    """Plans shortest paths from the root to each leaf."""

    def plan(root: int, leaves: int, avoid: int) -> Planned:
        if not leaves:
            return NOTHING
        return grow(paths.network, paths.arrivals(root, avoid), root, _leaves(leaves))

    return plan


def by_rendezvous(paths: Paths, point: int) -> Planner:
    """Plans shortest paths from a rendezvous point to each leaf. The root sends to the first place that
    copies.

    The paper sends to the point itself. If the point only forwards, the path past it is at most as long and
    the segments are the same. A tree that avoids links is a direct one.
    """
    straight = direct(paths)

    def plan(root: int, leaves: int, avoid: int) -> Planned:
        if avoid or not leaves:
            return straight(root, leaves, avoid)
        top = straight(point, leaves, 0).top
        return NOTHING if top is None else Planned(paths.path(root, top.node), top)

    return plan


def on_spanning_tree(paths: Paths, center: int) -> Planner:
    """Plans the part of the center's shortest-path tree that joins root and leaves; each link serves both
    directions.

    Paths are longer than the shortest, but most subtrees are the same for all roots. A tree that avoids links
    is a direct one.
    """
    straight, network = direct(paths), paths.network
    edges = mask_of(link >> 1 for link in paths.arrivals(center) if link >= 0)
    arrivals: dict[int, list[int]] = {}

    def plan(root: int, leaves: int, avoid: int) -> Planned:
        if avoid or not leaves:
            return straight(root, leaves, avoid)
        if root not in arrivals:
            arrivals[root] = [-1] * network.node_count
            for link in preorder(network, edges, root):
                arrivals[root][network.heads[link]] = link
        return grow(network, arrivals[root], root, _leaves(leaves))

    return plan


def by_gateways(paths: Paths, zones: Sequence[Sequence[int]]) -> Planner:
    """Plans two tiers: the root's tree leads to other zones' trees, which are the same for all outside roots.

    A zone's tree starts at its gateway, the node with the shortest average distance to the others, and uses
    links of the zone only. The first tier contains leaves of the root's own zone, of no zone, and single ones
    of a zone. Raises RoutingError if a node is in two zones. A tree that avoids links is a direct one.
    """
    straight, network = direct(paths), paths.network
    masks = [mask_of(zone) for zone in zones]
    if (
        sum(mask.bit_count() for mask in masks)
        != mask_of(node for zone in zones for node in zone).bit_count()
    ):
        raise RoutingError("a node is in two zones")
    gateways = [_gateway(paths, zone) for zone in zones]
    outside = [_links_outside(network, mask) for mask in masks]

    def plan(root: int, leaves: int, avoid: int) -> Planned:
        if avoid or not leaves:
            return straight(root, leaves, avoid)
        ends = _leaves(leaves)
        for mask, gateway, others in zip(masks, gateways, outside, strict=True):
            inside = leaves & mask
            if mask >> root & 1 or inside.bit_count() < 2:
                continue
            inner = straight(gateway, inside, others).top
            if inner is not None:
                ends = {node: end for node, end in ends.items() if not inside >> node & 1}
                ends[inner.node] = inner
        return grow(network, paths.arrivals(root), root, ends)

    return plan


def _gateway(paths: Paths, zone: Sequence[int]) -> int:
    def total(node: int) -> tuple[int, int]:
        far = paths.hops(node)
        return sum(far[other] for other in zone), node

    return min(zone, key=total)


def _links_outside(network: Network, zone: int) -> int:
    """Returns the links without both ends in a zone."""
    pairs = enumerate(zip(network.tails, network.heads, strict=True))
    return mask_of(link for link, (tail, head) in pairs if not (zone >> tail & 1 and zone >> head & 1))
