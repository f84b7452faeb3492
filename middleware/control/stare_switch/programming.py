"""What the control plane writes into a STARE switch: configuration, routes, multicast groups, entries.

Names are those of p4/stare_register.p4 and p4/stare_embedded.p4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    Control,
    Entry,
    ExactMatch,
    LpmMatch,
    Matches,
    MulticastGroup,
    Replica,
)
from treecast.middleware.wire.stare import group

from .embedded import Place, port_set

TABLE: Final = "StareIngress.subscribers"
REGISTER: Final = "StareIngress.subscribers"
_CONFIGURATION: Final = "StareIngress.configuration"
_ROUTES: Final = "StareIngress.l3.ipv4_lpm"
MOST_PORTS: Final = 10  # for all of whose sets groups are made beforehand: 1,023 of them


def all_groups(ports: Iterable[int]) -> Iterator[MulticastGroup]:
    """One for each set of ports that is not empty. ValueError for more than 10 ports."""
    known = sorted(set(ports))
    if len(known) > MOST_PORTS:
        raise ValueError(f"{len(known)} ports have {2 ** len(known) - 1} sets: at most {MOST_PORTS} ports")
    for count in range(1, len(known) + 1):
        for some in combinations(known, count):
            yield group_of(port_set(some))


def group_of(ports: int) -> MulticastGroup:
    """The group that goes to a set of ports; the set is its number."""
    return MulticastGroup(ports, tuple(Replica(port) for port in range(16) if ports >> port & 1))


def register_state(
    place: Place, ports: Iterable[int], routes: Mapping[tuple[bytes, int], tuple[int, bytes]] = {}
) -> SwitchState:
    """What a switch of the register design shall hold. Routes: (network, prefix) to (port, MAC)."""
    arguments = {
        "tree": port_set(place.tree),
        "mac": int.from_bytes(place.mac),
        "address": int.from_bytes(place.address),
    }
    return _state(ActionCall("StareIngress.configure", arguments), ports, routes)


def embedded_state(
    place: Place, ports: Iterable[int], routes: Mapping[tuple[bytes, int], tuple[int, bytes]] = {}
) -> SwitchState:
    """What a switch of the embedded design shall hold before its controller writes entries."""
    arguments = {"mac": int.from_bytes(place.mac)}
    return _state(ActionCall("StareIngress.configure", arguments), ports, routes)


def _state(
    configure: ActionCall,
    ports: Iterable[int],
    routes: Mapping[tuple[bytes, int], tuple[int, bytes]],
) -> SwitchState:
    return SwitchState.of(
        entries=[(_ROUTES, _route(*network, *hop)) for network, hop in routes.items()],
        defaults={_CONFIGURATION: configure},
        groups=all_groups(ports),
    )


def _route(network: bytes, prefix: int, port: int, mac: bytes) -> Entry:
    match = LpmMatch(int.from_bytes(network), prefix)
    arguments = {"port": port, "next_hop": int.from_bytes(mac)}
    return Entry({"ipv4.dst": match}, ActionCall("StareIngress.l3.route", arguments))


def entry_of(state: int, ports: int) -> Entry:
    """Publishes of a state go to a set of ports."""
    return Entry(matches_of(state), ActionCall("StareIngress.replicate", {"ports": ports}))


def matches_of(state: int) -> Matches:
    return {"hdr.ipv4.dst": ExactMatch(int.from_bytes(group(state)))}


def bring_up(control: Control, state: SwitchState) -> None:
    """Writes a state into a fresh switch in this process."""
    for key, entry in state.entries.items():
        control.insert(key.table, entry)
    for table, action in state.defaults.items():
        control.set_default(table, action)
    for one in state.groups.values():
        control.insert_multicast_group(one)


class ControlDriver:
    """A `SwitchDriver` for a switch in this process: `sent` is taken by who moves its packets."""

    def __init__(self, control: Control) -> None:
        self.sent: list[bytes] = []  # packet-outs, with the header before them
        self._control = control
        self._known: set[int] = set()

    def write(self, state: int, ports: int) -> None:
        if not ports:
            self._control.delete(TABLE, matches_of(state))
            self._known.discard(state)
        elif state in self._known:
            self._control.modify(TABLE, entry_of(state, ports))
        else:
            self._control.insert(TABLE, entry_of(state, ports))
            self._known.add(state)

    def send(self, ports: int, frame: bytes) -> None:
        self.sent.append(ports.to_bytes(2) + frame)
