"""Hosts, a switch and a replica controller in memory, with their own clock and bad links between them.

Like a first switch of STARE's, the switch keeps the registered hosts of each state, replies with SUB-ack, and
sends a publish to them. Packets and signals are lost, doubled and delayed, so that they overtake each other.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

from treecast.middleware.control.replicas.controller import ReplicaController
from treecast.middleware.control.replicas.settings import ReplicaSettings
from treecast.middleware.fabric.stare.node import Node
from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.model.counters import ReplicaCounters, StareCounters
from treecast.middleware.wire.stare import (
    HEADER_SIZE,
    StareHeader,
    StareKind,
    decode_header,
    encode_header,
)
from treecast.middleware.wire.stare_signals import Signal, SignalKind, Update, encode_signal

CONTROLLER = 0  # its port and host id
SETTINGS = StareSettings(segment_bytes=40, refresh=5.0)


class Links:
    """The quality of the links. Times in seconds."""

    def __init__(self, loss: float = 0.0, double: float = 0.0, jitter: float = 0.0) -> None:
        self.loss, self.double, self.jitter = loss, double, jitter


class World:
    """`hosts` nodes, numbered from 1; the controller is a host of its own."""

    def __init__(self, hosts: int, links: Links, seed: int = 1, settings: StareSettings = SETTINGS) -> None:
        self.now = 0.0
        self.random = random.Random(seed)
        self.links = links
        self.acknowledges = True
        self.table: dict[int, set[int]] = {}  # the switch's ports by state
        self.sent: dict[StareKind, int] = dict.fromkeys(StareKind, 0)
        self.tokens = 0
        self.vnfs: dict[int, int] = {}  # the host of each open VNF
        self.opened: dict[int, int] = {}  # token -> VNF
        self.subscribed: dict[int, set[int]] = {}  # by VNF
        self.published: dict[tuple[int, int], bytes] = {}  # the last value by (state, VNF)
        self.got: dict[int, dict[tuple[int, int], list[Update]]] = {}  # by VNF, since it subscribed
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.nodes = {
            n: Node(settings, random.Random(seed * 100 + n), StareCounters()) for n in range(1, hosts + 1)
        }
        self.new_controller(seed)

    def new_controller(self, seed: int = 7) -> None:
        """Replaces the controller by one that knows nothing but the ids."""
        ids = self.controller.ids if hasattr(self, "controller") else None
        self.controller = ReplicaController(ReplicaSettings(), random.Random(seed), ReplicaCounters(), ids)
        for ports in self.table.values():
            ports.discard(CONTROLLER)

    # --- actions of VNFs

    def open(self, host: int) -> int:
        """Opens a VNF; returns its id once it has arrived."""
        self.tokens += 1
        token = self.tokens
        self.nodes[host].open(token, self.now)
        self.until(lambda: token in self.opened)
        vnf = self.opened[token]
        assert vnf
        assert vnf not in self.vnfs
        self.vnfs[vnf] = host
        self.subscribed[vnf], self.got[vnf] = set(), {}
        return vnf

    def close(self, vnf: int) -> None:
        self.nodes[self.vnfs.pop(vnf)].close(vnf, self.now)
        del self.subscribed[vnf], self.got[vnf]
        self._settle()

    def subscribe(self, vnf: int, state: int) -> None:
        if state not in self.subscribed[vnf]:
            self.got[vnf] = {pair: found for pair, found in self.got[vnf].items() if pair[0] != state}
        self.subscribed[vnf].add(state)
        self.nodes[self.vnfs[vnf]].subscribe(vnf, state, self.now)
        self._settle()

    def unsubscribe(self, vnf: int, state: int) -> None:
        self.nodes[self.vnfs[vnf]].unsubscribe(vnf, state, self.now)
        self._settle()  # so that packets that were leaving the host arrive
        self.subscribed[vnf].discard(state)

    def publish(self, vnf: int, state: int, value: bytes) -> None:
        self.published[state, vnf] = value
        self.nodes[self.vnfs[vnf]].publish(vnf, state, value, self.now)
        self._settle()

    # --- time

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        self.until(lambda: False, end)
        self.now = end

    def until(self, done: Callable[[], bool], end: float = 1e9) -> None:
        self._settle()
        while not done():
            at = min(self._next_event(), self._next_deadline())
            if at > end:
                return
            self.now = max(self.now, at)
            while self._events and self._events[0][0] <= self.now:
                heapq.heappop(self._events)[2]()
            self._settle()

    def _next_event(self) -> float:
        return self._events[0][0] if self._events else float("inf")

    def _next_deadline(self) -> float:
        return min([self.controller.next_deadline(), *(n.next_deadline() for n in self.nodes.values())])

    def _later(self, action: Callable[[], None]) -> None:
        """Does something after a link's delay."""
        links, rng = self.links, self.random
        for _ in range(2 if rng.random() < links.double else 1):
            if rng.random() < links.loss:
                continue
            self._count += 1
            at = self.now + 0.001 + rng.random() * links.jitter
            heapq.heappush(self._events, (at, self._count, action))

    # --- the network

    def _settle(self) -> None:
        for number, node in self.nodes.items():
            node.work(self.now)
            self._from_node(number, node)
        self.controller.work(self.now)
        self._from_controller()
        self.check()

    def _from_node(self, number: int, node: Node) -> None:
        output = node.take()
        for vnf, update in output.deliveries:
            self._deliver(vnf, update)
        for opened in output.opened:
            self.opened[opened.token] = opened.vnf
        for packet in output.packets:
            self.sent[packet.kind] += 1
            self._later(lambda data=packet.data: self._switch(number, data))
        controller = self.controller
        for signal in output.signals:
            self._later(lambda data=signal: controller.signal(number, data, self.now))

    def _from_controller(self) -> None:
        output = self.controller.take()
        for state in output.wanted:
            self._wanted(state, True)
        for state in output.unwanted:
            self._wanted(state, False)
        for host, opened in output.opened:
            data = encode_signal(Signal(SignalKind.OPENED, opened=(opened,)))
            self._later(lambda host=host, data=data: self.nodes[host].signal(data, self.now))
        for host, data in output.signals:
            self._later(lambda host=host, data=data: self.nodes[host].signal(data, self.now))

    def _wanted(self, state: int, wanted: bool) -> None:
        """Sets the controller's own subscription, which is lossless here."""
        ports = self.table.setdefault(state, set())
        (ports.add if wanted else ports.discard)(CONTROLLER)

    def _switch(self, port: int, data: bytes) -> None:
        header = decode_header(data)
        ports = self.table.setdefault(header.state, set())
        if header.kind is StareKind.PUBLISH:
            for other in sorted(ports - {port}):
                self._later(lambda other=other: self._arrive(other, data))
            return
        if header.kind is StareKind.SUB_REGISTER:
            ports.add(port)
        else:
            ports.discard(port)
        if self.acknowledges:
            ack = encode_header(StareHeader(StareKind.SUB_ACK, header.state, header.vnf, header.update))
            assert len(ack) == HEADER_SIZE
            self._later(lambda: self._arrive(port, ack))

    def _arrive(self, port: int, data: bytes) -> None:
        if port == CONTROLLER:
            self.controller.datagram(data, self.now)
        else:
            self.nodes[port].datagram(data, self.now)

    # --- invariants

    def _deliver(self, vnf: int, update: Update) -> None:
        if vnf not in self.vnfs:
            return  # it closed at this moment
        assert update.state in self.subscribed[vnf], (
            f"VNF {vnf} gets {update}, which it does not subscribe to"
        )
        assert update.vnf != vnf
        found = self.got[vnf].setdefault((update.state, update.vnf), [])
        assert not found or update.number > found[-1].number, (found[-1], update)
        found.append(update)

    def check(self) -> None:
        for node in self.nodes.values():
            node.check_invariants()
        self.controller.check_invariants()

    def missing(self) -> list[tuple[int, tuple[int, int]]]:
        """Returns each (VNF, pair) whose VNF lacks the last value."""
        return [
            (vnf, pair)
            for vnf, states in self.subscribed.items()
            for pair, value in self.published.items()
            if pair[0] in states and pair[1] != vnf
            if not self.got[vnf].get(pair) or self.got[vnf][pair][-1].value != value
        ]
