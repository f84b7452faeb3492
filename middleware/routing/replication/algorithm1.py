"""SNAPS' Algorithm 1 as printed: the replication segments that a new tree needs, and those it reuses.

  for each leaf n, on the way from it to the root:
    at a node with more than one child:
      if a replication segment there has the same set of descendant leaves:
        take it; go on with the leaves that it does not cover; found <- TRUE
      if found == FALSE: add the segment that one comes from to this node's
      the segment that one comes from <- this node's

The available text ends there. That the walk goes up one node at a time, and ends, is an interpretation. It
has four flaws, each printed or mended according to `Reading`:

- `found` is never reset. After the first segment found nothing is added any more: receivers are lost.
- Equal leaf sets are taken for equal subtrees. That holds if shortest paths are unique (`paths`), but not if
  ties are broken at random: then a tree uses links that it was not computed for, and segments that the walk
  has begun below the found one stay unfinished for later users.
- The walk ends before the root, although the text (II-E) creates a segment there, for the publisher at 4.
- A member at a node with others behind it is not counted there. Neither the node's branches nor its set of
  leaves contain it: it gets a separate copy from farther up, and a link carries two.

This is the slow, plain form. `forest` keeps its results, changes them, and shares as much.
"""

from __future__ import annotations

from msgspec import Struct

from ..bits import mask_of, members
from ..network import Network, Unreachable


class Reading(Struct, frozen=True):
    """A reading of Algorithm 1. Each field is one of its flaws, mended if true."""

    resets_found: bool = True
    compares_links: bool = True
    counts_root: bool = True
    counts_members: bool = True


AS_PRINTED = Reading(False, False, False, False)
# The reading of the paper's figures: `found` loses nothing, but only nodes with several children count.
AS_MEANT = Reading(True, False, False, False)
MENDED = Reading()


class Reverse:
    """The reverse tree: for each node the link that arrives there, and the leaves and links behind it."""

    def __init__(self, network: Network, arrived: list[int], root: int, leaves: int) -> None:
        """`arrived` is as from `Paths.arrivals`. Raises Unreachable if it does not lead to all leaves."""
        self.network, self.root, self.leaves = network, root, leaves
        self.up: dict[int, int] = {}
        self.behind: dict[int, int] = {root: leaves}
        self.links: dict[int, int] = {root: 0}
        self.children: dict[int, int] = {root: 0}
        for leaf in members(leaves):
            self._climb(arrived, leaf)
        for node in self.up:
            self._add_links(node)

    def _climb(self, arrived: list[int], leaf: int) -> None:
        node, bit = leaf, 1 << leaf
        while node != self.root:
            link = arrived[node]
            if link < 0:
                raise Unreachable(f"no path to {self.network.names[leaf]}")
            self.behind[node] = self.behind.get(node, 0) | bit
            above = self.network.tails[link]
            if node not in self.up:
                self.up[node] = link
                self.children.setdefault(node, 0)
                self.children[above] = self.children.get(above, 0) + 1
            node = above

    def _add_links(self, node: int) -> None:
        """Adds a node's link to all nodes above it."""
        bit = 1 << self.up[node]
        while node != self.root:
            node = self.network.tails[self.up[node]]
            self.links[node] = self.links.get(node, 0) | bit

    def descendants(self, node: int, reading: Reading) -> int:
        """Returns a node's set of descendant leaves (bits).

        By step 2 of the text, a leaf is in the sets of the nodes above it; mended, it is in its own as well.
        """
        own = 0 if reading.counts_members or not self.children[node] else 1 << node
        return self.behind[node] & ~own

    def branches(self, node: int, reading: Reading) -> bool:
        """Returns whether a node needs a replication segment."""
        member = reading.counts_members and self.leaves >> node & 1
        return self.children[node] + member > 1


# A branch of a segment: (node, leaves behind it); a single leaf is its node's local SID.
Branch = tuple[int, int]


class Replication:
    """A replication segment. The walk of the leaves fills in its part of the tree."""

    def __init__(self, node: int, leaves: int, links: int) -> None:
        self.node, self.leaves, self.links = node, leaves, links
        self.branches: dict[Branch, Replication | None] = {}

    def delivers(self) -> list[int]:
        """Returns the nodes that a packet reaches, with repeats."""
        found: list[int] = []
        for (node, _), below in self.branches.items():
            found += [node] if below is None else below.delivers()
        return found


Existing = dict[tuple[int, int, int], Replication]


class Outcome:
    """The segments of one tree by node, and how many of them existed before."""

    def __init__(self) -> None:
        self.segments: dict[int, Replication] = {}
        self.reused = 0


def replication_segments(tree: Reverse, existing: Existing, reading: Reading = MENDED) -> Outcome:
    """Returns the segments of a tree, by Algorithm 1. New ones are added to `existing`."""
    outcome = Outcome()
    fresh: Existing = {}
    left, found = tree.leaves, False
    for leaf in members(tree.leaves):
        if not left >> leaf & 1:
            continue
        last: tuple[Branch, Replication | None] = ((leaf, 1 << leaf), None)
        for node in _way_up(tree, leaf, reading):
            if not tree.branches(node, reading):
                continue
            found = found and not reading.resets_found
            leaves = tree.descendants(node, reading)
            key = (node, leaves, tree.links[node] if reading.compares_links else 0)
            mine = existing.get(key)
            if mine is not None and key not in fresh:
                outcome.reused += outcome.segments.get(node) is not mine
                left &= ~leaves
                found = True
            else:
                mine = existing[key] = fresh.setdefault(key, Replication(node, leaves, tree.links[node]))
                if not found:
                    mine.branches[last[0]] = last[1]
            outcome.segments[node] = mine
            last = ((node, leaves), mine)
    return outcome


def missed(tree: Reverse, outcome: Outcome) -> int:
    """Returns the leaves that get no copy (bits).

    The root sends to segments that no other segment leads to, and to leaves without a segment on their way.
    """
    led_to = {id(below) for one in outcome.segments.values() for below in one.branches.values()}
    served = 0
    for one in outcome.segments.values():
        if id(one) not in led_to:
            served |= mask_of(one.delivers())
    left = members(tree.leaves & ~served)
    return mask_of(leaf for leaf in left if any(n in outcome.segments for n in _way_up(tree, leaf, AS_MEANT)))


def strays(tree: Reverse, outcome: Outcome) -> bool:
    """Returns whether it reuses a segment that leads over links outside its own tree."""
    return any(one.links != tree.links[node] for node, one in outcome.segments.items())


def _way_up(tree: Reverse, leaf: int, reading: Reading) -> list[int]:
    """Returns the nodes that the walk from a leaf visits: from the next upstream one on, possibly with the
    root.

    If members count, a leaf on other leaves' way is visited itself.
    """
    nodes = [leaf]
    while nodes[-1] != tree.root:
        nodes.append(tree.network.tails[tree.up[nodes[-1]]])
    inner = nodes if reading.counts_members else nodes[1:]
    return inner if reading.counts_root else [node for node in inner if node != tree.root]
