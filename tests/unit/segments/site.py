"""Real routers in memory for tests of the network controller: packets are sent at every step."""

from __future__ import annotations

import ipaddress
from collections import Counter
from functools import lru_cache
from pathlib import Path
from random import Random

from treecast.middleware.control.segments.manager import Group, SegmentManager, Told
from treecast.middleware.control.segments.routers import Plan
from treecast.middleware.control.switches import LocalSwitch, SwitchState
from treecast.middleware.dataplane.p4 import Entities, Program, Schema, Switch, build_p4info
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.wire.srv6_packets import ENCAPSULATED, decode_packet, encode_packet
from treecast.middleware.wire.srv6_sids import Layout

PROGRAM = Path(__file__).resolve().parents[3] / "p4" / "srv6_replication.p4"
LAYOUT = Layout(ipaddress.ip_address("fcbb:bb00::").packed).check()


@lru_cache(maxsize=1)
def program() -> tuple[Program, Schema]:
    loaded = load_file(PROGRAM)
    return loaded, Schema(build_p4info(loaded))


def address(node: int) -> int:
    return int(ipaddress.ip_address("fd00::1000")) + node


class Router:
    """A `manager.Switch`; while `broken` it refuses writes."""

    def __init__(self) -> None:
        loaded, schema = program()
        self.switch = Switch(loaded, ports=range(1, 32))
        self._local = LocalSwitch(schema, Entities(schema, self.switch.control))
        self.broken = False

    async def read(self) -> SwitchState:
        return self._local.read()

    async def bring_to(self, desired: SwitchState) -> int:
        if self.broken:
            raise OSError("broken")
        return self._local.bring_to(desired)


class Site:
    """Routers that outlive controllers, and hosts that send by the last instructions they got."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.routers = {node: Router() for node in network.switches}
        self.told: Told = {}
        self.versions: list[int] = []
        self.sent = 0
        self.deaf = False
        self.cut = 0  # links that carry nothing (bits)

    def plan(self, run: int) -> Plan:
        macs = {host: 0x0200_0000_0000 + host for host in self.network.hosts}
        hosts = {host: address(host) for host in self.network.hosts}
        return Plan(self.network, Paths(self.network), LAYOUT, macs, hosts, run)

    def manager(self, run: int) -> SegmentManager:
        return SegmentManager(self.plan(run), self.routers, self, sleep=self.sleep)

    async def announce(self, version: int, told: Told) -> None:
        self.check()
        if self.deaf:
            raise OSError("nobody hears")
        self.versions.append(version)
        self.told = told
        self.check()

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.check()

    def check(self) -> None:
        """Checks that each announced tree brings one copy to each of its receivers, and none to others."""
        for root, trees in self.told.items():
            for receivers, sid in trees.items():
                arrived, copies = self.send(self.network.node(root), sid)
                assert sorted(self.network.names[node] for node in arrived.elements()) == sorted(receivers)
                assert max(copies.values()) == 1
                self.sent += 1

    def send(self, host: int, sid: bytes, payload: bytes = b"segment") -> tuple[Counter[int], Counter[int]]:
        """Returns the copies of a packet by the host where they arrived, and by link."""
        inner = encode_packet(address(host).to_bytes(16), payload)
        outer = b"\x60\0\0\0" + len(inner).to_bytes(2) + bytes((ENCAPSULATED, 64))
        frame = bytes(12) + b"\x86\xdd" + outer + address(host).to_bytes(16) + sid + inner
        arrived: Counter[int] = Counter()
        copies: Counter[int] = Counter()
        for node, data in self.carry(host, frame, copies):
            assert decode_packet(data[14:]) == (address(host).to_bytes(16), payload)
            assert data[:6] == (0x0200_0000_0000 + node).to_bytes(6)
            arrived[node] += 1
        return arrived, copies

    def carry(self, host: int, frame: bytes, copies: Counter[int]) -> list[tuple[int, bytes]]:
        network, found = self.network, []
        waiting = [(network.out[host][0], frame)]
        for link, data in waiting:
            assert len(waiting) < 1000
            copies[link] += 1
            if self.cut >> link & 1:
                continue
            node = network.heads[link]
            if network.is_host[node]:
                found.append((node, data))
                continue
            for out in self.routers[node].switch.receive(network.ports[link ^ 1], data, 0.0):
                waiting.append((network.link_at(node, out.port), out.packet))
        return found

    def held(self) -> int:
        """Returns the number of replication segments on all routers."""
        return sum(len(router._local.read().groups) for router in self.routers.values())


def some_groups(network: Network, rng: Random) -> set[Group]:
    names = [network.names[host] for host in network.hosts]
    found: set[Group] = set()
    for _ in range(rng.randint(0, 4)):
        root = rng.choice(names)
        others = [name for name in names if name != root]
        found.add((root, tuple(sorted(rng.sample(others, rng.randint(1, len(others)))))))
    return found
