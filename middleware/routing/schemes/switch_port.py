"""Switch/port pairs in preorder (3.3.1): one entry per link of the tree, followed by its whole subtree.

Predictive pruning: before a copy leaves, everything from the switch's next entry on is cut off, because it
belongs to another subtree. Reactive: a copy takes everything behind its entry, and the next switch skips
entries of others.
"""

from __future__ import annotations

from ...wire.label_stack_entries import SWITCH_PORT, Entry, EntryFormat
from ..network import Network
from .common import below, check_fits


class SwitchPort:
    """Encoder and switches. Look-ups: one per entry that a packet sees and, with predictive pruning, one per
    entry that a copy sees.
    """

    def __init__(self, network: Network, *, predictive: bool = True, form: EntryFormat = SWITCH_PORT) -> None:
        self.network = network
        self.predictive = predictive
        self.form = form
        check_fits(network, form, max(len(out) for out in network.out))

    def encode(self, source: int, edges: int) -> list[Entry]:
        """Returns the publisher's stack for a tree."""
        links = below(self.network, source, edges)
        entries: list[Entry] = []
        waiting = list(reversed(links[self.network.switch_of(source)]))
        while waiting:
            link = waiting.pop()
            entries.append(Entry(self.network.tails[link], self.network.ports[link]))
            waiting += reversed(links.get(self.network.heads[link], []))
        return entries

    def size(self, stack: list[Entry]) -> int:
        return self.form.stack_size(len(stack))

    def forward(
        self, switch: int, arrived: int, stack: list[Entry]
    ) -> tuple[list[tuple[int, list[Entry]]], int]:
        copies, lookups = [], len(stack)
        own = [position for position, entry in enumerate(stack) if entry.switch == switch]
        for position, following in zip(own, [*own[1:], len(stack)], strict=False):
            end = following if self.predictive else len(stack)
            link = self.network.link_at(switch, stack[position].value)
            if link >= 0:
                lookups += len(stack) - position - 1 if self.predictive else 0
                copies.append((link, stack[position + 1 : end]))
        return copies, lookups
