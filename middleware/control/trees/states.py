"""The content of a network's switches for stacks: a `SwitchState` per scheme and switch.

Ports are the network's, from 1. Clone session p goes to port p. A set of ports is a number whose bit p is
port p (`ports_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from treecast.middleware.control.links.probes import CPU_PORT
from treecast.middleware.control.switches import SwitchState
from treecast.middleware.dataplane.p4 import (
    ActionCall,
    CloneSession,
    Entry,
    ExactMatch,
    MulticastGroup,
    Replica,
)
from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import Network, RoutingError
from treecast.middleware.routing.schemes.destinations import Destinations
from treecast.middleware.routing.schemes.mixed import Ability
from treecast.middleware.routing.schemes.switch_group import SwitchGroup
from treecast.middleware.routing.virtual.stacks import Rules

# A set of ports has 64 bits in the programs, and port 0 means none.
MOST_PORTS = 63
# The session that sends to a switch's controller, where it has one (`labels`).
TO_CONTROLLER = 63

Entries = list[tuple[str, Entry]]


def ports_of(network: Network, links: int) -> int:
    """Links of one switch (bits) as its ports (bit p for port p)."""
    found = 0
    for link in members(links):
        found |= 1 << network.ports[link]
    return found


def port_sessions(network: Network, switch: int) -> list[CloneSession]:
    """Returns one clone session for each port. Raises RoutingError if a switch has more than the programs can
    name.
    """
    ports = sorted({network.ports[link] for link in network.out[switch]})
    if ports and ports[-1] > MOST_PORTS:
        raise RoutingError(f"switch {network.names[switch]} has {ports[-1]} ports; {MOST_PORTS} can be named")
    return [CloneSession(port, (Replica(port),)) for port in ports]


def _exact(key: str, value: int, action: str, **arguments: int) -> Entry:
    return Entry({key: ExactMatch(value)}, ActionCall(action, arguments))


def _own(control: str, switch: int, **arguments: int) -> Entries:
    return [(f"{control}.switches", _exact("hdr.entry.owner", switch, f"{control}.own", **arguments))]


# --- chapter 3


def switch_port(network: Network, switch: int, *, predictive: bool = True) -> SwitchState:
    """Returns the state for p4/switch_port.p4."""
    return SwitchState.of(
        entries=_own("PortIngress", switch),
        defaults={} if predictive else {"PreorderEgress.pruning": ActionCall("PreorderEgress.set_reactive")},
        sessions=port_sessions(network, switch),
    )


def switch_bitmask(network: Network, switch: int) -> SwitchState:
    """Returns the state for p4/switch_bitmask.p4."""
    return SwitchState.of(entries=_own("BitmaskIngress", switch), sessions=port_sessions(network, switch))


def switch_mcgroup(scheme: SwitchGroup, switch: int) -> SwitchState:
    """Returns the state for p4/switch_mcgroup.p4: a group for every set of ports within a subset."""
    groups = []
    for number in scheme.groups():
        ports = [scheme.network.ports[link] for link in scheme.links(switch, number)]
        if ports:
            groups.append(_group(number, ports))
    several = int(scheme.subsets > 1)
    return SwitchState.of(
        entries=_own("GroupIngress", switch, subsets=several),
        groups=groups,
        sessions=port_sessions(scheme.network, switch)[:1],
    )


def mixed(network: Network, switch: int, ability: Ability) -> SwitchState:
    """Returns the state for p4/mixed.p4: the groups of the switch's ability, by their numbers."""
    count = len(network.out[switch])
    groups = {
        number: [bit + 1 for bit in members(mask) if bit < count] for number, mask in ability.groups.items()
    }
    known = [
        ("MixedIngress.groups", _exact("hdr.entry.value", number, "MixedIngress.multicast", group=number))
        for number in groups
    ]
    return SwitchState.of(
        entries=[*_own("MixedIngress", switch), *known],
        groups=[_group(number, ports) for number, ports in groups.items()],
        sessions=port_sessions(network, switch),
    )


def _group(number: int, ports: Iterable[int]) -> MulticastGroup:
    return MulticastGroup(number, tuple(Replica(port) for port in ports))


