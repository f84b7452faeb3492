"""The encoder: the virtual trees and the delivery tree with the fewest labels.

Gain-greedy: of all installed trees, the few are tried that would gain most if the delivery tree stayed as it
is, or that share most edges with it. For each, a delivery tree is grown that avoids stops (`growth`). The
best is chosen, until none gains. Then chosen trees that save nothing are dropped, and the delivery tree is
improved by local search. `effort` widens the search: how many first choices are followed, how many are tried.

A cap bounds detours: no delivery tree has more than `stretch` times the links of the hop-minimal one.

Hot: compiled by mypyc. `cache` keeps results by receiver set.
"""

from __future__ import annotations

from typing import Final

from ..bits import members
from ..network import Network
from ..steiner.heuristics import mehlhorn
from .growth import Grown, Soil, grow, grow_boldly, grow_warily, improve
from .rules import RuleBase
from .stacks import Encoding, Request, encoding

STRETCH: Final = 1.6


class Choice:
    """The chosen virtual trees (indexes into the candidates), and the delivery tree grown for them."""

    def __init__(self, places: list[int], tree: Grown) -> None:
        self.places = places
        self.tree = tree

    @property
    def cost(self) -> int:
        return len(self.places) + self.tree.labels

    def beats(self, other: Choice) -> bool:
        """Returns whether it has fewer labels, or as many and fewer links."""
        if self.cost != other.cost:
            return self.cost < other.cost
        return self.tree.size < other.tree.size


