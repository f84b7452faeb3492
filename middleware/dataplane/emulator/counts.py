"""The counts of an emulation, by link and by switch, as values."""

from __future__ import annotations

from msgspec import Struct

from ..p4 import Stats
from .devices import SwitchDevice
from .emulator import Emulator
from .links import Way


class LinkCounts(Struct, frozen=True):
    """One direction of a link. `packets` and `bytes` are what was sent into it, including Ethernet
    headers.
    """

    packets: int = 0
    bytes: int = 0
    lost: int = 0
    overflow: int = 0
    doubled: int = 0
    late: int = 0


class EmulationCounts(Struct, frozen=True):
    """Links by name (`s1 -> s2`), switches by theirs: passes, recirculations, look-ups (`Stats`)."""

    seconds: float
    links: dict[str, LinkCounts]
    switches: dict[str, Stats]

    @property
    def packets(self) -> int:
        return sum(one.packets for one in self.links.values())

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.links.values())


def read_counts(emulator: Emulator) -> EmulationCounts:
    """Returns a reading, since the beginning."""
    network = emulator.network
    return EmulationCounts(
        emulator.now,
        {network.link_name(number): counts_of(way) for number, way in enumerate(emulator.ways)},
        {
            network.names[node]: device.switch.stats()
            for node, device in sorted(emulator.devices.items())
            if isinstance(device, SwitchDevice)
        },
    )


def counts_of(way: Way) -> LinkCounts:
    """Returns the counts of one direction."""
    return LinkCounts(way.packets, way.bytes, way.lost, way.overflow, way.doubled, way.late)
