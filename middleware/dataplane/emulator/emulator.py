"""Devices at the nodes of a network, packets between them, and a clock that advances from event to event.

    emulator = Emulator(network, Random(seed), LinkSettings(delay=0.001, loss=0.05))
    emulator.attach(node, device)              # ports are the network's: 1, 2, ... in the order of its edges
    emulator.at(2.5, action); emulator.wake(node)
    emulator.run(10.0); emulator.drain()

The same calls and the same seed give the same run. Packets that reach a device at the same moment are one
batch. The heap has one entry per moment with an event, not per packet.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from treecast.middleware.model.timers import NEVER
from treecast.middleware.routing.network import Network

from ..p4 import Out
from .devices import Device
from .links import PLAIN, LinkSettings, Random, Way

_MOST_TURNS: Final = 10_000  # at one and the same time
_DIGITS: Final = 9  # of a time in seconds: sums that mean the same moment are the same number

Packets = list[tuple[int, bytes]]


class EmulatorError(Exception):
    """The emulation cannot continue."""


class _Moment:
    """The events of one time: actions in their order, then a turn of each device in the order of its first
    packet.
    """

    __slots__ = ("actions", "packets")

    def __init__(self) -> None:
        self.actions: list[Callable[[], None]] = []
        self.packets: dict[int, Packets] = {}


class Emulator:
    """An emulation. Nodes without a device discard packets that reach them (`unattached` counts these)."""

    def __init__(
        self,
        network: Network,
        random: Random,
        link: LinkSettings = PLAIN,
        links: Mapping[int, LinkSettings] = {},
        *,
        tick: float = 0.001,
    ) -> None:
        """`link` applies to every direction, `links` to single ones, by the network's directed links.

        Deadlines of devices are rounded up to the next multiple of `tick` seconds, so that many fall on one
        moment; 0: not rounded.
        """
        self.network = network
        self.now = 0.0
        self.ways = [
            Way(links.get(number, link), network.heads[number], network.ports[number ^ 1])
            for number in range(2 * network.edge_count)
        ]
        self.received = [0] * network.node_count  # packets, by node
        self.under_way = 0
        self.unattached = 0
        self.no_link = 0  # packets that left at a port without a link
        self.turns = 0
        self.devices: dict[int, Device] = {}
        self._random = random
        self._tick = tick
        self._out: list[list[Way]] = [[self.ways[one] for one in links_] for links_ in network.out]
        self._wakes = [NEVER] * network.node_count
        self._moments: dict[float, _Moment] = {}
        self._times: list[float] = []
        self._last = -1.0
        self._repeats = 0

    # --- what is there

    def attach(self, node: int, device: Device) -> None:
        self.devices[node] = device
        self._schedule(node, device)

    def set_edge(self, edge: int, settings: LinkSettings) -> None:
        """Changes both directions of a link, from now on."""
        for way in (self.ways[2 * edge], self.ways[2 * edge + 1]):
            way.change(settings)

    def set_all(self, settings: LinkSettings) -> None:
        for way in self.ways:
            way.change(settings)

    # --- what happens

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Schedules an action, not before now. Actions of one time run in the order in which they
        were given.
        """
        self._moment(max(when, self.now)).actions.append(action)

    def wake(self, node: int) -> None:
        """Notes that a device has work or another deadline although no packet arrived."""
        self._schedule(node, self.devices[node])

    def _moment(self, at: float) -> _Moment:
        found = self._moments.get(at)
        if found is None:
            found = self._moments[at] = _Moment()
            heapq.heappush(self._times, at)
        return found

    def _schedule(self, node: int, device: Device) -> None:
        deadline = device.next_deadline()
        if deadline == NEVER:
            return
        at = self._on_tick(deadline) if deadline > self.now else self.now
        if at < self._wakes[node]:
            self._wakes[node] = at
            self._moment(at).packets.setdefault(node, [])

    def _on_tick(self, at: float) -> float:
        tick = self._tick
        if not tick:
            return at
        count = round(at / tick)
        found = round(count * tick, _DIGITS)
        return found if found >= at else round((count + 1) * tick, _DIGITS)

    # --- time

    @property
    def idle(self) -> bool:
        """Whether nothing will happen by itself."""
        return not self._times

    def step(self) -> bool:
        """Runs all events of the next time that has any. Returns False if there is none."""
        if not self._times:
            return False
        at = heapq.heappop(self._times)
        moment = self._moments.pop(at)
        self._stuck(at)
        self.now = at
        for action in moment.actions:
            action()
        for node, packets in moment.packets.items():
            self._turn(node, packets, at)
        return True

    def _stuck(self, at: float) -> None:
        self._repeats = self._repeats + 1 if at == self._last else 0
        self._last = at
        if self._repeats > _MOST_TURNS:
            raise EmulatorError(f"time stands still at {at}: links without delay in a loop, or a device")

    def run(self, seconds: float) -> None:
        """Runs all events of the next `seconds`; the clock is then at their end."""
        end = self.now + seconds
        while self._times and self._times[0] <= end:
            self.step()
        self.now = end

    def run_until(self, done: Callable[[], bool], seconds: float) -> bool:
        """Runs until `done`, checked after each moment, for at most `seconds`. Returns whether it became
        true.
        """
        end = self.now + seconds
        while not done():
            if not self._times or self._times[0] > end:
                self.now = max(self.now, end if self._times else self.now)
                return done()
            self.step()
        return True

    def drain(self, seconds: float = NEVER) -> None:
        """Runs until no packet is in flight. Keeps deadlines that pass meanwhile."""
        end = self.now + seconds
        while self.under_way and self._times and self._times[0] <= end:
            self.step()

    def _turn(self, node: int, packets: Packets, now: float) -> None:
        count = len(packets)
        self.under_way -= count
        self.received[node] += count
        device = self.devices.get(node)
        if device is None:
            self.unattached += count
            return
        if self._wakes[node] <= now:
            self._wakes[node] = NEVER
        if packets or device.next_deadline() <= now:
            self.turns += 1
            self._send(node, device.turn(packets, now), now)
        self._schedule(node, device)

    def _send(self, node: int, found: Sequence[Out], now: float) -> None:
        ways = self._out[node]
        delay, at = -1.0, now  # of the way before: most have the same
        for out in found:
            port = out.port
            if not 0 < port <= len(ways):
                self.no_link += 1
                continue
            way = ways[port - 1]
            packet = out.packet
            way.packets += 1
            way.bytes += len(packet)
            if way.plain:
                if way.delay != delay:
                    delay = way.delay
                    at = round(now + delay, _DIGITS)
                self._arrive(way, packet, at)
                continue
            for one in way.arrivals(len(packet), now, self._random):
                self._arrive(way, packet, round(one, _DIGITS))

    def _arrive(self, way: Way, packet: bytes, at: float) -> None:
        self.under_way += 1
        moment = self._moments.get(at)
        if moment is None:
            moment = self._moment(at)
        packets = moment.packets.get(way.head)
        if packets is None:
            moment.packets[way.head] = [(way.port, packet)]
        else:
            packets.append((way.port, packet))

    def check_invariants(self) -> None:
        """For tests: checks that every packet is accounted for."""
        put = sum(way.packets + way.doubled for way in self.ways)
        gone = sum(way.lost + way.overflow for way in self.ways)
        assert put == gone + sum(self.received) + self.under_way
        waiting = sum(len(some) for one in self._moments.values() for some in one.packets.values())
        assert waiting == self.under_way
        assert sorted(self._times) == sorted(self._moments)
