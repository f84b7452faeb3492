"""The control plane's writes to a STARE switch: configuration, routes, multicast groups, entries.

Names are those of p4/stare_register.p4 and p4/stare_embedded.p4. Routes map (network, prefix length) to
(port, MAC of the next hop); networks are packed IPv4 or IPv6.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Final

from finsy.proto import p4i

from treecast.middleware.control.switches import SwitchState
from treecast.middleware.dataplane.p4 import (
    ActionCall,
    Control,
    Entry,
    ExactMatch,
    LpmMatch,
    Matches,
    MulticastGroup,
    Replica,
)

from .embedded import Place, port_set

Routes = Mapping[tuple[bytes, int], tuple[int, bytes]]
NO_ROUTES: Final[Routes] = {}

TABLE: Final = "StareIngress.subscribers"
REGISTER: Final = "StareIngress.subscribers"
_CONFIGURATION: Final = "StareIngress.configuration"
# by size of an address in bytes
_ROUTES: Final = {4: "StareIngress.l3.ipv4_lpm", 16: "StareIngress.l3.ipv6_lpm"}
_PORT_SETS: Final = {("StareIngress.configure", "tree"), ("StareIngress.replicate", "ports")}
WIDTH: Final = 16  # size in bits of a set of ports in the unmodified programs; 16 times STARE_BANK
MOST_BANKS: Final = 12  # groups for all sets of these are created in advance: 4,095 of them


def all_groups(ports: Iterable[int], width: int = WIDTH) -> Iterator[MulticastGroup]:
    """Yields a group for each set of banks that have ports, numbered as in p4/include/stare.p4.

    `width`: size in bits of a set of ports in the switch's program. Raises ValueError for ports in more than
    12 banks, or beyond the program's width.
    """
    size = width // 16
    known = sorted(set(ports))
    if known and known[-1] >= width:
        raise ValueError(f"port {known[-1]}: this program has ports 0 to {width - 1}")
    banks: dict[int, list[int]] = {}
    for port in known:
        banks.setdefault(port // size, []).append(port)
    if len(banks) > MOST_BANKS:
        raise ValueError(
            f"{len(known)} ports are in {len(banks)} banks of {size}: at most {MOST_BANKS} of them; "
            f"p4/stare_*_wide.p4 have banks of 8"
        )
    for count in range(1, len(banks) + 1):
        for some in combinations(banks, count):
            replicas = tuple(Replica(port) for bank in some for port in banks[bank])
            yield MulticastGroup(port_set(some), replicas)


def width_of(info: p4i.P4Info) -> int:
    """Returns the size in bits of a set of ports, from a program's P4Info. Raises ValueError if it is not
    STARE's.
    """
    for action in info.actions:
        for param in action.params:
            if (action.preamble.name, param.name) in _PORT_SETS:
                return param.bitwidth
    raise ValueError("the switch runs none of STARE's programs")


def register_state(
    place: Place, ports: Iterable[int], routes: Routes = NO_ROUTES, *, width: int = WIDTH
) -> SwitchState:
    """Returns the target state of a switch of the register design. Raises ValueError as `all_groups` does."""
    arguments = {
        "tree": port_set(place.tree),
        "mac": int.from_bytes(place.mac),
        "address": int.from_bytes(place.address),
        "ipv6": int.from_bytes(place.ipv6),
    }
    return _state(ActionCall("StareIngress.configure", arguments), ports, routes, width)


def embedded_state(
    place: Place, ports: Iterable[int], routes: Routes = NO_ROUTES, *, width: int = WIDTH
) -> SwitchState:
    """Returns the target state of a switch of the embedded design, before its controller writes entries."""
    arguments = {"mac": int.from_bytes(place.mac)}
    return _state(ActionCall("StareIngress.configure", arguments), ports, routes, width)


def _state(configure: ActionCall, ports: Iterable[int], routes: Routes, width: int) -> SwitchState:
    return SwitchState.of(
        entries=[(_ROUTES[len(net)], _route(net, length, *hop)) for (net, length), hop in routes.items()],
        defaults={_CONFIGURATION: configure},
        groups=all_groups(ports, width),
    )


def _route(network: bytes, prefix: int, port: int, mac: bytes) -> Entry:
    key, action = ("ipv4.dst", "route") if len(network) == 4 else ("ipv6.dst", "route_ipv6")
    arguments = {"port": port, "next_hop": int.from_bytes(mac)}
    match = LpmMatch(int.from_bytes(network), prefix)
    return Entry({key: match}, ActionCall(f"StareIngress.l3.{action}", arguments))


def entry_of(state: int, ports: int) -> Entry:
    """Returns the entry that sends publishes of a state to a set of ports."""
    return Entry(matches_of(state), _replicate(ports))


@lru_cache(maxsize=1 << 16)
def _replicate(ports: int) -> ActionCall:
    """Returns the action, shared by all states with the same set: a table has many entries and few sets."""
    return ActionCall("StareIngress.replicate", {"ports": ports})


def matches_of(state: int) -> Matches:
    return {"meta.state": ExactMatch(state)}


def bring_up(control: Control, state: SwitchState) -> None:
    """Writes a state into a fresh switch in this process."""
    for key, entry in state.entries.items():
        control.table(key.table).insert(entry)
    for table, action in state.defaults.items():
        control.table(table).set_default(action)
    for one in state.groups.values():
        control.replication.insert_group(one)
    for session in state.sessions.values():
        control.replication.insert_session(session)


class ControlDriver:
    """A `SwitchDriver` for a switch in this process. The code that moves its packets takes them from
    `sent`.
    """

    def __init__(self, control: Control, width: int = WIDTH) -> None:
        self.sent: list[bytes] = []  # packet-outs, with their header
        self._control = control
        self._bytes = width // 8
        self._known: set[int] = set()

    def write(self, state: int, ports: int) -> None:
        if not ports:
            self._control.table(TABLE).delete(matches_of(state))
            self._known.discard(state)
        elif state in self._known:
            self._control.table(TABLE).modify(entry_of(state, ports))
        else:
            self._control.table(TABLE).insert(entry_of(state, ports))
            self._known.add(state)

    def send(self, ports: int, frame: bytes) -> None:
        self.sent.append(ports.to_bytes(self._bytes) + frame)
