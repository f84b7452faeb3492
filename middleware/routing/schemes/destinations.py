"""Paths to destinations (4.2.2): a label per receiver; every switch knows the port towards each of them.

A switch makes one copy per port, with the labels of the receivers behind it.
"""

from __future__ import annotations

from ...wire.label_stack_entries import NODES, Entry, EntryFormat
from ..bits import members
from ..network import Network, RoutingError
from ..rooted import distances


class Destinations:
    """Encoder and switches. Look-ups: one per label of a packet, and for each copy one per label but its
    first.
    """

    def __init__(self, network: Network, *, form: EntryFormat = NODES) -> None:
        if network.node_count - 1 >> form.value_bits:
            raise RoutingError(f"{network.node_count} nodes do not fit labels of {form.value_bits} bits")
        self.network = network
        self.form = form
        self.toward: list[dict[int, int]] = [{} for _ in range(network.node_count)]
        for host in network.hosts:
            far = distances(network, host)
            for switch in network.switches:
                links = [link for link in network.out[switch] if far[network.heads[link]] == far[switch] - 1]
                if links and far[switch] > 0:
                    self.toward[switch][host] = links[0]

    @property
    def rule_count(self) -> int:
        """The number of rules on all switches: one per switch and host."""
        return sum(len(rules) for rules in self.toward)

    def encode(self, source: int, edges: int) -> list[Entry]:
        """Returns the stack for the receivers of a tree; switches choose the paths."""
        network, found = self.network, []
        for edge in members(edges):
            found += [node for node in network.ends[edge] if network.is_host[node] and node != source]
        return [Entry(0, host) for host in sorted(found)]

    def size(self, stack: list[Entry]) -> int:
        return self.form.stack_size(len(stack))

    def forward(
        self, switch: int, arrived: int, stack: list[Entry]
    ) -> tuple[list[tuple[int, list[Entry]]], int]:
        behind: dict[int, list[Entry]] = {}
        lookups = len(stack)
        for position, entry in enumerate(stack):
            link = self.toward[switch].get(entry.value, -1)
            if link >= 0:
                lookups += 0 if link in behind else len(stack) - position - 1
                behind.setdefault(link, []).append(entry)
        return list(behind.items()), lookups
