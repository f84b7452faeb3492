"""The STARE paper's network for its Table IV, emulated: a 4-ary tree of four layers, 85 switches, 84 links.

Every switch has a host. The 16 subscribers are on the leaves below one child of the root; in the best case
the publisher is on that child, in the worst on a leaf below another. (The paper states neither; of all
placements these match its numbers.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from ...dataplane.emulator import Emulator, Endpoint, LinkSettings, SwitchDevice
from ...dataplane.p4 import MulticastGroup, Program, Replica, Switch
from ...routing.network import Network, with_hosts
from ...routing.schemes.common import below, branch
from ...routing.topologies import k_ary_tree
from ...wire.label_stack_entries import SWITCH_BITMASK

BRANCHES, DEPTH, SUBSCRIBERS = 4, 3, 16
CHILD = 1  # of the root, below which all subscribers are
OTHER_LEAF = 37  # the first leaf below the next child
CASES = ("best", "worst")
VALUE = bytes(50)  # the state
ETHERNET = 14
PAIR_SIZE = SWITCH_BITMASK.size


def network_of(hosts: int = 1) -> Network:
    """Returns the tree with `hosts` hosts on every switch; the first one is for VNFs."""
    return with_hosts(k_ary_tree(BRANCHES, DEPTH, 0), hosts)


class Site:
    """Switches of one program, with an `Endpoint` on each host."""

    def __init__(
        self, program: Program, hosts: int = 1, place: Callable[[Network, int, Switch], None] | None = None
    ) -> None:
        """`place` writes a switch's configuration."""
        self.network = network_of(hosts)
        self.emulator = Emulator(self.network, Random(0), LinkSettings(delay=0.001))
        self.switches: dict[int, Switch] = {}
        self.hosts: dict[int, Endpoint] = {}
        for node in self.network.switches:
            switch = Switch(program, ports=range(1, len(self.network.out[node]) + 1), cpu_port=None)
            if place is not None:
                place(self.network, node, switch)
            self.switches[node] = switch
            self.emulator.attach(node, SwitchDevice(switch))
        for node in self.network.hosts:
            self.hosts[node] = Endpoint()
            self.emulator.attach(node, self.hosts[node])

    # --- places

    def host(self, switch: int) -> int:
        """Returns the first host on a switch."""
        return next(
            self.network.heads[link]
            for link in self.network.out[switch]
            if self.network.is_host[self.network.heads[link]]
        )

    @property
    def subscribers(self) -> list[int]:
        """Hosts."""
        first = CHILD
        for _ in range(DEPTH - 1):
            first = BRANCHES * first + 1
        return [self.host(switch) for switch in range(first, first + SUBSCRIBERS)]

    def publisher(self, case: str) -> int:
        return self.host(CHILD if case == "best" else OTHER_LEAF)

    def ways(self, case: str) -> dict[int, list[int]]:
        """Returns, for every switch from the publisher to the subscribers, its outgoing links, in
        breadth-first order.
        """
        network, source = self.network, self.publisher(case)
        edges = branch(network, (1 << network.edge_count) - 1, source, self.subscribers)
        links = below(network, source, edges)
        order = [network.switch_of(source)]
        for switch in order:
            order += [
                network.heads[link] for link in links[switch] if not network.is_host[network.heads[link]]
            ]
        return {switch: links[switch] for switch in order}

    def ports(self, links: Iterable[int]) -> list[int]:
        return [self.network.ports[link] for link in links]

    # --- packets

    def send(self, host: int, frames: Iterable[bytes]) -> None:
        """Sends frames from a host and runs until nothing is in flight."""
        for frame in frames:
            self.hosts[host].send(frame)
        self.emulator.wake(host)
        self.emulator.step()
        self.emulator.drain()

    def take(self) -> dict[int, list[bytes]]:
        """Returns the frames that hosts have received since the last call."""
        found = {}
        for node, host in self.hosts.items():
            if host.arrived:
                found[node] = [packet for _, _, packet in host.arrived]
                host.arrived.clear()
        return found


class Load:
    """The load of a publish on links, from creation to `read`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._packets = [way.packets for way in site.emulator.ways]
        self._bytes = [way.bytes for way in site.emulator.ways]

    def read(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Returns (packets, bytes) of each direction with traffic: between switches, and to or from hosts."""
        network = self._site.network
        inside: list[tuple[int, int]] = []
        outside: list[tuple[int, int]] = []
        for link, way in enumerate(self._site.emulator.ways):
            packets, size = way.packets - self._packets[link], way.bytes - self._bytes[link]
            if packets:
                ends = network.tails[link], network.heads[link]
                (outside if any(network.is_host[end] for end in ends) else inside).append((packets, size))
        return inside, outside


def group_of(switch: Switch, ports: Iterable[int]) -> int:
    """Returns the multicast group for ports, creating it if necessary; port p is bit p of its number."""
    known = sorted(ports)
    number = sum(1 << port for port in known)
    if number not in {one.group for one in switch.control.replication.groups()}:
        switch.control.replication.insert_group(
            MulticastGroup(number, tuple(Replica(port) for port in known))
        )
    return number
