"""The six ways of Table IV to bring one state to 16 subscribers, each on switches that run its P4 program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from ...control.stare_switch.embedded import Place
from ...control.stare_switch.programming import bring_up, register_state
from ...control.trees.states import switch_bitmask
from ...dataplane.p4 import ActionCall, Entry, ExactMatch, Matches, Out, Switch
from ...routing.network import Network
from ...wire.label_stack_entries import SWITCH_BITMASK
from ...wire.label_stack_entries import Entry as Pair
from ...wire.stare import PORT, StareHeader, StareKind, encode_header, group
from ...wire.stare_frames import StareFrame, encode_frame, frame_around
from .programs import program
from .tree import CASES, ETHERNET, VALUE, Site, group_of

STATE = 300
VNF = 1
_FLOOD = group(400)
_TREES = {"best": group(401), "worst": group(402)}
_STACK = bytes.fromhex("9999")
_BROKER = bytes.fromhex("88b5")


class Approach(Protocol):
    """`publish` sends one state from the publisher's host; subscriptions and rules are there before."""

    site: Site

    def publish(self, case: str) -> None: ...


def _mac(node: int) -> bytes:
    return b"\x02\0" + node.to_bytes(4)


def _address(node: int) -> bytes:
    return (10 << 24 | node + 1).to_bytes(4)


def _datagram(site: Site, case: str, to: bytes) -> bytes:
    source = site.publisher(case)
    return frame_around(VALUE, to, _mac(source), _address(source))


def _port_to(network: Network, switch: int, host: int) -> int:
    """Returns the port of a tree's switch towards a host, by the shortest path."""
    far = {switch: 0}
    waiting = [switch]
    for node in waiting:
        for link in network.out[node]:
            head = network.heads[link]
            if head not in far:
                far[head] = far[node] or network.ports[link]
                waiting.append(head)
    return far[host]


@lru_cache(maxsize=1)
def stare_site() -> Site:
    """Switches of the register design, with routes to all hosts."""
    return Site(program("stare_register", STARE_STATES="1024"), 1, _place_stare)


def _place_stare(network: Network, node: int, switch: Switch) -> None:
    tree = {network.ports[link] for link in network.out[node] if not network.is_host[network.heads[link]]}
    routes = {(_address(host), 32): (_port_to(network, node, host), _mac(host)) for host in network.hosts}
    place = Place(frozenset(tree), _mac(node), _address(node))
    bring_up(switch.control, register_state(place, range(1, len(network.out[node]) + 1), routes))


class Unicast:
    """One packet for each subscriber, as IPv4 goes through any L3 switch: p4/stare_register.p4 is one."""

    def __init__(self) -> None:
        self.site = stare_site()

    def publish(self, case: str) -> None:
        frames = [_datagram(self.site, case, _address(host)) for host in self.site.subscribers]
        self.site.send(self.site.publisher(case), frames)


class Multicast:
    """Rules by address and UDP port, written beforehand (OpenFlow multicast); or one that floods."""

    def __init__(self, *, flood: bool) -> None:
        self.flood = flood
        self.site = Site(program("address_multicast"))
        if flood:
            for node, switch in self.site.switches.items():
                self._write(switch, _FLOOD, range(1, len(self.site.network.out[node]) + 1))
            return
        for case in CASES:
            ways = self.site.ways(case)
            edges = {link >> 1 for links in ways.values() for link in links}
            for node in ways:
                tree = [link for link in self.site.network.out[node] if link >> 1 in edges]
                self._write(self.site.switches[node], _TREES[case], self.site.ports(tree))

    @staticmethod
    def _write(switch: Switch, to: bytes, ports: Sequence[int] | range) -> None:
        matches: Matches = {
            "hdr.ipv4.dst": ExactMatch(int.from_bytes(to)),
            "hdr.udp.dst": ExactMatch(PORT),
        }
        call = ActionCall("MulticastIngress.replicate", {"group": group_of(switch, ports)})
        switch.control.table("MulticastIngress.trees").insert(Entry(matches, call))

    def publish(self, case: str) -> None:
        to = _FLOOD if self.flood else _TREES[case]
        self.site.send(self.site.publisher(case), [_datagram(self.site, case, to)])


class Broker:
    """A broker beside one switch: sends packets back, with the group of their address in front."""

    def __init__(self) -> None:
        self.groups: dict[bytes, int] = {}

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> Sequence[Out]:
        return [Out(1, self._marked(frame)) for _, frame in packets]

    def _marked(self, frame: bytes) -> bytes:
        number = self.groups.get(frame[30:34], 0)
        return b"".join((frame[:12], _BROKER, number.to_bytes(2), frame[12:]))

    def next_deadline(self) -> float:
        return float("inf")


class ApplicationLayer:
    """A broker on each switch, which knows the ports that lead to subscribers."""

    def __init__(self) -> None:
        self.site = Site(program("broker_multicast"), 2, self._place)
        network = self.site.network
        brokers = {node: Broker() for node in network.switches}
        for node, broker in brokers.items():
            self.site.emulator.attach(self._broker(network, node), broker)
        for case in CASES:
            for node, links in self.site.ways(case).items():
                number = group_of(self.site.switches[node], self.site.ports(links))
                brokers[node].groups[_TREES[case]] = number

    @staticmethod
    def _broker(network: Network, node: int) -> int:
        """Returns the second host on a switch."""
        return network.heads[network.out[node][-1]]

    def _place(self, network: Network, node: int, switch: Switch) -> None:
        port = network.ports[network.out[node][-1]]
        switch.control.table("BrokerIngress.configuration").set_default(
            ActionCall("BrokerIngress.configure", {"broker": port})
        )

    def publish(self, case: str) -> None:
        self.site.send(self.site.publisher(case), [_datagram(self.site, case, _TREES[case])])


def _place_bitmask(network: Network, node: int, switch: Switch) -> None:
    bring_up(switch.control, switch_bitmask(network, node))


class SourceRouting:
    """A stack of switch/bitmask pairs, breadth first; each switch takes off its own and all before it."""

    def __init__(self) -> None:
        self.site = Site(program("switch_bitmask"), 1, _place_bitmask)

    def publish(self, case: str) -> None:
        site = self.site
        pairs = [
            Pair(node, sum(1 << port - 1 for port in site.ports(links)))
            for node, links in site.ways(case).items()
        ]
        plain = _datagram(site, case, _TREES[case])
        site.send(
            site.publisher(case), [plain[:12] + _STACK + SWITCH_BITMASK.encode(pairs) + plain[ETHERNET:]]
        )


class Stare:
    """The register design; the subscribers have sent SUB-register."""

    def __init__(self) -> None:
        self.site = stare_site()
        for host in self.site.subscribers:
            header = StareHeader(StareKind.SUB_REGISTER, STATE)
            self.site.send(host, [encode_frame(StareFrame(header, _mac(host), _address(host)))])
        self.site.take()

    def publish(self, case: str) -> None:
        source = self.site.publisher(case)
        body = encode_header(StareHeader(StareKind.PUBLISH, STATE, VNF)) + VALUE
        self.site.send(source, [frame_around(body, group(STATE), _mac(source), _address(source))])


APPROACHES: dict[str, Callable[[], Approach]] = {
    "Unicast": Unicast,
    "Broadcast": lambda: Multicast(flood=True),
    "ALM": ApplicationLayer,
    "OFM": lambda: Multicast(flood=False),
    "P4 source routing": SourceRouting,
    "STARE": Stare,
}