class Encoder:
    """Encodes for one rule base as it is at creation; create a new one after a change of rules.

    `tried` candidates are grown per round, `starts` first choices are followed to their end.
    """

    def __init__(
        self,
        network: Network,
        rules: RuleBase,
        tried: int = 8,
        starts: int = 1,
        stretch: float = STRETCH,
        grown: int = 0,
    ) -> None:
        self.network = network
        self.rules = rules
        self.tried = tried
        self.starts = starts
        self.stretch = stretch
        # Few trees contain few candidates for the best one.
        self.grown = grown or min(tried, max(3, len(rules.trees) // 7))
        self.numbers: list[int] = sorted(rules.trees)
        self.masks: list[int] = [rules.trees[number] for number in self.numbers]
        self.edge_lists: list[list[int]] = [members(mask) for mask in self.masks]
        self.both_ways: list[int] = [self._links(edges) for edges in self.edge_lists]

    def _links(self, edges: list[int]) -> int:
        mask = 0
        for edge in edges:
            mask |= 3 << 2 * edge
        return mask

    def encode(self, asked: Request) -> Encoding:
        """Returns the labels of a notification, uncached: never more than the hops of Mehlhorn's tree alone.

        Raises RoutingError if a receiver is unreachable.
        """
        found = self._encoding(asked, self.search(asked))
        if found.label_count < asked.receivers.bit_count():
            return found  # a tree of hops has at least this many
        other = _mehlhorn(self.network, asked)
        if other.bit_count() >= found.label_count:
            return found
        return encoding(self.network, self.rules, asked, [], other)

    def _encoding(self, asked: Request, choice: Choice) -> Encoding:
        numbers = [self.numbers[place] for place in choice.places]
        return encoding(self.network, self.rules, asked, numbers, choice.tree.edges)

    def go_on(self, asked: Request, trees: list[int]) -> Encoding:
        """Encodes like `encode`, starting from a given choice of virtual trees (ids)."""
        receivers = members(asked.receivers)
        wanted = [0] * len(self.network.names)
        for node in receivers:
            wanted[node] = 1
        soil, count = Soil(self.network, asked.access), len(receivers)
        bare = grow(soil, asked.start, wanted, count).size
        places = [self.numbers.index(number) for number in trees]
        for place in places:
            soil.add(self.edge_lists[place])
        first = Choice(places, grow(soil, asked.start, wanted, count))
        for place in places:
            soil.remove(self.edge_lists[place])
        most = max(bare, int(bare * self.stretch))
        return self._encoding(asked, self._follow(soil, first, asked, wanted, count, most))

    def search(self, asked: Request) -> Choice:
        """Returns the best choice found."""
        wanted = [0] * len(self.network.names)
        receivers = members(asked.receivers)
        for node in receivers:
            wanted[node] = 1
        soil = Soil(self.network, asked.access)
        bare = Choice([], grow(soil, asked.start, wanted, len(receivers)))
        most = max(bare.tree.size, int(bare.tree.size * self.stretch))
        best = bare
        for first in self._step(soil, bare, asked, wanted, len(receivers), most, self.starts):
            found = self._follow(soil, first, asked, wanted, len(receivers), most)
            if found.beats(best):
                best = found
        if best is bare:
            best = Choice([], improve(soil, bare.tree, wanted))
        return best

    def _follow(
        self, soil: Soil, choice: Choice, asked: Request, wanted: list[int], count: int, most: int
    ) -> Choice:
        """Extends a first choice greedily, then removes what turned out to be unnecessary."""
        for place in choice.places:
            soil.add(self.edge_lists[place])
        while True:
            further = self._step(soil, choice, asked, wanted, count, most, 1)
            if not further or not further[0].beats(choice):
                break
            choice = further[0]
            soil.add(self.edge_lists[choice.places[-1]])
        choice = self._leave_out(soil, choice, asked, wanted, count, most)
        tree = grow_warily(soil, asked.start, wanted, count)
        improved = improve(soil, tree if tree.labels < choice.tree.labels else choice.tree, wanted)
        if improved.size <= most:
            choice = Choice(choice.places, improved)
        for place in choice.places:
            soil.remove(self.edge_lists[place])
        return choice

    def _step(
        self,
        soil: Soil,
        choice: Choice,
        asked: Request,
        wanted: list[int],
        count: int,
        most: int,
        keep: int,
    ) -> list[Choice]:
        """Returns the best choices with one more virtual tree, the best first, at most `keep`."""
        found: list[Choice] = []
        size = len(self.masks)
        for entry in self._shortlist(choice, asked)[: self.grown]:
            place, stayed = entry % size, entry // size
            edges = self.edge_lists[place]
            soil.add(edges)
            tree = grow_boldly(soil, asked.start, wanted, count)
            if tree.size > most or stayed < tree.labels:
                tree = Grown(choice.tree.entered, choice.tree.nodes, choice.tree.edges, stayed)
            soil.remove(edges)
            _insert(found, Choice([*choice.places, place], tree), keep)
        return found

    def _shortlist(self, choice: Choice, asked: Request) -> list[int]:
        """Returns the candidates that gain most with the present tree, and those that share most edges with
        it.

        Each is labels * number of candidates + index, fewest labels first: the labels needed if the tree
        stays. That is `growth.weigh` of the tree with the candidate: each edge of the tree that the candidate
        covers saves one label, each link of the candidate that leads away costs one.
        """
        edges, union = choice.tree.edges, 0
        for place in choice.places:
            union |= self.masks[place]
        leaving = 0
        for node in choice.tree.nodes:
            leaving |= self.network.link_masks[node]
        for node in choice.tree.nodes[1:]:
            link = choice.tree.entered[node]
            leaving &= ~(3 << (link & -2))
        for place in choice.places:
            leaving &= ~self.both_ways[place]
        leaving &= ~self._links(members(asked.access))
        open_edges = edges & ~union
        masks, both_ways, size = self.masks, self.both_ways, len(self.masks)
        ranked: list[int] = []
        shared: list[int] = []
        entries: list[int] = [0] * size
        for place in range(size):
            overlap = (masks[place] & open_edges).bit_count()
            if overlap:
                stops = (both_ways[place] & leaving).bit_count()
                entries[place] = (choice.tree.labels + stops - overlap) * size + place
                ranked.append(entries[place])
                shared.append(((1 << 20) - overlap) * size + place)
        ranked.sort()
        shared.sort()
        listed = ranked[: self.tried - self.tried // 2]
        for other in shared:
            if len(listed) >= self.tried:
                break
            entry = entries[other % size]
            if entry not in listed:
                listed.append(entry)
        listed.sort()
        return [entry for entry in listed if entry % size not in choice.places]

    def _leave_out(
        self, soil: Soil, choice: Choice, asked: Request, wanted: list[int], count: int, most: int
    ) -> Choice:
        """Drops chosen trees that cost as much as they save."""
        for place in list(choice.places):
            if len(choice.places) < 2:
                break
            soil.remove(self.edge_lists[place])
            tree = grow_boldly(soil, asked.start, wanted, count)
            other = Choice([p for p in choice.places if p != place], tree)
            if tree.size <= most and other.beats(choice):
                choice = other
            else:
                soil.add(self.edge_lists[place])
        return choice


def _insert(found: list[Choice], choice: Choice, keep: int) -> None:
    at = len(found)
    while at > 0 and choice.beats(found[at - 1]):
        at -= 1
    found.insert(at, choice)
    if len(found) > keep:
        found.pop()


def _mehlhorn(network: Network, asked: Request) -> int:
    return mehlhorn(network, [asked.start, *members(asked.receivers)], [1] * len(network.ends))


def hop_minimal(network: Network, asked: Request) -> int:
    """Returns the edges of the shortest tree without virtual trees: the better of Mehlhorn's and the grown
    one.
    """
    receivers = members(asked.receivers)
    wanted = [0] * len(network.names)
    for node in receivers:
        wanted[node] = 1
    soil = Soil(network, asked.access)
    grown = improve(soil, grow(soil, asked.start, wanted, len(receivers)), wanted)
    other = _mehlhorn(network, asked)
    return grown.edges if grown.size <= other.bit_count() else other
