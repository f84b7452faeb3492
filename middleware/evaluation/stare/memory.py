"""Measures the memory of a switch's rules, in a process: `... .memory KIND COUNT ...`.

For each count it creates a switch with that many rules, installed in the usual way, and prints the growth of
the process' resident set (RSS), as a JSON list of [count, bytes]. All switches are kept, so that no memory is
reused. Each kind needs its own process, so that it excludes others' memory.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from random import Random

from ...control.stare_switch.embedded import Place
from ...dataplane.p4 import ActionCall, Entry, ExactMatch, Matches, Switch
from ...wire.stare import FIRST_STATE, PORT, StareHeader, StareKind, group
from ...wire.stare_frames import StareFrame, encode_frame
from .programs import program
from .switches import StareSwitch
from .tree import group_of

PORTS = tuple(range(1, 11))
_SUBSCRIBED = 10  # a set beyond Python's preallocated numbers
_PLACE = Place(frozenset(), bytes(6), bytes(4))


def _by_packets(name: str, count: int, **defines: str) -> StareSwitch:
    """Returns a switch after a SUB-register of a host for each state."""
    made = StareSwitch(program(name, **defines), _PLACE, PORTS, Random(0))
    mac, address = bytes(6), bytes(4)
    for state in range(FIRST_STATE, FIRST_STATE + count):
        header = StareHeader(StareKind.SUB_REGISTER, state)
        made.device.turn([(_SUBSCRIBED, encode_frame(StareFrame(header, mac, address)))], 0.0)
    return made


def register(count: int) -> object:
    """Returns a switch with a register of that many cells."""
    return _by_packets("stare_register", count, STARE_STATES=str(count + FIRST_STATE))


def embedded(count: int) -> object:
    """Returns only the switch with its table entries, without the controller's state."""
    return _by_packets("stare_embedded", count).switch


def embedded_with_controller(count: int) -> object:
    """Returns the table entries together with the controller's state."""
    return _by_packets("stare_embedded", count)


def address_multicast(count: int) -> object:
    """Returns a switch with entries by address and UDP port, as in OpenFlow, written by a remote
    controller.
    """
    switch = Switch(program("address_multicast"), ports=PORTS, cpu_port=None)
    number = group_of(switch, [_SUBSCRIBED])
    for state in range(FIRST_STATE, FIRST_STATE + count):
        matches: Matches = {
            "hdr.ipv4.dst": ExactMatch(int.from_bytes(group(state))),
            "hdr.udp.dst": ExactMatch(PORT),
        }
        call = ActionCall("MulticastIngress.replicate", {"group": number})
        switch.control.table("MulticastIngress.trees").insert(Entry(matches, call))
    return switch


KINDS: dict[str, Callable[[int], object]] = {
    one.__name__: one for one in (register, embedded, embedded_with_controller, address_multicast)
}


def resident() -> int:
    """Bytes of this process' resident set."""
    gc.collect()
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(kind: str, counts: list[int]) -> list[tuple[int, int]]:
    """Returns (count, bytes) of one switch after the other."""
    kept: list[object] = [KINDS[kind](16)]  # loads and initialises shared code once
    found = []
    for count in counts:
        before = resident()
        kept.append(KINDS[kind](count))
        found.append((count, resident() - before))
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], [int(word) for word in sys.argv[2:]])))
