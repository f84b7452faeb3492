"""Replication segments as stored on nodes, shared by all with the same leaves behind the same node.

  Replication segment of a node (RFC 9524)
    SID                 a unique number, never reused
    delivers            whether the packet also leaves here (a bud node)
    branches            each: the links to the next place, and its replication SID or a leaf's local SID

A segment is kept as long as something refers to it: a group's entry, or a branch of another segment. Segments
are found by node, leaves and links behind them; no two segments agree in all of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from .shapes import Shape, Way

LOCAL = 0  # instead of a segment's number: the node's local SID, which always exists

Key = tuple[int, int, int]  # node, leaves, links


class Branch(Struct, frozen=True):
    """The destination of a copy: over which links, to which node and segment there (or LOCAL)."""

    way: Way
    node: int
    segment: int


class Segment(Struct, frozen=True):
    """The content of one replication SID on one node."""

    number: int
    node: int
    delivers: bool
    branches: tuple[Branch, ...]


class Kept:
    """A segment with the leaves and links behind it, and its number of references."""

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
        """Returns the segment with exactly this shape."""
        number = self._by_key.get(shape.key)
        return None if number is None else self.kept[number]

    def larger(self, shape: Shape, most: int) -> Iterable[Kept]:
        """Yields segments of the same node with all its leaves and up to `most` more, the fewest more
        first.
        """
        size = shape.leaves.bit_count()
        for more in range(most + 1):
            for number in self._by_size.get((shape.node, size + more), ()):
                if not shape.leaves & ~self.kept[number].leaves:
                    yield self.kept[number]

    def create(self, node: int, delivers: bool, branches: tuple[Branch, ...]) -> Kept:
        """Returns a new segment without references."""
        self._last += 1
        made = Kept(Segment(self._last, node, delivers, branches), 0, 0)
        made.leaves, made.links = self.behind(made.segment)
        self.kept[self._last] = made
        self.acquire(branches)
        self.index(made)
        return made

    def rewrite(self, kept: Kept, delivers: bool, branches: tuple[Branch, ...]) -> list[Segment]:
        """Changes a segment's content. Segments that lose their last reference are removed and returned.

        The caller removes it from the index before, and adds it again when all segments above it are updated.
        """
        before = kept.segment.branches
        kept.segment = Segment(kept.segment.number, kept.segment.node, delivers, branches)
        self.acquire(branches)
        return self.release(before)

    def behind(self, segment: Segment) -> tuple[int, int]:
        """Returns the leaves and links behind a segment, computed from its branches."""
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

    def copies_of(self, branch: Branch) -> Counter[int]:
        """Returns how many copies of a packet each link carries, on a branch's way and behind it."""
        found: Counter[int] = Counter()
        waiting = [branch]
        for one in waiting:
            found.update(one.way)
            if one.segment:
                waiting += self.kept[one.segment].segment.branches
        return found

    def index(self, kept: Kept) -> None:
        self._by_key.setdefault(kept.key, kept.segment.number)
        size = (kept.segment.node, kept.leaves.bit_count())
        self._by_size.setdefault(size, {})[kept.segment.number] = None

    def unindex(self, kept: Kept) -> None:
        if self._by_key.get(kept.key) == kept.segment.number:
            del self._by_key[kept.key]
        self._by_size[kept.segment.node, kept.leaves.bit_count()].pop(kept.segment.number, None)

    def acquire(self, branches: Iterable[Branch]) -> None:
        """Adds a reference to each segment that these lead to."""
        for branch in branches:
            if branch.segment:
                self.kept[branch.segment].references += 1

    def release(self, branches: Iterable[Branch]) -> list[Segment]:
        """Removes these references. Returns the removed segments, each before those that it leads to."""
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
        """Checks that references match branches and entries, and that leaves and links behind segments are
        right.
        """
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
