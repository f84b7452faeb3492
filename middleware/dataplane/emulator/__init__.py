"""P4 switches and hosts joined by links in memory, under one simulated clock. Pure. docs/emulator.md."""

from .counts import EmulationCounts, LinkCounts, read_counts
from .devices import CpuPort, Device, Endpoint, SwitchDevice
from .emulator import Emulator, EmulatorError
from .links import PLAIN, LinkSettings

__all__ = [
    "PLAIN",
    "CpuPort",
    "Device",
    "Emulator",
    "EmulationCounts",
    "EmulatorError",
    "Endpoint",
    "LinkCounts",
    "LinkSettings",
    "SwitchDevice",
    "read_counts",
]
