"""Stacks of hop, tree and stop labels: encodings on the wire, and the switches' behaviour.

A switch processes the labels in order. A hop label of one of its links makes a copy for that link and leaves
the stack; a tree label with a rule makes a copy for each of the tree's links and stays. No copy goes back,
and none over a link that already has one. Every copy then reads the labels behind the one that made it: a
stop for its link drops it; the hop and stop labels of this switch leave its stack. A switch passes on labels
that it does not know.

docs/decisions/2026-11-21-trees.md resolves ambiguities of the thesis' listings 5.4 and 5.5.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from ...wire.label_stack import LAST_ID, MOST_LABELS, LabelKind, hop, id_of, kind_of, stack_size, stop, tree
from ..bits import members
from ..network import Network, RoutingError
from .layout import layout
from .rules import RuleBase


class Request(Struct, frozen=True):
    """A notification to be encoded.

    `start` is the switch where labels begin to count, `access` the edge by which the packet comes there
    (bits; 0 if its publisher is inside), `receivers` are bits of nodes.
    """

    start: int
    access: int
    receivers: int


class Encoding(Struct, frozen=True):
    """Virtual trees by id, the links that need hops and stops, and the edges of the delivery tree.

    The access link of a publisher's host is in none of them.
    """

    trees: tuple[int, ...]
    hops: tuple[int, ...]
    stops: tuple[int, ...]
    edges: int

    @property
    def label_count(self) -> int:
        return len(self.trees) + len(self.hops) + len(self.stops)

    @property
    def labels(self) -> list[int]:
        """Hops in preorder, then trees, then stops."""
        return [*map(hop, self.hops), *map(tree, self.trees), *map(stop, self.stops)]


def check_ids(network: Network) -> None:
    """Raises RoutingError if a network has more links than labels can name."""
    if len(network.tails) > LAST_ID + 1:
        raise RoutingError(f"{len(network.tails)} links; labels name {LAST_ID + 1}: use a smaller network")


def request(network: Network, source: int, receivers: list[int]) -> Request:
    """Returns the request of a publisher. Raises RoutingError for no receivers, and for unknown ids."""
    if not receivers:
        raise RoutingError("a notification without receivers needs no tree")
    wanted = 0
    for node in receivers:
        if not 0 <= node < network.node_count or (network.hosts and not network.is_host[node]):
            raise RoutingError(f"node {node} can receive nothing")
        wanted |= 1 << node
    if not 0 <= source < network.node_count or (network.hosts and not network.is_host[source]):
        raise RoutingError(f"node {source} can publish nothing")
    if wanted >> source & 1:
        raise RoutingError(f"{network.names[source]} is publisher and receiver of one notification")
    check_ids(network)
    if network.is_host[source]:
        return Request(network.switch_of(source), network.edge_masks[source], wanted)
    return Request(source, 0, wanted)


def encoding(
    network: Network,
    rules: RuleBase,
    asked: Request,
    numbers: list[int],
    edges: int,
    *,
    printed: bool = False,
) -> Encoding:
    """Returns the labels for a tree and a choice of virtual trees: hops for edges outside them, stops for
    links that lead away.

    `printed`: one stop for a chord, as the thesis' line 8 counts; such a stack may deliver twice.
    """
    union = 0
    for number in numbers:
        union |= rules.trees[number]
    hops, stops = layout(network, union, asked.start, asked.access, edges, printed)
    return Encoding(tuple(numbers), tuple(hops), tuple(stops), edges)


def check_encoding(found: Encoding) -> None:
    """Raises RoutingError if a stack is longer than switches have room for."""
    if found.label_count > MOST_LABELS:
        raise RoutingError(
            f"{found.label_count} labels; switches have room for {MOST_LABELS}: send to fewer receivers"
        )


class Rules(Protocol):
    """The switches' knowledge of trees."""

    def links(self, switch: int, number: int) -> int: ...


class LabelForwarder:
    """Switches that hold rules of trees."""

    def __init__(self, network: Network, rules: Rules, *, clean_up: bool = False) -> None:
        self.network = network
        self.rules = rules
        self.clean_up = clean_up

    def size(self, stack: list[int]) -> int:
        return stack_size(len(stack))

    def forward(self, switch: int, arrived: int, stack: list[int]) -> tuple[list[tuple[int, list[int]]], int]:
        """Returns the copies of one packet.

        Look-ups are passes through the switch: one per label that the packet or a copy reads, and one per
        copy beyond a label's first. A copy reads only up to its stop.
        """
        served = 1 << (arrived ^ 1) if arrived >= 0 else 0
        mine = self.network.link_masks[switch]
        copies: list[tuple[int, list[int]]] = []
        lookups = 0
        kept: list[int] = []
        for position, label in enumerate(stack):
            wanted, stays = self._meaning(switch, mine, label)
            if stays:
                kept.append(label)
            links = members(wanted & ~served)
            served |= wanted
            lookups += max(1, len(links))
            for link in links:
                behind = stack[position + 1 :]
                if stop(link) in behind:
                    lookups += behind.index(stop(link)) + 1
                else:
                    lookups += len(behind)
                    copies.append((link, self._leave(link, mine, kept + behind)))
        return copies, lookups

    def _meaning(self, switch: int, mine: int, label: int) -> tuple[int, bool]:
        """Returns the links that a label asks for, and whether it stays in the stack."""
        kind, number = kind_of(label), id_of(label)
        if kind == LabelKind.TREE:
            return self.rules.links(switch, number), True
        own = mine >> number & 1
        return (1 << number if own and kind == LabelKind.HOP else 0), not own

    def _leave(self, link: int, mine: int, stack: list[int]) -> list[int]:
        if self.clean_up and self.network.is_host[self.network.heads[link]]:
            return []
        return [label for label in stack if kind_of(label) == LabelKind.TREE or not mine >> id_of(label) & 1]
