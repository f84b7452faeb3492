"""Mixed entries (3.3.4): a tag in each entry selects one of three kinds of value.

The encoder uses a group that the switch knows, else a bitmask if allowed and more than one port is needed,
else a port per entry. As a switch may have several entries, it reads the whole stack.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ...wire.label_stack_entries import MIXED, Entry, EntryFormat
from ..bits import members
from ..network import Network
from .common import check_fits
from .switch_bitmask import port_masks


class Way(enum.IntEnum):
    """The tag of an entry."""

    PORT = 0
    BITMASK = 1
    GROUP = 2


class Ability:
    """The abilities of one switch: whether it reads bitmasks, and its groups (ports as bits, by number)."""

    def __init__(self, *, bitmask: bool = True, groups: Mapping[int, int] | None = None) -> None:
        self.bitmask = bitmask
        self.groups = dict(groups or {})
        self.number_of = {ports: number for number, ports in self.groups.items()}


class Mixed:
    """Encoder and switches. A switch that is not in `abilities` reads ports only."""

    def __init__(
        self, network: Network, abilities: Mapping[int, Ability], *, form: EntryFormat = MIXED
    ) -> None:
        self.network = network
        self.abilities = abilities
        self.form = form
        self._ports_only = Ability(bitmask=False)
        check_fits(network, form, (1 << max(len(network.out[switch]) for switch in network.switches)) - 1)

    def encode(self, source: int, edges: int) -> list[Entry]:
        """Returns the publisher's stack for a tree."""
        entries: list[Entry] = []
        for switch, mask in port_masks(self.network, source, edges):
            ability = self.abilities.get(switch, self._ports_only)
            if mask in ability.number_of:
                entries.append(Entry(switch, ability.number_of[mask], Way.GROUP))
            elif ability.bitmask and mask & (mask - 1):
                entries.append(Entry(switch, mask, Way.BITMASK))
            else:
                entries += [Entry(switch, bit + 1, Way.PORT) for bit in members(mask)]
        return entries

    def size(self, stack: list[Entry]) -> int:
        return self.form.stack_size(len(stack))

    def forward(
        self, switch: int, arrived: int, stack: list[Entry]
    ) -> tuple[list[tuple[int, list[Entry]]], int]:
        copies, lookups = [], 0
        for position, entry in enumerate(stack):
            lookups += 1
            if entry.switch == switch:
                ports = self._ports(switch, entry)
                lookups += max(0, len(ports) - 1) if entry.tag == Way.BITMASK else 0
                links = [self.network.link_at(switch, port) for port in ports]
                copies += [(link, stack[position + 1 :]) for link in links if link >= 0]
        return copies, lookups

    def _ports(self, switch: int, entry: Entry) -> list[int]:
        if entry.tag == Way.PORT:
            return [entry.value]
        if entry.tag == Way.BITMASK:
            return [bit + 1 for bit in members(entry.value)]
        ability = self.abilities.get(switch, self._ports_only)
        known = ability.groups.get(entry.value, 0) if entry.tag == Way.GROUP else 0
        return [bit + 1 for bit in members(known)]
