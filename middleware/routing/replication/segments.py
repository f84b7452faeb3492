"""Replication segments as they lie on nodes, shared by whoever has the same leaves behind the same node.

    Replication segment of a node (RFC 9524)
        SID                 a number of its own, which no other segment has had before
        delivers            whether the packet also leaves here (a bud node)
        branches            each: the links to the next place, and its replication SID or a leaf's local SID

A segment is kept as long as somebody refers to it: a group's entry, or a branch of another segment. Segments
are found by node, leaves and links behind them: two with the same of these are one.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from .shapes import Shape, Way

LOCAL = 0  # instead of a segment's number: the node's local SID, which is there anyway

Key = tuple[int, int, int]  # node, leaves, links


class Branch(Struct, frozen=True):
    """Where a copy goes: over which links, to which node, to which segment there (or LOCAL)."""

    way: Way
    node: int
    segment: int


class Segment(Struct, frozen=True):
    """What one node holds under one replication SID."""

    number: int
    node: int
    delivers: bool
    branches: tuple[Branch, ...]


class Kept:
    """A segment with what is behind it, and how many refer to it."""

    __slots__ = ("leaves", "links", "references", "segment")

    def __init__(self, segment: Segment, leaves: int, links: int) -> None:
        self.segment = segment
        self.leaves = leaves
        self.links = links
        self.references = 0

    @property
    def key(self) -> Key:
        return self.segment.node, self.leaves, self.links


class Segments:
    """All segments of a network. `kept` is by number."""

    def __init__(self) -> None:
        self.kept: dict[int, Kept] = {}
        self._by_key: dict[Key, int] = {}
        self._by_size: dict[tuple[int, int], dict[int, None]] = {}  # node and number of leaves
        self._last = 0

    def __len__(self) -> int:
        return len(self.kept)

    def find(self, shape: Shape) -> Kept | None:
        """Returns the segment that is just this shape."""
        number = self._by_key.get(shape.key)
        return None if number is None else self.kept[number]

    def larger(self, shape: Shape, most: int) -> Iterable[Kept]:
        """Segments of the same node with all its leaves and up to `most` more; the fewest more first."""
        size = shape.leaves.bit_count()
        for more in range(most + 1):
            for number in self._by_size.get((shape.node, size + more), ()):
                if not shape.leaves & ~self.kept[number].leaves:
                    yield self.kept[number]

    def create(self, node: int, delivers: bool, branches: tuple[Branch, ...]) -> Kept:
        """Returns a new segment, to which nobody refers yet."""
        self._last += 1
        made = Kept(Segment(self._last, node, delivers, branches), 0, 0)
        made.leaves, made.links = self.behind(made.segment)
        self.kept[self._last] = made
        self.acquire(branches)
        self.index(made)
        return made

    def rewrite(self, kept: Kept, delivers: bool, branches: tuple[Branch, ...]) -> list[Segment]:
        """Gives a segment another content; what nobody refers to any more is removed and returned.

        The caller takes it out of the index before and puts it back when all above it are measured again.
        """
        before = kept.segment.branches
        kept.segment = Segment(kept.segment.number, kept.segment.node, delivers, branches)
        self.acquire(branches)
        return self.release(before)

    def behind(self, segment: Segment) -> tuple[int, int]:
        """Returns the leaves and links behind a segment, by what its branches lead to."""
        leaves, links = (1 << segment.node) * segment.delivers, 0
        for branch in segment.branches:
            leaves |= self.leaves_of(branch)
            links |= self.links_of(branch)
        return leaves, links

    def leaves_of(self, branch: Branch) -> int:
        return self.kept[branch.segment].leaves if branch.segment else 1 << branch.node

    def links_of(self, branch: Branch) -> int:
        """Returns the links of a branch's way, and those behind it."""
        links = self.kept[branch.segment].links if branch.segment else 0
        for link in branch.way:
            links |= 1 << link
        return links

    def index(self, kept: Kept) -> None:
        self._by_key.setdefault(kept.key, kept.segment.number)
        size = (kept.segment.node, kept.leaves.bit_count())
        self._by_size.setdefault(size, {})[kept.segment.number] = None

    def unindex(self, kept: Kept) -> None:
        if self._by_key.get(kept.key) == kept.segment.number:
            del self._by_key[kept.key]
        self._by_size[kept.segment.node, kept.leaves.bit_count()].pop(kept.segment.number, None)

    def acquire(self, branches: Iterable[Branch]) -> None:
        """Somebody refers to what these lead to."""
        for branch in branches:
            if branch.segment:
                self.kept[branch.segment].references += 1

    def release(self, branches: Iterable[Branch]) -> list[Segment]:
        """Nobody does any more. Returns what is removed thereby, each before what it leads to."""
        removed: list[Segment] = []
        waiting = [branch.segment for branch in branches if branch.segment]
        for number in waiting:
            kept = self.kept[number]
            kept.references -= 1
            if not kept.references:
                self.unindex(kept)
                del self.kept[number]
                removed.append(kept.segment)
                waiting += [branch.segment for branch in kept.segment.branches if branch.segment]
        return removed

    def check_invariants(self, entries: Iterable[Branch]) -> None:
        """References are those of branches and entries; what is said to be behind a segment is."""
        counted = dict.fromkeys(self.kept, 0)
        for branch in [*entries, *(b for kept in self.kept.values() for b in kept.segment.branches)]:
            if branch.segment:
                assert self.kept[branch.segment].segment.node == branch.node
                counted[branch.segment] += 1
        for number, kept in self.kept.items():
            assert kept.segment.number == number
            assert kept.references == counted[number] > 0, (number, kept.references, counted[number])
            assert (kept.leaves, kept.links) == self.behind(kept.segment)
            assert number in self._by_size[kept.segment.node, kept.leaves.bit_count()]
        assert set(self._by_key.values()) <= set(self.kept)
        assert all(self.kept[number].key == key for key, number in self._by_key.items())