# --- chapter 4


def hops(network: Network, switch: int) -> SwitchState:
    """Returns the state for p4/hops.p4: the neighbours."""
    entries = [
        (
            "HopsIngress.neighbours",
            _exact("hdr.entry.node", network.heads[link], "HopsIngress.neighbour", port=network.ports[link]),
        )
        for link in network.out[switch]
    ]
    return SwitchState.of(entries=entries, sessions=port_sessions(network, switch))


def destinations(scheme: Destinations, switch: int) -> SwitchState:
    """Returns the state for p4/destinations.p4: the path to every receiver."""
    network, control = scheme.network, "DestinationsIngress"
    entries = [
        (
            f"{control}.receivers",
            _exact("hdr.entry.node", host, f"{control}.towards", port=network.ports[link]),
        )
        for host, link in scheme.toward[switch].items()
    ]
    return SwitchState.of(entries=entries, sessions=port_sessions(network, switch))


# --- hybrids of chapter 4, and virtual trees


class Tunnel:
    """A neighbour that is reached through switches that know nothing of stacks: MACs and IPv4 as numbers."""

    def __init__(self, src_mac: int, dst_mac: int, src: int, dst: int) -> None:
        self.arguments = {"src_mac": src_mac, "dst_mac": dst_mac, "src": src, "dst": dst}


def labels(
    network: Network,
    switch: int,
    rules: Rules,
    trees: Iterable[int],
    *,
    clean_up: bool = False,
    tunnels: Mapping[int, Tunnel] | None = None,
    addresses: Mapping[int, int] | None = None,
    controller: int = -1,
) -> SwitchState:
    """Returns the state for p4/virtual_trees.p4 and p4/hybrid.p4: the switch's links, and its rules for
    `trees`.

    `clean_up`: hosts get no labels. `tunnels`: by port. `addresses`: the port towards a MAC address, for
    frames without a stack. `controller`: the id of the hop label that leads to the switch's controller.
    """
    entries = [*_links(network, switch), *_trees(network, switch, rules, trees)]
    for mac, port in (addresses or {}).items():
        forward = _exact("hdr.ethernet.dst", mac, "LabelIngress.forward", port=port)
        entries.append(("LabelIngress.addresses", forward))
    if clean_up:
        hosts = [link for link in network.out[switch] if network.is_host[network.heads[link]]]
        entries += [_at_egress("last_switch", network.ports[link], "clean", {}) for link in hosts]
    for port, tunnel in (tunnels or {}).items():
        entries.append(_at_egress("tunnels", port, "tunnel", tunnel.arguments))
    sessions = port_sessions(network, switch)
    if controller >= 0:
        if any(session.session == TO_CONTROLLER for session in sessions):
            raise RoutingError(
                f"switch {network.names[switch]} has {TO_CONTROLLER} ports; one fewer can be named,"
                " because the last number leads to its controller: set probe = 0"
            )
        hop = _exact("hdr.label.id", controller, "LabelIngress.own_link", port=TO_CONTROLLER)
        entries.append(("LabelIngress.links", hop))
        sessions.append(CloneSession(TO_CONTROLLER, (Replica(CPU_PORT),)))
    return SwitchState.of(entries=entries, sessions=sessions)


def _links(network: Network, switch: int) -> Iterator[tuple[str, Entry]]:
    for link in network.out[switch]:
        port = network.ports[link]
        yield "LabelIngress.links", _exact("hdr.label.id", link, "LabelIngress.own_link", port=port)


def _trees(network: Network, switch: int, rules: Rules, trees: Iterable[int]) -> Iterator[tuple[str, Entry]]:
    for number in trees:
        ports = ports_of(network, rules.links(switch, number))
        if ports:
            yield "LabelIngress.trees", _exact("hdr.label.id", number, "LabelIngress.follow", ports=ports)


def _at_egress(table: str, port: int, action: str, arguments: dict[str, int]) -> tuple[str, Entry]:
    entry = _exact("standard.egress_port", port, f"LabelEgress.{action}", **arguments)
    return f"LabelEgress.{table}", entry
