"""The trees of all groups, and the replication segments that they share.

A group has a root, leaves, links to avoid, and an entry: the links from the root to the first segment, or to
the only leaf. Each change brings the group to the tree that a planner (`shapes`) makes for it, with as few
writes as sharing allows:

- Existing segments of other groups are reused (`segments`).
- A segment that only this group uses, as are all above it, keeps its SID: it is rewritten at the deepest
  place behind which the whole difference lies. So a join usually creates at most one segment and rewrites
  one.
- A shared segment is never rewritten: the group gets its own segments from there down to the difference.

With `superset` above 0 a group may also reuse a segment with up to that many more leaves than it has behind
that node. These leaves get copies that they drop: at most one per packet, never the root, and over links that
carry no other copy in that direction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from msgspec import Struct

from ..network import Network, RoutingError, Unreachable
from .changes import Change
from .segments import LOCAL, Branch, Kept, Segment, Segments
from .shapes import Planned, Planner, Shape, Way


class Group(Struct, frozen=True):
    """A multicast group: `leaves` and `avoid` are bits of nodes and of links."""

    root: int
    leaves: int
    avoid: int
    entry: Branch | None


class _Need:
    """The constraints of the tree being made that supersets must respect."""

    def __init__(self, planned: Planned, group: Group, own: set[int]) -> None:
        self.taken = group.leaves | 1 << group.root  # nodes that must not get another copy
        self.links = planned.links
        self.avoid = group.avoid
        self.own = own  # segments used by this group only: they are made to fit exactly
        self.barred: set[int] = set()  # segments being rewritten

    def allows(self, kept: Kept, shape: Shape) -> bool:
        """Returns whether a segment with more leaves than a shape may replace it."""
        if kept.segment.number in self.own or kept.leaves & ~shape.leaves & self.taken:
            return False
        return not kept.links & (self.links & ~shape.links | self.avoid)

    def take(self, kept: Kept, shape: Shape) -> None:
        """Records that the segment replaces the shape: its additional leaves are now taken."""
        self.taken |= kept.leaves & ~shape.leaves
        self.links |= kept.links


class Forest:
    """The groups of one network by name. RoutingError and Unreachable leave everything unchanged."""

    def __init__(self, network: Network, planner: Planner, *, superset: int = 0) -> None:
        self.network = network
        self.segments = Segments()
        self.groups: dict[Hashable, Group] = {}
        self._planner = planner
        self._superset = superset

    def open(self, name: Hashable, root: int, leaves: int, avoid: int = 0) -> Change:
        """Creates a group. Raises RoutingError if the name exists, Unreachable if a leaf is unreachable."""
        if name in self.groups:
            raise RoutingError(f"group {name!r} exists already")
        return self._change(name, Group(root, self._others(root, leaves), avoid, None))

    def _others(self, root: int, leaves: int) -> int:
        """Returns the leaves without a root that is a host: packets to itself never leave it."""
        inside = 0 <= root < self.network.node_count and self.network.is_host[root]
        return leaves & ~(1 << root) if inside else leaves

    def join(self, name: Hashable, leaf: int) -> Change:
        """Adds a leaf; does nothing if it is one already."""
        group = self._group(name)
        return self.set_leaves(name, group.leaves | 1 << leaf)

    def leave(self, name: Hashable, leaf: int) -> Change:
        """Removes a leaf; does nothing if it is none."""
        group = self._group(name)
        return self.set_leaves(name, group.leaves & ~(1 << leaf))

    def set_leaves(self, name: Hashable, leaves: int) -> Change:
        """Sets the leaves, in one change. If a leaf is reachable only over avoided links, the group stops
        avoiding links.
        """
        group = self._group(name)
        leaves = self._others(group.root, leaves)
        try:
            return self._change(name, Group(group.root, leaves, group.avoid, group.entry))
        except Unreachable:
            return self._change(name, Group(group.root, leaves, 0, group.entry))

    def reroute(self, name: Hashable, avoid: int) -> Change:
        """Gives the group a tree without certain links (bits). Raises Unreachable if there is none."""
        group = self._group(name)
        return self._change(name, Group(group.root, group.leaves, avoid, group.entry))

    def close(self, name: Hashable) -> Change:
        """Removes the group."""
        change = self.set_leaves(name, 0)
        del self.groups[name]
        return change

    def links_of(self, name: Hashable) -> int:
        """Returns the links that a packet of the group uses, including those of unwanted copies (bits)."""
        entry = self._group(name).entry
        return self.segments.links_of(entry) if entry is not None else 0

    def copies_of(self, name: Hashable) -> Counter[int]:
        """Returns how many copies of a packet of the group each link carries, unwanted ones included."""
        entry = self._group(name).entry
        return self.segments.copies_of(entry) if entry is not None else Counter()

    def planned_copies(self, name: Hashable, avoid: int) -> Counter[int]:
        """Returns the copies by link that its tree would need if it avoided these links (bits). Raises
        Unreachable if there is none.
        """
        group = self._group(name)
        return self._planner(group.root, group.leaves, avoid).copies

    def unwanted(self, name: Hashable) -> int:
        """Returns the nodes that get a copy but are not leaves of the group (bits)."""
        group = self._group(name)
        return self.segments.leaves_of(group.entry) & ~group.leaves if group.entry is not None else 0

    def _group(self, name: Hashable) -> Group:
        if name not in self.groups:
            raise RoutingError(f"there is no group {name!r}")
        return self.groups[name]

    def _change(self, name: Hashable, wanted: Group) -> Change:
        nodes = self.network.node_count
        if wanted.leaves < 0 or wanted.leaves >> nodes or not 0 <= wanted.root < nodes:
            raise RoutingError("the root or a leaf is not a node of the network")
        planned = self._planner(wanted.root, wanted.leaves, wanted.avoid)
        need = _Need(planned, wanted, self._own(wanted.entry) if self._superset else set())
        made: list[Segment] = []
        chain, shape = self._chain(wanted.entry, planned, need)
        if chain and shape is not None:
            rewritten, removed = self._rewrite(chain, shape, need, made)
            self.groups[name] = wanted
            return Change(name, tuple(made), rewritten, False, wanted.entry, tuple(removed))
        entry = None if planned.top is None else self._branch((planned.way, planned.top), need, made)
        self.groups[name] = Group(wanted.root, wanted.leaves, wanted.avoid, entry)
        if entry == wanted.entry:
            return Change(name, entry=entry)
        self.segments.acquire([entry] if entry is not None else [])
        gone = self.segments.release([wanted.entry] if wanted.entry is not None else [])
        return Change(name, tuple(made), None, True, entry, tuple(gone))

    def _own(self, entry: Branch | None) -> set[int]:
        """Returns the segments that only this group uses."""
        waiting, found = [entry.segment] if entry is not None else [], set()
        for number in waiting:
            if number != LOCAL and self.segments.kept[number].references == 1:
                found.add(number)
                waiting += [branch.segment for branch in self.segments.kept[number].segment.branches]
        return found

    def _chain(self, entry: Branch | None, planned: Planned, need: _Need) -> tuple[list[Kept], Shape | None]:
        """Returns the segments, from the entry on, that stay although the subtree behind them changes, and
        the new shape of the last one; none if the entry itself must change.
        """
        chain: list[Kept] = []
        way, shape, target = planned.way, planned.top, None
        while entry is not None and shape is not None and self._may_stay(entry, way, shape, need):
            chain.append(self.segments.kept[entry.segment])
            target = shape
            following = self._only_difference(chain[-1].segment, shape, need)
            if following is None:
                break
            entry, (way, shape) = following
        return chain, target

    def _may_stay(self, branch: Branch, way: Way, shape: Shape, need: _Need) -> bool:
        """Returns whether a branch's segment can be rewritten to a shape: it is the group's own, and no other
        segment fits.
        """
        if branch.segment == LOCAL or not shape.copies or (branch.way, branch.node) != (way, shape.node):
            return False
        return self.segments.kept[branch.segment].references == 1 and self._find(shape, need) is None

    def _only_difference(
        self, segment: Segment, shape: Shape, need: _Need
    ) -> tuple[Branch, tuple[Way, Shape]] | None:
        """Returns the only branch that must change, and its new shape; None if more must change."""
        fitting = self._fitting(segment, shape, need)
        left = [one for one in segment.branches if one not in fitting]
        wanted = [part for part, one in zip(shape.below, fitting, strict=True) if one is None]
        if segment.delivers != shape.delivers or not len(left) == len(wanted) == 1:
            return None
        self._take(fitting, shape, need)
        return left[0], wanted[0]

    def _fitting(self, segment: Segment, shape: Shape, need: _Need) -> list[Branch | None]:
        """Returns, for each branch of a shape, the branch of a segment that can stay; None if there
        is none.
        """
        left = list(segment.branches)
        found: list[Branch | None] = []
        for way, behind in shape.below:
            one = next((one for one in left if self._fits(one, way, behind, need)), None)
            if one is not None:
                left.remove(one)
            found.append(one)
        return found

    def _fits(self, branch: Branch, way: Way, shape: Shape, need: _Need) -> bool:
        """Returns whether a branch leads to a shape, or to an allowed superset of it."""
        if (branch.way, branch.node) != (way, shape.node) or shape.copies != (branch.segment != LOCAL):
            return False
        if branch.segment == LOCAL or self.segments.kept[branch.segment].key == shape.key:
            return True
        kept = self.segments.kept[branch.segment]
        if not self._superset or shape.leaves & ~kept.leaves:
            return False
        if branch.segment in need.own:  # supersets, if any, are behind it
            parts = zip(kept.segment.branches, shape.below, strict=False)
            same = (kept.segment.delivers, len(kept.segment.branches)) == (shape.delivers, len(shape.below))
            return same and all(self._fits(one, *part, need) for one, part in parts)
        more = (kept.leaves & ~shape.leaves).bit_count()
        return more <= self._superset and need.allows(kept, shape)

    def _take(self, branches: list[Branch | None], shape: Shape, need: _Need) -> None:
        """Records the additional leaves of branches that stay."""
        for branch, (_, behind) in zip(branches, shape.below, strict=True):
            if branch is not None and branch.segment != LOCAL:
                need.take(self.segments.kept[branch.segment], behind)

    def _find(self, shape: Shape, need: _Need) -> Kept | None:
        """Returns an existing segment for a shape: an exact one, or one with more leaves."""
        found = self.segments.find(shape)
        if found is not None and found.segment.number not in need.barred:
            return found
        if self._superset:
            for kept in self.segments.larger(shape, self._superset):
                if kept.segment.number not in need.barred and need.allows(kept, shape):
                    return kept
        return None

    def _branch(self, part: tuple[Way, Shape], need: _Need, made: list[Segment]) -> Branch:
        """Returns the way to a shape's segment, found or created, after creating what it leads to."""
        way, shape = part
        if not shape.copies:
            return Branch(way, shape.node, LOCAL)
        kept = self._find(shape, need)
        if kept is None:
            branches = tuple([self._branch(one, need, made) for one in shape.below])
            kept = self.segments.create(shape.node, shape.delivers, branches)
            made.append(kept.segment)
        else:
            need.take(kept, shape)
        return Branch(way, shape.node, kept.segment.number)

    def _rewrite(
        self, chain: list[Kept], shape: Shape, need: _Need, made: list[Segment]
    ) -> tuple[Segment | None, list[Segment]]:
        """Gives the last segment of a chain other branches, and updates the leaves and links behind the whole
        chain.
        """
        last = chain[-1]
        for kept in chain:
            self.segments.unindex(kept)
            need.barred.add(kept.segment.number)
        fitting = self._fitting(last.segment, shape, need)
        self._take(fitting, shape, need)
        parts = zip(fitting, shape.below, strict=True)
        branches = tuple([stays or self._branch(one, need, made) for stays, one in parts])
        same = (last.segment.delivers, last.segment.branches) == (shape.delivers, branches)
        gone = [] if same else self.segments.rewrite(last, shape.delivers, branches)
        for kept in reversed(chain):
            kept.leaves, kept.links = self.segments.behind(kept.segment)
            self.segments.index(kept)
        return None if same else last.segment, gone

    def entries(self) -> Iterator[Branch]:
        """Yields the entries of all groups with one."""
        for group in self.groups.values():
            if group.entry is not None:
                yield group.entry

    def check_invariants(self) -> None:
        """Checks that every group reaches its leaves, more only by supersets, and that every segment is
        referenced.
        """
        self.segments.check_invariants(self.entries())
        for name, group in self.groups.items():
            reached = self.segments.leaves_of(group.entry) if group.entry is not None else 0
            assert not group.leaves & ~reached, name
            assert self._superset or reached == group.leaves, name
            assert not self.links_of(name) & group.avoid, name
