"""Virtual trees learned from observed notifications: set and encodings change together.

A sample is encoded with the present trees. Connected pieces that encodings still express by hops, and parts
shared by delivery trees, are candidates. Each is rated by the labels that it would save if all delivery trees
stayed (bits alone). The first few are tried: installed, if necessary in place of the trees that the sample
needs least, and the affected notifications are encoded again. A set is better only if the sample then needs
fewer labels. So no strategy is needed, and unused trees are removed.

Trees learned from few notifications suit these alone: `held_out` splits a sample, so that other notifications
judge them.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ..bits import members
from ..network import Network
from ..rng import Rng
from .encoder import Encoder
from .rules import FEWEST_EDGES, RuleBase
from .stacks import Encoding, Request

ROUNDS: Final = 60  # of rating all candidates
TRIED: Final = 6  # candidates per round
PAIRS: Final = 60  # pairs of delivery trees, whose common parts are candidates


class Learned(Struct, frozen=True):
    """Rules, and the labels per notification of the sample before and after."""

    rules: RuleBase
    before: float
    after: float


class _Seen:
    """The sample as a rule base encodes it."""

    def __init__(self, rules: RuleBase, sample: list[Request], found: list[Encoding]) -> None:
        self.rules = rules
        self.sample = sample
        self.found = found
        self.labels = sum(one.label_count for one in found)


def learn(
    network: Network, start: RuleBase, sample: list[Request], rng: Rng, rounds: int = ROUNDS
) -> Learned:
    """Returns a rule base that needs fewer labels for a sample, from one that is there; that is not changed.

    Raises RoutingError if a receiver of the sample cannot be reached.
    """
    encoder = Encoder(network, start)
    seen = _Seen(start.copy(), sample, [encoder.encode(asked) for asked in sample])
    before = seen.labels
    refused: set[int] = set()
    for _ in range(rounds if sample else 0):
        better = _round(network, seen, refused, rng)
        if better is None:
            break
        seen = better
    count = max(1, len(sample))
    return Learned(seen.rules, before / count, seen.labels / count)


def held_out(sample: list[Request]) -> tuple[list[Request], list[Request]]:
    """Returns two of three notifications to learn from, and the third to judge by."""
    return [one for at, one in enumerate(sample) if at % 3 != 2], sample[2::3]


def _round(network: Network, seen: _Seen, refused: set[int], rng: Rng) -> _Seen | None:
    """Returns the state with one more tree, or None if no tried one helps."""
    ratings = _ratings(network, seen, refused, rng)
    for edges in ratings[:TRIED]:
        better = _with(network, seen, edges)
        if better is not None:
            return better
        refused.add(edges)
    return None


def _with(network: Network, seen: _Seen, edges: int) -> _Seen | None:
    """Returns the state with one more tree, removing others if there is no room; None if that does
    not help.
    """
    rules = seen.rules.copy()
    gone = _make_room(seen, rules, edges)
    if not rules.offer(edges):
        return None
    encoder, found, labels = Encoder(network, rules), list(seen.found), 0
    for at, asked in enumerate(seen.sample):
        old = found[at]
        if not gone.isdisjoint(old.trees) or (edges & old.edges).bit_count() > 1:
            new = encoder.encode(asked)
            lost = not gone.isdisjoint(old.trees)
            found[at] = new if lost or new.label_count < old.label_count else old
        labels += found[at].label_count
        if labels >= seen.labels:
            return None
    return _Seen(rules, seen.sample, found)


def _make_room(seen: _Seen, rules: RuleBase, edges: int) -> set[int]:
    """Takes out the trees that the sample uses least, from switches that are full; their ids."""
    uses = dict.fromkeys(rules.trees, 0)
    for one in seen.found:
        for number in one.trees:
            uses[number] += (rules.trees[number] & one.edges).bit_count()
    gone: set[int] = set()
    for switch in rules.switches(edges):
        while rules.used[switch] >= rules.limit:
            there = [number for number, its in rules.trees.items() if rules.links(switch, number) and its]
            if not there:
                break
            least = min(there, key=lambda number: (uses[number], number))
            rules.remove(least)
            gone.add(least)
    return gone


def _ratings(network: Network, seen: _Seen, refused: set[int], rng: Rng) -> list[int]:
    """Returns candidates by their savings, the best first; only those that would save anything."""
    known = {*seen.rules.trees.values(), *refused}
    views = [_View(network, seen, at) for at in range(len(seen.found))]
    rated = []
    for edges in sorted(_candidates(network, seen, rng) - known):
        saved = sum(max(0, view.saved(edges)) for view in views)
        if saved > 0:
            rated.append((-saved, edges.bit_count(), edges))
    return [edges for _, _, edges in sorted(rated)]


class _View:
    """One encoding as bits: the savings of an additional tree while its delivery tree stays."""

    def __init__(self, network: Network, seen: _Seen, at: int) -> None:
        one, asked = seen.found[at], seen.sample[at]
        union = asked.access
        for number in one.trees:
            union |= seen.rules.trees[number]
        self.open = one.edges & ~union
        self.closed = union | one.edges
        self.ends: list[int] = []
        for node in _nodes(network, one.edges, asked.start):
            self.ends.append(network.edge_masks[node])

    def saved(self, edges: int) -> int:
        gained = (edges & self.open).bit_count() - 1
        if gained < 1:
            return 0
        away = edges & ~self.closed
        if away:
            gained -= sum((away & mask).bit_count() for mask in self.ends)
        return gained


def _nodes(network: Network, edges: int, start: int) -> list[int]:
    nodes = 1 << start
    for edge in members(edges):
        first, second = network.ends[edge]
        nodes |= 1 << first | 1 << second
    return members(nodes)


def _candidates(network: Network, seen: _Seen, rng: Rng) -> set[int]:
    """Pieces of hops, parts that delivery trees share, and these with the trees that are used beside them."""
    found: set[int] = set()
    trees = [one.edges for one in seen.found]
    for at, one in enumerate(seen.found):
        hops = 0
        for link in one.hops:
            hops |= 1 << (link >> 1)
        found.update(pieces(network, hops))
        for number in one.trees:
            found.update(pieces(network, (seen.rules.trees[number] & one.edges) | hops))
        found.update(pieces(network, one.edges & ~seen.sample[at].access))
    for _ in range(PAIRS if len(trees) > 1 else 0):
        first, second = rng.sample(trees, 2)
        found.update(pieces(network, first & second))
    return found


def pieces(network: Network, edges: int) -> list[int]:
    """Returns the parts of a forest that hang together, of two edges at least."""
    found = []
    while edges:
        piece = edges & -edges
        while True:
            nodes = _nodes(network, piece, network.ends[piece.bit_length() - 1][0])
            reached = piece
            for node in nodes:
                reached |= network.edge_masks[node] & edges
            if reached == piece:
                break
            piece = reached
        edges &= ~piece
        if piece.bit_count() >= FEWEST_EDGES:
            found.append(piece)
    return found
