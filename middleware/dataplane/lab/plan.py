"""From a description to addresses, routes and the steps that build the lab. Pure and deterministic.

Each network (two nodes joined by a link, or everything attached to joined bridges) gets a number, in the
order of links. Everything attached to a P4 switch is one network too, whatever its program does, and its
hosts have static neighbour entries, so that a program need not forward ARP. Interface `n` of network `k`,
counted from 1, has

    IPv4   10.(64 + k // 256).(k % 256).n / 24
    IPv6   fd54:7265:6563:k::n / 64            (k and n in hexadecimal)
    MAC    02:54:kk:kk:00:nn

Hosts reach every network over the fewest routers, among equals by the first named; multicast leaves by their
first interface. A relayed link is two pairs with the relay's own node between them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface

from .description import Description, DescriptionError, Host, Link
from .impairment import Impairment

MOST_INTERFACES = 250
MOST_NETWORKS = 1000
IPV4_MULTICAST = "224.0.0.0/4"
BRIDGE = "br0"
RELAY_ENDS = ("end0", "end1")


@dataclass(frozen=True, slots=True)
class Interface:
    """An addressed end of a link. `link` is the link's number, `network` that of its network."""

    node: str
    name: str
    link: int
    network: int
    number: int

    @property
    def ipv4(self) -> IPv4Interface:
        return IPv4Interface(f"10.{64 + self.network // 256}.{self.network % 256}.{self.number}/24")

    @property
    def ipv6(self) -> IPv6Interface:
        return IPv6Interface(f"fd54:7265:6563:{self.network:x}::{self.number:x}/64")

    @property
    def mac(self) -> str:
        return f"02:54:{self.network >> 8:02x}:{self.network & 255:02x}:00:{self.number:02x}"


# --- steps, in the order in which they are carried out


@dataclass(frozen=True, slots=True)
class MakeNode:
    """A namespace with loopback up; `forward` makes it a router, `quiet` keeps the kernel silent in it."""

    node: str
    forward: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class MakeBridge:
    node: str
    snooping: bool
    querier: bool
    hash_max: int


@dataclass(frozen=True, slots=True)
class MakePair:
    """A veth pair, `interface` in `node` and `peer_interface` in `peer`; an empty MAC leaves the kernel's."""

    node: str
    interface: str
    mac: str
    peer: str
    peer_interface: str
    peer_mac: str
    mtu: int


@dataclass(frozen=True, slots=True)
class TurnOffloadsOff:
    """So that a relay sees the frames that a wire would carry."""

    node: str
    interface: str


@dataclass(frozen=True, slots=True)
class Shape:
    """A token bucket of `rate` bit/s for outgoing frames."""

    node: str
    interface: str
    rate: int


@dataclass(frozen=True, slots=True)
class Plug:
    """Makes an interface a port of the node's bridge."""

    node: str
    interface: str


@dataclass(frozen=True, slots=True)
class SetAddress:
    node: str
    interface: str
    address: str


@dataclass(frozen=True, slots=True)
class SetUp:
    node: str
    interface: str


@dataclass(frozen=True, slots=True)
class AwaitUp:
    """Until frames pass: the kernel brings up to a second between an interface that is up and its carrier."""

    node: str
    interfaces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddRoute:
    """A route to `destination` via the address `via`, or directly if it is empty."""

    node: str
    interface: str
    destination: str
    via: str


@dataclass(frozen=True, slots=True)
class AddNeighbour:
    """A MAC that is known for good."""

    node: str
    interface: str
    address: str
    mac: str


@dataclass(frozen=True, slots=True)
class StartSwitch:
    """A software switch; `ports` are numbers and interfaces."""

    node: str
    program: str
    cpu_port: int
    ports: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class StartRelay:
    """A relay in `node`, between `RELAY_ENDS`: the first is toward the first end of the link."""

    node: str
    link: str
    number: int
    impairment: Impairment


@dataclass(frozen=True, slots=True)
class StartCommand:
    node: str
    command: tuple[str, ...]


Step = (
    MakeNode
    | MakeBridge
    | MakePair
    | TurnOffloadsOff
    | Shape
    | Plug
    | SetAddress
    | SetUp
    | AddRoute
    | AddNeighbour
    | AwaitUp
    | StartRelay
    | StartSwitch
    | StartCommand
)


