"""Stored trees of publishers, alone and with hops: the tree and hybrid strategies (4.2.3, 4.3).

A stored tree leads to a publisher's stable subscribers; other receivers are attached by hop labels. These
name links, as in virtual trees, so that neither markers nor separators are needed and switches behave as for
virtual trees (`virtual.stacks`). Stable subscribers get every notification.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...wire.label_stack import hop, tree
from ..bits import mask_of
from ..network import Network, RoutingError
from ..rooted import breadth_first, preorder
from ..steiner.common import prune
from ..virtual.stacks import LabelForwarder
from .common import below, check_clients


class StoredTrees:
    """The trees that switches store, by id, each rooted at a publisher."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.trees: dict[int, tuple[int, int]] = {}
        self.rules: dict[tuple[int, int], int] = {}

    def store(self, source: int, edges: int) -> int:
        """Stores a publisher's tree and returns its id. Raises RoutingError if there is none to store."""
        if not edges & ~self.network.edge_masks[source]:
            raise RoutingError("a tree without edges beyond the publisher's own")
        number = len(self.trees) + 1
        self.trees[number] = (source, edges)
        for switch, links in tree_rules(self.network, source, edges).items():
            self.rules[switch, number] = links
        return number

    def links(self, switch: int, number: int) -> int:
        return self.rules.get((switch, number), 0)

    @property
    def rule_count(self) -> int:
        return len(self.rules)


def tree_rules(network: Network, source: int, edges: int) -> dict[int, int]:
    """Returns, for every sending switch of a publisher's tree, its links as bits."""
    if not edges & ~network.edge_masks[source]:
        return {}
    return {switch: mask_of(links) for switch, links in below(network, source, edges).items() if links}


class Hybrid:
    """Encoder and switches. The strategy `tree` is a hybrid with stable subscribers only; with dynamic
    subscribers only it sends hops only.
    """

    def __init__(self, network: Network, *, clean_up: bool = False) -> None:
        self.network = network
        self.stored = StoredTrees(network)
        self.switches = LabelForwarder(network, self.stored, clean_up=clean_up)
        self._numbers: dict[int, int] = {}

    def subscribe(self, source: int, potential: int, stable: Iterable[int]) -> int:
        """Stores the part of a publisher's tree to all potential subscribers that leads to the stable ones.

        Returns its edges; without stable subscribers stores nothing and returns 0.
        """
        edges = prune(self.network, potential, mask_of([source, *stable]))
        if not edges & ~self.network.edge_masks[source]:
            self._numbers.pop(source, None)
            return 0
        self._numbers[source] = self.stored.store(source, edges)
        return edges

    def encode(self, source: int, edges: int) -> list[int]:
        """Returns the stack for a tree that contains the stored one: hops to other receivers in preorder,
        then the stored tree's label. Raises RoutingError if the tree leaves out a stable subscriber.
        """
        number = self._numbers.get(source, 0)
        held = self.stored.trees[number][1] if number else 0
        if held & ~edges:
            raise RoutingError("a stable subscriber is not among the receivers")
        links = preorder(
            self.network, edges & ~self.network.edge_masks[source], self.network.switch_of(source)
        )
        labels = [hop(link) for link in links if not held >> (link >> 1) & 1]
        return [*labels, tree(number)] if number else labels

    def size(self, stack: list[int]) -> int:
        return self.switches.size(stack)

    def forward(self, switch: int, arrived: int, stack: list[int]) -> tuple[list[tuple[int, list[int]]], int]:
        return self.switches.forward(switch, arrived, stack)


def publisher_tree(network: Network, source: int, subscribers: Iterable[int]) -> int:
    """Returns the shortest-path tree of a publisher to its subscribers, a part of its tree to all hosts.

    Raises RoutingError if one of them is unreachable.
    """
    wanted = list(subscribers)
    check_clients(network, source, wanted)
    whole = breadth_first(network, source)
    for node in wanted:
        if not whole & network.edge_masks[node]:
            raise RoutingError(f"{network.names[node]} cannot be reached from {network.names[source]}")
    return prune(network, whole, mask_of([source, *wanted]))


def replacements(
    network: Network,
    source: int,
    stable: list[int],
    newcomers: list[int],
    order: list[int],
) -> list[int]:
    """Returns the accumulated number of changed rules after each replacement of a subscriber by a newcomer
    (4.4.3).

    `order` holds indexes into the stable ones followed by the dynamic ones. Each is replaced by the next
    newcomer, which inherits whether it is stable. Changing a dynamic one costs nothing; a stable one changes
    the rules of switches whose part of the tree changes. HEAD replaces the dynamic ones first, RULE the
    stable ones, RAND any.
    """
    held, spent, found = list(stable), 0, []
    rules = tree_rules(network, source, publisher_tree(network, source, held))
    for place, newcomer in zip(order, newcomers, strict=True):
        if place < len(held):
            held[place] = newcomer
            now = tree_rules(network, source, publisher_tree(network, source, held))
            spent += sum(rules.get(switch) != now.get(switch) for switch in {*rules, *now})
            rules = now
        found.append(spent)
    return found
