"""Switch/multicast-group pairs (3.3.3): a value names a set of ports that the switch knows as a group.

The ports of a switch are divided into `subsets` of equal width, and each set of ports within a subset is a
group, the same on every switch: group = subset * 2 ** width + ports in it as bits. One subset needs
2 ** ports - 1 groups, c subsets c * (2 ** (ports / c) - 1), and one entry per subset that is used.
"""

from __future__ import annotations

from ...wire.label_stack_entries import SWITCH_GROUP, Entry, EntryFormat
from ..bits import members
from ..network import Network, RoutingError
from .common import check_fits
from .switch_bitmask import port_masks


def group_count(ports: int, subsets: int = 1) -> int:
    """Returns the number of groups that a switch must know."""
    return subsets * ((1 << -(-ports // subsets)) - 1)


class SwitchGroup:
    """Encoder and switches. Look-ups: one per entry seen; a group makes all its copies at once.

    With several subsets a switch may have several entries, so the whole stack is read.
    """

    def __init__(self, network: Network, *, subsets: int = 1, form: EntryFormat = SWITCH_GROUP) -> None:
        most = max(len(network.out[switch]) for switch in network.switches)
        if not 1 <= subsets <= most:
            raise RoutingError(f"{most} ports cannot be divided into {subsets} subsets")
        self.network = network
        self.subsets = subsets
        self.width = -(-most // subsets)
        self.form = form
        check_fits(network, form, subsets << self.width)

    def encode(self, source: int, edges: int) -> list[Entry]:
        """Returns the publisher's stack for a tree."""
        entries, within = [], (1 << self.width) - 1
        for switch, mask in port_masks(self.network, source, edges):
            for subset in range(self.subsets):
                ports = mask >> subset * self.width & within
                if ports:
                    entries.append(Entry(switch, subset << self.width | ports))
        return entries

    def size(self, stack: list[Entry]) -> int:
        return self.form.stack_size(len(stack))

    def forward(
        self, switch: int, arrived: int, stack: list[Entry]
    ) -> tuple[list[tuple[int, list[Entry]]], int]:
        copies = []
        for position, entry in enumerate(stack):
            if entry.switch == switch:
                behind = stack[position + 1 :]
                copies += [(link, behind) for link in self.links(switch, entry.value)]
                if self.subsets == 1:
                    return copies, position + 1
        return copies, len(stack)

    def groups(self) -> list[int]:
        """Returns the numbers of all groups that a switch must know."""
        within = range(1, 1 << self.width)
        return [subset << self.width | ports for subset in range(self.subsets) for ports in within]

    def links(self, switch: int, group: int) -> list[int]:
        """Returns the links of a switch in a group."""
        first = (group >> self.width) * self.width
        ports = members(group & (1 << self.width) - 1)
        links = [self.network.link_at(switch, first + bit + 1) for bit in ports]
        return [link for link in links if link >= 0]
