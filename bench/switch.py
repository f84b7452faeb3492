"""The switch comparison: STARE packets through `treecast p4 switch` and Open vSwitch's userspace datapath.

Both have packet sockets on the same virtual cables, the same number of ports, and one core; the load has the
other. The result is the kernel's count of arrivals at the cables' far ends, divided by the copies of a
packet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.core.measure import Workload
from bench.core.wires import Wires
from bench.peers.openvswitch import OpenVSwitch
from bench.peers.treecast_switch import FloorSwitch, SwitchPeer, TreecastSwitch
from bench.workloads.flood import COPIES, FORWARDED, SWITCH_CPU, Flood

OURS, THEIRS = "Treecast, embedded", "Open vSwitch"
PEERS = ("embedded", "register", "ovs", "floor")
PANELS = (FORWARDED, COPIES, SWITCH_CPU)
STATES = 64


def workloads(wires: Wires, payloads: tuple[int, ...], seconds: float) -> list[Workload[Any]]:
    return [Flood(wires, payload, STATES, seconds) for payload in payloads]


def peers(names: list[str], wires: Wires, python: str, ovs: Path, folder: Path | None) -> list[SwitchPeer]:
    """Returns peers by their command-line names. Raises KeyError for any other."""
    known: dict[str, SwitchPeer] = {
        "embedded": TreecastSwitch(wires, STATES, "embedded", python, folder),
        "register": TreecastSwitch(wires, STATES, "register", python, folder),
        "ovs": OpenVSwitch(wires, STATES, ovs, folder),
        "floor": FloorSwitch(wires, folder),
    }
    return [known[name] for name in names]