@dataclass(frozen=True, slots=True)
class End:
    """The end of a link at a node. It may be a bridge's port, which has no address."""

    node: str
    interface: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps, and their result. `ends[n]` are the two ends of link `n`."""

    description: Description
    interfaces: tuple[Interface, ...]
    ends: tuple[tuple[End, End], ...]
    steps: tuple[Step, ...]

    def of(self, node: str) -> tuple[Interface, ...]:
        """Returns the addressed interfaces of a node, in the order of its links."""
        return tuple(interface for interface in self.interfaces if interface.node == node)

    @property
    def nodes(self) -> tuple[str, ...]:
        """All namespaces, including those of relays."""
        return tuple(step.node for step in self.steps if isinstance(step, MakeNode))


def make_plan(lab: Description) -> Plan:
    """Allots addresses and lists the steps."""
    ends = _ends(lab)
    interfaces = _interfaces(lab, ends)
    steps: list[Step] = [
        *_make_nodes(lab),
        *(
            step
            for number, link in enumerate(lab.links)
            for step in _join(number, link, ends[number], interfaces, _by_switch(lab, link))
        ),
        *(step for name in lab.nodes for step in _configure(lab, name, ends, interfaces)),
        *_await_up(lab, ends),
        *(
            StartRelay(relay_node(number), link.name, number, link.impairment)
            for number, link in enumerate(lab.links)
            if link.relayed
        ),
        *(_start_switch(lab, name, ends) for name in lab.switches),
        *(StartCommand(name, command) for name, host in lab.hosts.items() for command in host.run),
    ]
    return Plan(lab, interfaces, ends, tuple(steps))


def relay_node(number: int) -> str:
    """Returns the namespace of the relay of link `number`; no node of a description can have this name."""
    return f"relay.{number}"


# --- addresses


def _ends(lab: Description) -> tuple[tuple[End, End], ...]:
    used = dict.fromkeys(lab.nodes, 0)

    def end(node: str) -> End:
        name = f"port{used[node]}" if node in lab.bridges or node in lab.switches else f"eth{used[node]}"
        used[node] += 1
        return End(node, name)

    return tuple((end(link.between[0]), end(link.between[1])) for link in lab.links)


def _networks(lab: Description) -> list[int]:
    """Returns the network number of each link; links that meet in a bridge or P4 switch share theirs."""
    of_bridge: dict[str, int] = {}
    found = list(range(len(lab.links)))
    for number, link in enumerate(lab.links):
        for node in (node for node in link.between if node in lab.bridges or node in lab.switches):
            mine, theirs = found[number], of_bridge.setdefault(node, found[number])
            if mine != theirs:  # the lower number is used for both
                low, high = sorted((mine, theirs))
                found = [low if network == high else network for network in found]
                of_bridge = {name: low if network == high else network for name, network in of_bridge.items()}
    dense = {network: position for position, network in enumerate(dict.fromkeys(found))}
    return [dense[network] for network in found]


def _interfaces(lab: Description, ends: tuple[tuple[End, End], ...]) -> tuple[Interface, ...]:
    found: list[Interface] = []
    used: dict[int, int] = {}
    for link, (network, pair) in enumerate(zip(_networks(lab), ends, strict=True)):
        for end in pair:
            if end.node in lab.bridges or end.node in lab.switches:
                continue
            used[network] = used.get(network, 0) + 1
            found.append(Interface(end.node, end.interface, link, network, used[network]))
    if max(used.values(), default=0) > MOST_INTERFACES or len(used) > MOST_NETWORKS:
        raise DescriptionError(
            f"{lab.source}: more than {MOST_INTERFACES} interfaces in a network, or {MOST_NETWORKS} networks"
        )
    return tuple(found)


# --- steps


def _make_nodes(lab: Description) -> list[Step]:
    return [
        *(MakeNode(name, forward=name in lab.routers) for name in (*lab.hosts, *lab.routers)),
        *(MakeNode(name) for name in lab.bridges),
        *(MakeNode(name, quiet=True) for name in lab.switches),
        *(MakeNode(relay_node(number), quiet=True) for number, link in enumerate(lab.links) if link.relayed),
        *(MakeBridge(name, b.snooping, b.querier, b.hash_max) for name, b in lab.bridges.items()),
    ]


def _by_switch(lab: Description, link: Link) -> bool:
    """Returns whether a P4 switch is at an end, which sees the frames that a wire would carry."""
    return any(node in lab.switches for node in link.between)


def _join(
    number: int, link: Link, ends: tuple[End, End], interfaces: tuple[Interface, ...], switch: bool
) -> list[Step]:
    macs = {(i.node, i.name): i.mac for i in interfaces}
    one, other = ends
    one_mac, other_mac = (macs.get((end.node, end.interface), "") for end in ends)
    if not link.relayed:
        pair = MakePair(one.node, one.interface, one_mac, other.node, other.interface, other_mac, link.mtu)
        return [pair, *(TurnOffloadsOff(end.node, end.interface) for end in ends if switch)]
    relay = relay_node(number)
    return [
        *(
            MakePair(end.node, end.interface, mac, relay, relay_end, "", link.mtu)
            for end, mac, relay_end in zip(ends, (one_mac, other_mac), RELAY_ENDS, strict=True)
        ),
        *(TurnOffloadsOff(end.node, end.interface) for end in ends),
        *(step(relay, end) for end in RELAY_ENDS for step in (TurnOffloadsOff, SetUp)),
    ]


def _configure(
    lab: Description, node: str, ends: tuple[tuple[End, End], ...], interfaces: tuple[Interface, ...]
) -> list[Step]:
    """Returns the steps inside one node after its interfaces exist."""
    steps: list[Step] = []
    for link, pair in zip(lab.links, ends, strict=True):
        for end in (end for end in pair if end.node == node):
            if link.rate is not None:
                steps.append(Shape(node, end.interface, link.rate))
            if node in lab.bridges:
                steps.append(Plug(node, end.interface))
            steps.append(SetUp(node, end.interface))
    if node in lab.bridges:
        return [*steps, SetUp(node, BRIDGE)]
    if node in lab.switches:
        return steps
    mine = [interface for interface in interfaces if interface.node == node]
    steps += [SetAddress(node, i.name, str(address)) for i in mine for address in (i.ipv4, i.ipv6)]
    if mine and isinstance(lab.nodes[node], Host):
        steps.append(AddRoute(node, mine[0].name, IPV4_MULTICAST, ""))
    return [*steps, *_routes(lab, node, interfaces), *_neighbours(lab, mine, interfaces)]


def _neighbours(
    lab: Description,
    mine: list[Interface],
    interfaces: tuple[Interface, ...],
) -> list[Step]:
    """Returns the others of every network with a P4 switch."""
    by_switch = {
        network for network, link in zip(_networks(lab), lab.links, strict=True) if _by_switch(lab, link)
    }
    return [
        AddNeighbour(own.node, own.name, str(address), other.mac)
        for own in mine
        if own.network in by_switch
        for other in interfaces
        if other.network == own.network and other != own
        for address in (other.ipv4.ip, other.ipv6.ip)
    ]


def _start_switch(lab: Description, node: str, ends: tuple[tuple[End, End], ...]) -> Step:
    interfaces = (end.interface for pair in ends for end in pair if end.node == node)
    switch = lab.switches[node]
    return StartSwitch(node, switch.program, switch.cpu_port, tuple(enumerate(interfaces, 1)))


def _await_up(lab: Description, ends: tuple[tuple[End, End], ...]) -> list[Step]:
    """Returns a step for every node with links, including relays."""
    waiting: dict[str, tuple[str, ...]] = {}
    for end in (end for pair in ends for end in pair):
        waiting[end.node] = (*waiting.get(end.node, ()), end.interface)
    for name in waiting.keys() & lab.bridges.keys():
        waiting[name] = (*waiting[name], BRIDGE)
    relays = (relay_node(number) for number, link in enumerate(lab.links) if link.relayed)
    return [AwaitUp(node, names) for node, names in (waiting | dict.fromkeys(relays, RELAY_ENDS)).items()]


def _routes(lab: Description, node: str, interfaces: tuple[Interface, ...]) -> list[Step]:
    """Returns routes to all other networks over the fewest routers, by breadth-first search over networks."""
    own = {i.network: i for i in reversed(interfaces) if i.node == node}
    first: dict[int, tuple[Interface, Interface]] = {}  # network: (the way out, the next hop)
    waiting = deque(sorted(own))
    steps: list[Step] = []
    while waiting:
        here = waiting.popleft()
        for router in (
            i for i in interfaces if i.network == here and i.node in lab.routers and i.node != node
        ):
            for beyond in (i.network for i in interfaces if i.node == router.node):
                if beyond in own or beyond in first:
                    continue
                first[beyond] = first.get(here) or (own[here], router)
                waiting.append(beyond)
                out, hop = first[beyond]
                target = next(i for i in interfaces if i.network == beyond)
                steps += [
                    AddRoute(node, out.name, str(target.ipv4.network), str(hop.ipv4.ip)),
                    AddRoute(node, out.name, str(target.ipv6.network), str(hop.ipv6.ip)),
                ]
    return steps
