"""SNAPS' Fig. 4 in the emulator: P4 routers, the network controller's own manager, a stream, and other
traffic.

Time is virtual. The manager's waits let packets flow, so that they meet every step of a change.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random

from treecast.middleware.control.segments.manager import Group, SegmentManager, Told
from treecast.middleware.control.segments.routers import LINK_COUNTER, Plan
from treecast.middleware.control.segments.traffic import Traffic
from treecast.middleware.control.switches import LocalSwitch, SwitchState
from treecast.middleware.dataplane.emulator import Emulator, LinkSettings, SwitchDevice
from treecast.middleware.dataplane.p4 import Entities, Out, Program, Schema, Switch, build_p4info
from treecast.middleware.model.timers import NEVER
from treecast.middleware.routing.bits import members
from treecast.middleware.routing.network import Network, build
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.topologies import isp
from treecast.middleware.wire.srv6_packets import ENCAPSULATED, HOP_LIMIT, encode_packet
from treecast.middleware.wire.srv6_sids import Layout

from ..stare.programs import program

MBIT = 1e6
RATE = 100 * MBIT
DELAY, SHORT_DELAY = 0.010, 0.005
QUEUE = 64_000  # bytes
FRAME = 1400  # bytes of each packet with its Ethernet header
LIFE = 0.1  # seconds that a packet may live
_LAYOUT = Layout(ipaddress.ip_address("fcbb:bb00::").packed)
_ETHERNET = bytes(12) + b"\x86\xdd"


def network_of() -> Network:
    """The paper's network, with a host at r12 and one at r16 for other traffic."""
    base = isp()
    names, count = [*base.names, "x12", "x16"], base.node_count
    edges = [*base.ends, (base.node("r12"), count), (base.node("r16"), count + 1)]
    return build(names, edges, hosts=[*base.hosts, count, count + 1])


@lru_cache(maxsize=1)
def _program() -> tuple[Program, Schema]:
    loaded = program("srv6_replication")
    return loaded, Schema(build_p4info(loaded))


class _Router:
    """`manager.Switch` in this process."""

    def __init__(self, ports: int) -> None:
        loaded, schema = _program()
        self.switch = Switch(loaded, ports=range(1, ports + 1))
        self.local = LocalSwitch(schema, Entities(schema, self.switch.control))

    async def read(self) -> SwitchState:
        return self.local.read()

    async def bring_to(self, desired: SwitchState) -> int:
        return self.local.bring_to(desired)


class Source:
    """A host that sends `packet(n)` at the times that `gap` tells, until `end`."""

    def __init__(self, packet: Callable[[int], bytes], gap: Callable[[float], float]) -> None:
        self.sent = 0
        self.times: list[float] = []
        self.end = NEVER
        self._packet = packet
        self._gap = gap
        self._due = NEVER

    def begin(self, now: float) -> None:
        self._due = now

    def turn(self, packets: object, now: float) -> list[Out]:
        found = []
        while self._due <= now:
            if self._due > self.end:
                self._due = NEVER
                break
            found.append(Out(1, self._packet(self.sent)))
            self.times.append(now)
            self.sent += 1
            self._due += self._gap(self._due)
        return found

    def next_deadline(self) -> float:
        return self._due


class Sink:
    """A host that notes when messages arrive, by number."""

    def __init__(self) -> None:
        self.arrived: dict[int, float] = {}
        self.twice = 0

    def turn(self, packets: Sequence[tuple[int, bytes]], now: float) -> list[Out]:
        for _, packet in packets:
            number = int.from_bytes(packet[-8:])
            self.twice += number in self.arrived
            self.arrived.setdefault(number, now)
        return []

    def next_deadline(self) -> float:
        return NEVER


