"""`StareNetwork`: hosts and switches with STARE, in the emulator.

    net = StareNetwork(network, "embedded", seed=1, link=LinkSettings(delay=0.001, loss=0.05))
    vnf = net.open(host, deliver)                  # runs until it has its id
    net.subscribe(vnf, 300); net.publish(vnf, 300, b"value"); net.run(1.0)
    net.differences()                              # entries of switches that differ from the implied ones

Every host of the network has the middleware; the first has the replica controller. The distribution tree is
the breadth-first tree from the middle of the switches.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from ...control.replicas.controller import ReplicaController
from ...control.replicas.settings import ReplicaSettings
from ...control.stare_switch.embedded import BETWEEN_SWITCHES, Place, port_set
from ...dataplane.emulator import PLAIN, Emulator, LinkSettings
from ...dataplane.p4 import Program
from ...fabric.stare.node import Node
from ...fabric.stare.settings import StareSettings
from ...model.counters import ReplicaCounters, StareCounters
from ...routing.network import Network
from ...routing.rooted import breadth_first, center
from .hosts import Deliver, SignalWay, StareHost
from .programs import program
from .switches import Routes, StareSwitch

SIGNAL_DELAY = 0.002
HOSTS = StareSettings()
REPLICAS = ReplicaSettings()


class StareNetwork:
    """`hosts` and `switches` by node of the network. `vnfs`: the node of each VNF that is open."""

    def __init__(
        self,
        network: Network,
        design: str,
        seed: int,
        *,
        link: LinkSettings = PLAIN,
        settings: StareSettings = HOSTS,
        between: StareSettings = BETWEEN_SWITCHES,
        replicas: ReplicaSettings = REPLICAS,
        signal_loss: float = 0.0,
        loaded: Program | None = None,
    ) -> None:
        """`settings` are for hosts, `between` for switches; `loaded` replaces the design's own program."""
        self.network = network
        self.emulator = Emulator(network, Random(f"{seed}/links"), link)
        self.tree = breadth_first(network, center(network, network.switches))
        self.vnfs: dict[int, int] = {}
        self._seed = seed
        self._tokens = 0
        self.hosts = {node: self._host(node, settings) for node in network.hosts}
        used = loaded or program(f"stare_{design}")
        self.switches = {node: self._switch(node, used, between) for node in network.switches}
        self.home = self.hosts[network.hosts[0]]
        self.controller = ReplicaController(replicas, Random(f"{seed}/replicas"), ReplicaCounters())
        self.home.controller = self.controller
        self.signals = SignalWay(self.emulator, Random(f"{seed}/signals").random, SIGNAL_DELAY, signal_loss)
        self._join_signals()

    # --- building

    def _host(self, node: int, settings: StareSettings) -> StareHost:
        middleware = Node(settings, Random(f"{self._seed}/host/{node}"), StareCounters())
        host = StareHost(node, middleware, self.mac(node), self.address(node))
        self.emulator.attach(node, host)
        return host

    def _switch(self, node: int, used: Program, between: StareSettings) -> StareSwitch:
        ports, tree = [], []
        network = self.network
        for link in network.out[node]:
            if self.tree >> (link >> 1) & 1:
                ports.append(network.ports[link])
                if not network.is_host[network.heads[link]]:
                    tree.append(network.ports[link])
        place = Place(frozenset(tree), self.mac(node), self.address(node))
        random = Random(f"{self._seed}/switch/{node}")
        found = StareSwitch(used, place, ports, random, routes=self.routes(node), settings=between)
        self.emulator.attach(node, found.device)
        return found

    @staticmethod
    def mac(node: int) -> bytes:
        return b"\x02\0" + node.to_bytes(4)

    @staticmethod
    def address(node: int) -> bytes:
        return (10 << 24 | node + 1).to_bytes(4)

    def routes(self, switch: int) -> Routes:
        """Returns routes of plain IPv4 along the tree."""
        network = self.network
        routes = {}
        for port in (network.ports[link] for link in network.out[switch]):
            for host in self._behind(switch, port):
                routes[self.address(host), 32] = (port, self.mac(host))
        return routes

    def _behind(self, switch: int, port: int) -> list[int]:
        """Hosts that the tree reaches by a port of a switch."""
        network = self.network
        first = network.link_at(switch, port)
        found: list[int] = []
        waiting = [first] if self.tree >> (first >> 1) & 1 else []
        while waiting:
            link = waiting.pop()
            head = network.heads[link]
            if network.is_host[head]:
                found.append(head)
            waiting += [one for one in network.out[head] if one != link ^ 1 and self.tree >> (one >> 1) & 1]
        return found

    def _join_signals(self) -> None:
        emulator, home = self.emulator, self.home
        home_node = self.network.hosts[0]

        def tell(host: int, data: list[bytes]) -> None:
            def arrive(there: list[bytes], now: float) -> None:
                home.told(host, there, now)
                emulator.wake(home_node)

            self.signals.carry(data, arrive)

        def answer(host: int, data: bytes) -> None:
            def arrive(there: list[bytes], now: float) -> None:
                for one in there:
                    self.hosts[host].heard(one, now)
                emulator.wake(host)

            self.signals.carry([data], arrive)

        home.answers = answer
        for one in self.hosts.values():
            one.signals = tell

    # --- what VNFs do

    @property
    def now(self) -> float:
        return self.emulator.now

    def open(self, host: int, deliver: Deliver, seconds: float = 60.0) -> int:
        """Returns a VNF's id. Raises TimeoutError if none arrives within `seconds` of simulated time."""
        self._tokens += 1
        token, there = self._tokens, self.hosts[host]
        there.node.open(token, self.now)
        self._touch(host)
        if not self.emulator.run_until(lambda: token in there.opened, seconds) or not there.opened[token]:
            raise TimeoutError("the replica controller gives no VNF id")
        vnf = there.opened.pop(token)
        there.vnfs[vnf] = deliver
        self.vnfs[vnf] = host
        return vnf

    def close(self, vnf: int) -> None:
        host = self.vnfs.pop(vnf)
        del self.hosts[host].vnfs[vnf]
        self.hosts[host].node.close(vnf, self.now)
        self._touch(host)

    def subscribe(self, vnf: int, state: int) -> None:
        self.node_of(vnf).subscribe(vnf, state, self.now)
        self._touch(self.vnfs[vnf])

    def unsubscribe(self, vnf: int, state: int) -> None:
        self.node_of(vnf).unsubscribe(vnf, state, self.now)
        self._touch(self.vnfs[vnf])

    def publish(self, vnf: int, state: int, value: bytes) -> int:
        """Returns the update's number."""
        number = self.node_of(vnf).publish(vnf, state, value, self.now)
        self._touch(self.vnfs[vnf])
        return number

    def node_of(self, vnf: int) -> Node:
        return self.hosts[self.vnfs[vnf]].node

    def _touch(self, host: int) -> None:
        self.hosts[host].touch()
        self.emulator.wake(host)

    def run(self, seconds: float) -> None:
        self.emulator.run(seconds)

    # --- what the subscriptions imply

    def wanted(self, state: int) -> int:
        """Returns the hosts that want the state of the network, as bits."""
        found = 0
        for node, host in self.hosts.items():
            if host.node.subscription(state) is not None:
                found |= 1 << node
        return found

    def differences(self, states: Iterable[int]) -> list[tuple[int, int, int, int]]:
        """Returns entries of switches that differ from the implied ones: (switch, state, held, implied),
        ports as sets.

        Covers all states that a switch holds, and `states`.
        """
        wanted = {state: self.wanted(state) for state in states}
        found = []
        for node, switch in self.switches.items():
            behind = [
                (port_set([port]), sum(1 << host for host in self._behind(node, port)))
                for port in switch.ports
            ]
            held = switch.all_held()
            for state in wanted.keys() | held.keys():
                hosts = wanted[state] if state in wanted else self.wanted(state)
                implied = sum(bit for bit, there in behind if hosts & there)
                if held.get(state, 0) != implied:
                    found.append((node, state, held.get(state, 0), implied))
        return sorted(found)

    def check_invariants(self) -> None:
        """Checks consistency, for tests."""
        self.emulator.check_invariants()
        self.controller.check_invariants()
        for host in self.hosts.values():
            host.node.check_invariants()
        for switch in self.switches.values():
            if switch.cpu is not None:
                switch.cpu.controller.check_invariants()
