"""Hops to neighbours (4.2.1): the nodes of the tree in preorder; a switch knows its neighbours.

A copy for a neighbour takes the labels between that neighbour's and the next neighbour's. As printed this
fails if a node deeper in a subtree is a neighbour too: it would be served twice. So the tree is first rebuilt
breadth first among its own nodes, where no node has a neighbour two levels below it.
"""

from __future__ import annotations

from ...wire.label_stack_entries import NODES, Entry, EntryFormat
from ..bits import mask_of, members
from ..network import Network, RoutingError
from ..rooted import breadth_first, preorder
from ..steiner.common import nodes_of, prune


class Hops:
    """Encoder and switches. Look-ups: one per label that a packet or a copy sees."""

    def __init__(self, network: Network, *, form: EntryFormat = NODES) -> None:
        if network.node_count - 1 >> form.value_bits:
            raise RoutingError(f"{network.node_count} nodes do not fit labels of {form.value_bits} bits")
        self.network = network
        self.form = form
        self.near: list[dict[int, int]] = [
            {network.heads[link]: link for link in network.out[node]} for node in range(network.node_count)
        ]

    def encode(self, source: int, edges: int) -> list[Entry]:
        """Returns the publisher's stack for a tree."""
        network, root = self.network, self.network.switch_of(source)
        nodes = nodes_of(network, edges) & ~(1 << source)
        clients = mask_of(node for node in members(nodes) if network.is_host[node])
        hung = prune(network, breadth_first(network, root, nodes), clients | 1 << root)
        return [Entry(0, network.heads[link]) for link in preorder(network, hung, root)]

    def size(self, stack: list[Entry]) -> int:
        return self.form.stack_size(len(stack))

    def forward(
        self, switch: int, arrived: int, stack: list[Entry]
    ) -> tuple[list[tuple[int, list[Entry]]], int]:
        near = self.near[switch]
        own = [position for position, entry in enumerate(stack) if entry.value in near]
        copies, lookups = [], len(stack)
        for position, end in zip(own, [*own[1:], len(stack)], strict=False):
            lookups += len(stack) - position - 1
            copies.append((near[stack[position].value], stack[position + 1 : end]))
        return copies, lookups
