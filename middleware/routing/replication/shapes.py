"""The shape of a tree: where packets are copied, and the links between those places.

A shape is a node with what lies behind it: a leaf, or a node that copies, with a shape behind each branch.
Nodes that only pass packets on are links of a branch. A node that copies becomes a replication segment (RFC
9524): its branches lead to replication SIDs of other nodes or to a leaf's local SID, and a node that also
delivers is a bud node.

| function | tree |
| --- | --- |
| `direct` | the shortest paths from the root to the leaves |
| `by_rendezvous` | a shortest path to a rendezvous point, and from there |
| `on_spanning_tree` | the part of one spanning tree between root and leaves, whichever side the root is on |
| `by_gateways` | two tiers: shortest paths to a gateway of each zone, and in the zone from there |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from ..bits import mask_of, members
from ..network import Network, RoutingError, Unreachable
from ..rooted import preorder
from .paths import Paths

# Branches of one segment: what `p4/srv6_replication.p4` has room for. A node with more copies to itself
# first.
MOST_BRANCHES = 64

Way = tuple[int, ...]  # links in order


class Shape(Struct, frozen=True):
    """A node and what lies behind it.

    `leaves` are all leaves behind it, itself with them where it `delivers` (bits of nodes); `links` are all
    links behind it (bits of links); `below` has of each branch the links to the next place, and that place.
    """

    node: int
    leaves: int
    links: int = 0
    delivers: bool = False
    below: tuple[tuple[Way, Shape], ...] = ()

    @property
    def copies(self) -> bool:
        """Whether a replication segment is due here; a leaf has its router's local SID."""
        return bool(self.below)

    @property
    def key(self) -> tuple[int, int, int]:
        """What equal subtrees have in common: the node, its leaves, and its links."""
        return self.node, self.leaves, self.links


class Planned(Struct, frozen=True):
    """A whole tree: the links from the root to the first place, and that place; None if nobody listens."""

    way: Way
    top: Shape | None

    @property
    def links(self) -> int:
        found = self.top.links if self.top is not None else 0
        for link in self.way:
            found |= 1 << link
        return found


Planner = Callable[[int, int, int], Planned]  # root, leaves (bits), links to avoid (bits)

NOTHING = Planned((), None)


def leaf(node: int) -> Shape:
    """Returns a leaf by itself."""
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
    """The tree from a root to some ends, along the links by which paths arrive.

    An end is a leaf, or what another tier has behind its node. Raises Unreachable if no path leads there.
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
    """Of every node of the tree the links that lead on."""
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
    """Returns what is behind a node, and the way there: it passes packets on, is an end, or copies."""
    if end is None:
        return parts[0] if len(parts) == 1 else ((), place(node, False, sorted(parts)))
    if not parts:
        return (), end
    if end.copies:  # another tier's place stays one of its own: what is here leads to it
        return (), place(node, False, [((), end), *sorted(parts)])
    return (), place(node, True, sorted(parts))


def _leaves(leaves: int) -> dict[int, Shape]:
    return {node: leaf(node) for node in members(leaves)}


def direct(paths: Paths) -> Planner:
    """Shortest paths from the root to each leaf."""

    def plan(root: int, leaves: int, avoid: int) -> Planned:
        if not leaves:
            return NOTHING
        return grow(paths.network, paths.arrivals(root, avoid), root, _leaves(leaves))

    return plan


def by_rendezvous(paths: Paths, point: int) -> Planner:
    """Shortest paths from a rendezvous point to each leaf. The root sends to the first place that copies.

    The paper sends to the point itself. Where the point only passes packets on, the way past it is as long or
    shorter, and the segments are the same. A tree that avoids links is a direct one.
    """
    straight = direct(paths)

    def plan(root: int, leaves: int, avoid: int) -> Planned:
        if avoid or not leaves:
            return straight(root, leaves, avoid)
        top = straight(point, leaves, 0).top
        return NOTHING if top is None else Planned(paths.path(root, top.node), top)

    return plan


def on_spanning_tree(paths: Paths, center: int) -> Planner:
    """Returns the part of the center's tree of shortest paths that joins root and leaves; each link serves
    both ways.

    Paths are longer than the shortest, and most of what lies behind a node is the same for all roots. A tree
    that avoids links is a direct one.
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
    """Two tiers: the root's tree leads to other zones' trees, which are the same for all roots outside.

    A zone's tree begins at its gateway, the node with the shortest average distance to the others, and has
    links of the zone only. Leaves of the root's own zone, of none, and those that are alone in a zone are the
    first tier's. Raises RoutingError if a node is in two zones. A tree that avoids links is a direct one.
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
    """The links that do not have both ends in a zone."""
    pairs = enumerate(zip(network.tails, network.heads, strict=True))
    return mask_of(link for link, (tail, head) in pairs if not (zone >> tail & 1 and zone >> head & 1))
