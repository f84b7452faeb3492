"""Numbers of links that last while the description changes: a link is its two names. Pure.

    wires = allotted(kept.links, wires_of(described))    # by edge number
    network = numbered_by(described, wires)              # switches, publishers and stored trees mean these

Labels name links by numbers. A link that stays in the description keeps its number wherever it stands there,
a new one gets a number that is free, and one that was taken out keeps its own until nobody names it any more.
Ports stay as well, because a line that is taken out moves those behind it, but no cable. Only a port that is
written with a link's end (`Named`) is another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from treecast.middleware.routing.bits import mask_of
from treecast.middleware.routing.network import HOLE, Network, RoutingError

MOST_LINKS: Final = 6144  # two ids each; ids above them name controllers of switches (`probing`)


class Wire(Struct, frozen=True):
    """A link: the names of its ends, and its port at each."""

    ends: tuple[str, str]
    ports: tuple[int, int]

    @property
    def name(self) -> frozenset[str]:
        """Its identity, from whichever end it is seen."""
        return frozenset(self.ends)

    def as_in(self, other: Wire) -> Wire:
        """Returns it as seen from the first end of `other`, which is the same link."""
        return self if self.ends == other.ends else Wire(self.ends[::-1], self.ports[::-1])


Wires = Mapping[int, Wire]  # by edge number
Named = frozenset[tuple[frozenset[str], str]]  # ends whose ports are written with them: link and node


def wires_of(network: Network) -> dict[int, Wire]:
    """Returns the links of a network by their numbers there."""
    return {
        edge: Wire(
            (network.names[first], network.names[second]),
            (network.ports[2 * edge], network.ports[2 * edge + 1]),
        )
        for edge, (first, second) in enumerate(network.ends)
        if first != second
    }


def allotted(known: Wires, described: Iterable[Wire], named: Named = frozenset()) -> dict[int, Wire]:
    """Returns known and described links by numbers. Known ones keep theirs.

    Raises RoutingError if labels have no room for more links, or a port of a switch has two.
    """
    found = dict(known)
    numbers = {wire.name: number for number, wire in known.items()}
    free = (number for number in range(MOST_LINKS) if number not in known)
    given = list(described)
    for wire in given:
        number = numbers.get(wire.name, -1)
        if number < 0:
            number = next(free, -1)
            if number < 0:
                raise RoutingError(
                    f"more than {MOST_LINKS} links; labels name no more: use a smaller network"
                )
            numbers[wire.name] = number
        found[number] = _again(known[number], wire, named) if number in known else wire
    _check_ports([found[numbers[wire.name]] for wire in given])
    return dict(sorted(found.items()))


def _again(known: Wire, described: Wire, named: Named) -> Wire:
    """Returns a known link with the ports that are named now."""
    wire = described.as_in(known)
    first, second = [
        now if (known.name, node) in named else before
        for node, now, before in zip(known.ends, wire.ports, known.ports, strict=True)
    ]
    return Wire(known.ends, (first, second))


def _check_ports(wires: Iterable[Wire]) -> None:
    taken: dict[tuple[str, int], Wire] = {}
    for wire in wires:
        for place in zip(wire.ends, wire.ports, strict=True):
            other = taken.setdefault(place, wire)
            if other is not wire:
                node, port = place
                raise RoutingError(
                    f"port {port} of {node} has the links {'-'.join(other.ends)} and {'-'.join(wire.ends)}:"
                    f" write ports with the ends of links, as {node}:{port}"
                )


def moved(wires: Wires, described: Network) -> list[str]:
    """Returns remarks for the operator about ports that stay although the description counts others."""
    counted = {wire.name: wire for wire in wires_of(described).values()}
    found = []
    for wire in wires.values():
        now = counted[wire.name].as_in(wire) if wire.name in counted else wire
        for node, port, other in zip(wire.ends, wire.ports, now.ports, strict=True):
            if port != other:
                found.append(f"{'-'.join(wire.ends)} stays at port {port} of {node}")
    return found


def listed(wires: Wires, described: Network) -> int:
    """Returns the numbers (bits) of the links that are described."""
    names = {wire.name for wire in wires_of(described).values()}
    return mask_of([number for number, wire in wires.items() if wire.name in names])


def numbered_by(described: Network, wires: Wires) -> Network:
    """Returns a network with the numbers of `wires`. Nodes that are not described follow those that are, as
    switches."""
    names = list(described.names)
    for name in [name for wire in wires.values() for name in wire.ends]:
        if name not in names:
            names.append(name)
    places = {name: node for node, name in enumerate(names)}
    count = max(wires, default=-1) + 1
    ends, ports = [HOLE] * count, [0] * (2 * count)
    for number, wire in wires.items():
        ends[number] = (places[wire.ends[0]], places[wire.ends[1]])
        ports[2 * number], ports[2 * number + 1] = wire.ports
    is_host = [node < described.node_count and described.is_host[node] for node in range(len(names))]
    return Network(names, is_host, ends, [1] * count, ports)