class Lab:
    """One run. `group`: the stream's root and receivers; `rate`: its bits per second; `capacity`: those
    of a link.
    """

    def __init__(self, group: Group, rate: float, rng: Random, capacity: float = RATE) -> None:
        self.network = network_of()
        self._group = group
        self._rate = rate
        self._rng = rng
        self._sid = b""
        self._routers = {node: _Router(len(self.network.out[node])) for node in self.network.switches}
        addresses = {host: _address(host) for host in self.network.hosts}
        macs = dict.fromkeys(self.network.hosts, 0)
        plan = Plan(self.network, Paths(self.network), _LAYOUT, macs, addresses, 1)
        self._manager = SegmentManager(plan, self._routers, self, life=LIFE, sleep=self._sleep)
        self._traffic = Traffic(self.network, self._manager.ways, capacity)
        usual = LinkSettings(capacity, DELAY, queue=QUEUE)
        self._emulator = Emulator(self.network, rng, usual, self._links(capacity), tick=0.0)
        self.stream = Source(self._message, lambda now: FRAME * 8 / rate)
        self._sinks = {name: Sink() for name in group[1]}
        self._attach()

    def _links(self, capacity: float) -> dict[int, LinkSettings]:
        network, found = self.network, {}
        for link in range(2 * network.edge_count):
            ends = {network.names[network.tails[link]], network.names[network.heads[link]]}
            if ends in ({"r4", "r12"}, {"r4", "r16"}):
                found[link] = LinkSettings(capacity, SHORT_DELAY, queue=QUEUE)
            elif ends & {"x12", "x16"}:
                found[link] = LinkSettings(delay=0.0001)
        return found

    def _attach(self) -> None:
        node = self.network.node
        for number, router in self._routers.items():
            self._emulator.attach(number, SwitchDevice(router.switch))
        self._emulator.attach(node(self._group[0]), self.stream)
        for name, sink in self._sinks.items():
            self._emulator.attach(node(name), sink)

    # --- `manager.Publishers`, and time

    async def announce(self, version: int, told: Told) -> None:
        self._sid = told[self._group[0]][self._group[1]]

    async def _sleep(self, seconds: float) -> None:
        self._emulator.run(seconds)

    async def start(self) -> None:
        """Makes the tree, and begins to send."""
        await self._manager.start()
        await self._manager.update({self._group})
        self.stream.begin(self.now)
        self._emulator.wake(self.network.node(self._group[0]))

    @property
    def now(self) -> float:
        return self._emulator.now

    def run(self, seconds: float) -> None:
        self._emulator.run(seconds)

    def drain(self) -> None:
        """Ends the stream, and lets all packets arrive."""
        self.stream.end = self.now
        self._emulator.run(1.0)

    # --- traffic

    def _message(self, number: int) -> bytes:
        source = _address(self.network.node(self._group[0])).to_bytes(16)
        inner = encode_packet(source, bytes(FRAME - 14 - 40 - 48 - 8) + number.to_bytes(8))
        return _ETHERNET + _ipv6(ENCAPSULATED, source, self._sid, inner)

    def grow(self, rate: float, grows: float, seconds: float) -> None:
        """Has other traffic on link 12-16 grow up to `rate`, and end after `seconds`."""
        begun, node = self.now, self.network.node("x12")
        start, end = [_address(self.network.node(name)).to_bytes(16) for name in ("x12", "x16")]
        packet = _ETHERNET + _ipv6(59, start, end, bytes(FRAME - 54))

        def gap(now: float) -> float:
            share = max(0.01, min(1.0, (now - begun) / grows))
            return self._rng.expovariate(share * rate / (8 * FRAME))

        source = Source(lambda number: packet, gap)
        source.end = begun + seconds
        source.begin(begun)
        self._emulator.attach(node, source)

    async def look(self, engineered: bool) -> None:
        """Reads the routers' counters, and moves the tree if it is to be moved."""
        network, sent = self.network, {}
        for node, router in self._routers.items():
            ports = {network.ports[link]: link for link in network.out[node]}
            for port, (_, count) in router.local.counter(LINK_COUNTER, ports).items():
                sent[ports[port]] = count
        self._traffic.count(self.now, sent)
        if engineered:
            await self._manager.update({self._group}, avoid=self._traffic.avoid({self._group: self._rate}))

    # --- what is seen

    def links(self) -> int:
        """Returns the links of the present tree (bits)."""
        (tree,) = self._manager.forest.groups
        return self._manager.forest.links_of(tree)

    def uses(self, tail: str, head: str) -> bool:
        return self.network.link(self.network.node(tail), self.network.node(head)) in members(self.links())

    def places(self) -> set[str]:
        """Returns the routers with replication segments."""
        return {self.network.names[one.segment.node] for one in self._manager.forest.segments.kept.values()}

    def lost(self, first: int, last: int) -> float:
        """Returns the share of messages `first` to `last` that did not arrive, over all receivers."""
        arrived = sum(sum(first <= one < last for one in sink.arrived) for sink in self._sinks.values())
        return 1 - arrived / ((last - first) * len(self._sinks))

    def twice(self) -> int:
        return sum(sink.twice for sink in self._sinks.values())

    def delays(self, first: int, last: int) -> list[float]:
        """Returns the sorted seconds that messages `first` to `last` took to each receiver."""
        times = self.stream.times
        return sorted(
            at - times[one]
            for sink in self._sinks.values()
            for one, at in sink.arrived.items()
            if first <= one < last
        )


def _address(node: int) -> int:
    return int(ipaddress.ip_address("fd00::1000")) + node


def _ipv6(following: int, source: bytes, destination: bytes, payload: bytes) -> bytes:
    head = b"\x60\0\0\0" + len(payload).to_bytes(2) + bytes((following, HOP_LIMIT))
    return head + source + destination + payload
