"""What rules of a switch take in memory, as a process: `... .memory KIND COUNT ...`.

For each count a switch is made and given so many rules, in the way in which rules come there; what the
process' resident set (RSS) has grown by is printed, a JSON list of [count, bytes]. All switches stay, so that
nothing is given back and used again. A process of its own per kind: others' memory is not in it.
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
_SUBSCRIBED = 10  # a set beyond what Python keeps ready-made numbers for
_PLACE = Place(frozenset(), bytes(6), bytes(4))


def _by_packets(name: str, count: int, **defines: str) -> StareSwitch:
    """A SUB-register of a host for each state."""
    made = StareSwitch(program(name, **defines), _PLACE, PORTS, Random(0))
    mac, address = bytes(6), bytes(4)
    for state in range(FIRST_STATE, FIRST_STATE + count):
        header = StareHeader(StareKind.SUB_REGISTER, state)
        made.device.turn([(_SUBSCRIBED, encode_frame(StareFrame(header, mac, address)))], 0.0)
    return made


def register(count: int) -> object:
    """A cell of the register of a switch that has as many."""
    return _by_packets("stare_register", count, STARE_STATES=str(count + FIRST_STATE))


def embedded(count: int) -> object:
    """An entry of the table alone: what the controller knows is let go."""
    return _by_packets("stare_embedded", count).switch


def embedded_with_controller(count: int) -> object:
    """The entry, and what the controller beside the switch knows of the state."""
    return _by_packets("stare_embedded", count)


def address_multicast(count: int) -> object:
    """An entry by address and UDP port, as OpenFlow switches have them, written by a controller elsewhere."""
    switch = Switch(program("address_multicast"), ports=PORTS, cpu_port=None)
    number = group_of(switch, [_SUBSCRIBED])
    for state in range(FIRST_STATE, FIRST_STATE + count):
        matches: Matches = {
            "hdr.ipv4.dst": ExactMatch(int.from_bytes(group(state))),
            "hdr.udp.dst": ExactMatch(PORT),
        }
        call = ActionCall("MulticastIngress.replicate", {"group": number})
        switch.control.insert("MulticastIngress.trees", Entry(matches, call))
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
    """(count, bytes) of one switch after the other."""
    kept: list[object] = [KINDS[kind](16)]  # loads and warms what is needed once
    found = []
    for count in counts:
        before = resident()
        kept.append(KINDS[kind](count))
        found.append((count, resident() - before))
    return found


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], [int(word) for word in sys.argv[2:]])))
