"""Switch/bitmask pairs (3.3.2): one entry per sending switch, in preorder; bit i of the value is port i + 1.

A switch discards entries up to its own; every set bit makes a copy with the entries behind it.
"""

from __future__ import annotations

from ...wire.label_stack_entries import SWITCH_BITMASK, Entry, EntryFormat
from ..bits import members
from ..network import Network
from .common import below, check_fits


class SwitchBitmask:
    """Encoder and switches. Look-ups: one per entry seen, and one per bit beyond the first."""

    def __init__(self, network: Network, *, form: EntryFormat = SWITCH_BITMASK) -> None:
        self.network = network
        self.form = form
        check_fits(network, form, (1 << max(len(network.out[switch]) for switch in network.switches)) - 1)

    def encode(self, source: int, edges: int) -> list[Entry]:
        """Returns the publisher's stack for a tree."""
        return [Entry(switch, mask) for switch, mask in port_masks(self.network, source, edges)]

    def size(self, stack: list[Entry]) -> int:
        return self.form.stack_size(len(stack))

    def forward(
        self, switch: int, arrived: int, stack: list[Entry]
    ) -> tuple[list[tuple[int, list[Entry]]], int]:
        for position, entry in enumerate(stack):
            if entry.switch == switch:
                links = [self.network.link_at(switch, bit + 1) for bit in members(entry.value)]
                copies = [(link, stack[position + 1 :]) for link in links if link >= 0]
                return copies, position + max(1, len(links))
        return [], len(stack)


def port_masks(network: Network, source: int, edges: int) -> list[tuple[int, int]]:
    """Returns every sending switch of a tree, in preorder, with its ports as bits (port 1 is bit 0)."""
    links = below(network, source, edges)
    found, waiting = [], [network.switch_of(source)]
    while waiting:
        switch = waiting.pop()
        mask = 0
        for link in links.get(switch, []):
            mask |= 1 << (network.ports[link] - 1)
        if mask:
            found.append((switch, mask))
            waiting += [network.heads[link] for link in reversed(links[switch])]
    return found
