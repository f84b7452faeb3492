"""Daemons' label carriers on emulated P4 switches, and a tree manager's way to both.

cloud = LabelNetwork(network, seed)
manager = TreeManager(network, cloud.switches(), cloud, store, limit=4, sleep=cloud.sleep)
cloud.wanted = [(publisher, receivers), ...]
cloud.pass_time(seconds, packets)       # packets are in flight while trees change
cloud.got() == cloud.sent               # each receiver of each packet, once
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

from ..api.virtual_trees import read_trees, write_trees
from ..control.switches import SwitchState
from ..dataplane.emulator import LinkSettings
from ..fabric.carriers.carrier import Place
from ..fabric.carriers.labels import BY_ETHERNET, LabelRules, Labels
from ..routing.network import Network
from .twins import FRAME, switched

DELAY: Final = 0.01  # seconds on each link
_ROOM: Final = 1000  # bytes for a stack


class _Port:
    """The wire of a publisher's carrier: it sends into the emulator."""

    address = "emulated"

    def __init__(self, cloud: LabelNetwork, node: int) -> None:
        self._cloud, self._node = cloud, node

    def send(self, datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            self._cloud.run.put(self._node, FRAME + datagram)


class LabelNetwork:
    """All of them. A host's id is its node number plus one. Implements `control.trees.manager.Publishers`."""

    def __init__(self, network: Network, seed: int) -> None:
        self.network, self.rng = network, Random(seed)
        self.run = switched("virtual_trees")
        links = dict.fromkeys(range(len(network.tails)), LinkSettings(delay=DELAY))
        self.run.become(network, {node: SwitchState.of() for node in network.switches}, links)
        self.carriers = {node: Labels(BY_ETHERNET, _ROOM) for node in network.hosts}
        for host, carrier in self.carriers.items():
            carrier.begin(host + 1, _Port(self, host))
            for node in network.hosts:
                carrier.set_host(node + 1, Place(name=network.names[node]))
        self.sent: list[list[int]] = []
        self.wanted: list[tuple[int, list[int]]] = []
        self.under_way = 0

    def switches(self) -> dict[int, _Switch]:
        """Returns the switches by node, for a `TreeManager`."""
        return {node: _Switch(self, node) for node in self.network.switches}

    def publish(self) -> None:
        """Sends one packet of a publisher that is drawn; none if nobody wants anything."""
        if not self.wanted:
            return
        source, receivers = self.rng.choice(self.wanted)
        if not self.carriers[source].reach([receivers[0] + 1]).hosts:
            return  # it has not heard of a network yet
        self.sent.append(receivers)
        payload = (len(self.sent) - 1).to_bytes(4)
        self.carriers[source].send(0, [payload], [node + 1 for node in receivers])

    def pass_time(self, seconds: float, packets: int) -> None:
        """Lets time pass, in which so many packets are sent."""
        emulator = self.run.emulator
        for _ in range(packets):
            emulator.at(emulator.now + seconds * self.rng.random(), self.publish)
        emulator.run(seconds)
        self.under_way = max(self.under_way, emulator.under_way)

    async def announce(self, version: int, network: Network, trees: Mapping[int, int]) -> None:
        """Tells all publishers, one after the other, while they send."""
        told, rules = read_trees(write_trees(network, trees))
        for carrier in self.carriers.values():
            carrier.learn(LabelRules(version, told, rules))
            self.pass_time(0.02, 2)

    async def sleep(self, seconds: float) -> None:
        """Drains: time passes, and packets are sent."""
        self.pass_time(seconds, 5)

    async def bring(self, switch: int, state: SwitchState) -> int:
        """Brings a switch to a state while packets are in flight; returns the number of writes."""
        self.pass_time(0.02, 2)
        return self.run.bring(switch, state)

    def observed(self) -> dict[str, dict[tuple[str, ...], int]]:
        """Returns the packets by publisher and receivers, as daemons tell the manager."""
        return {self.network.names[node]: carrier.observed() for node, carrier in self.carriers.items()}

    def got(self) -> list[list[int]]:
        """Returns the receivers of each packet, with repetitions."""
        self.run.emulator.drain()
        found: list[list[int]] = [[] for _ in self.sent]
        for link, frames in self.run.carried.frames.items():
            if self.network.is_host[self.network.heads[link]]:
                for frame in frames:
                    found[int.from_bytes(frame[-4:])].append(self.network.heads[link])
        return [sorted(hosts) for hosts in found]


class _Switch:
    open = True

    def __init__(self, cloud: LabelNetwork, switch: int) -> None:
        self._cloud, self._switch = cloud, switch

    async def read(self) -> SwitchState:
        return self._cloud.run.read(self._switch)

    async def bring_to(self, desired: SwitchState) -> int:
        return await self._cloud.bring(self._switch, desired)
