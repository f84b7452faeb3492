"""The network controller with real routers in memory: packets are sent at every step of every change."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from functools import lru_cache
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks

from treecast.middleware.control.segments.description import Described, next_run, read
from treecast.middleware.control.segments.manager import Group, SegmentManager, Told
from treecast.middleware.control.segments.routers import Plan
from treecast.middleware.control.switches import LocalSwitch, SwitchState
from treecast.middleware.dataplane.p4 import Entities, Program, Schema, Switch, build_p4info
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.routing.network import Network, RoutingError
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

    def manager(self, run: int) -> SegmentManager:
        macs = {host: 0x0200_0000_0000 + host for host in self.network.hosts}
        hosts = {host: address(host) for host in self.network.hosts}
        plan = Plan(self.network, Paths(self.network), LAYOUT, macs, hosts, run)
        return SegmentManager(plan, self.routers, self, sleep=self.sleep)

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


@settings(max_examples=10, deadline=None)
@given(networks(7, hosts=True, least=2), st.integers(0, 10**6))
def test_packets_arrive_once_at_every_step(network: Network, seed: int) -> None:
    """Controllers come and go; their leftovers are replaced by make before break as well."""
    asyncio.run(come_and_go(network, seed))


async def come_and_go(network: Network, seed: int) -> None:
    rng, site = Random(seed), Site(network)
    for run in range(1, 4):
        manager = site.manager(run)
        await manager.start()
        site.check()
        for _ in range(3):
            groups = some_groups(network, rng)
            await manager.update(groups)
            assert {(root, receivers) for root, trees in site.told.items() for receivers in trees} == groups
            assert site.held() == len(manager.forest.segments)
            assert not await manager.update(groups)
    assert site.versions == sorted(set(site.versions))


@settings(max_examples=10, deadline=None)
@given(networks(7, hosts=True, least=3), st.integers(0, 10**6))
def test_what_fails_at_any_step_is_gone_on_with(network: Network, seed: int) -> None:
    asyncio.run(fail_and_go_on(network, seed))


async def fail_and_go_on(network: Network, seed: int) -> None:
    rng, site = Random(seed), Site(network)
    manager = site.manager(1)
    await manager.start()
    for run in range(2, 6):
        groups = some_groups(network, rng)
        broken = rng.choice(list(site.routers.values()))
        broken.broken, site.deaf = bool(rng.randint(0, 1)), bool(rng.randint(0, 1))
        if broken.broken or site.deaf:
            try:
                await manager.update(groups)
            except OSError:
                site.check()
        broken.broken = site.deaf = False
        if rng.randint(0, 1):  # the controller died there
            manager = site.manager(run)
            await manager.start()
            site.check()
        await manager.update(groups)
        await manager.update(groups)
        assert site.held() == len(manager.forest.segments)


async def test_hosts_reach_each_other_by_their_addresses() -> None:
    site = Site(two_routers())
    await site.manager(1).start()
    packet = b"\x60\0\0\0\0\x08\x11\x40" + address(2).to_bytes(16) + address(3).to_bytes(16) + bytes(8)
    ((node, data),) = site.carry(2, bytes(12) + b"\x86\xdd" + packet, Counter())
    assert node == 3
    assert data[14:] == packet[:7] + b"\x3e" + packet[8:]


def two_routers() -> Network:
    return read_text('links = [["a", "r1"], ["r1", "r2"], ["r2", "b"]]').network()


def read_text(text: str) -> Described:
    hosts = "".join(
        f'[hosts.{name}]\naddress = "fd00::{n}"\nmac = "02:00:00:00:00:0{n}"\n'
        for n, name in enumerate("ab", 1)
    )
    return msgspec.toml.decode(text + '\n[routers]\nr1 = "x"\nr2 = "y"\n' + hosts, type=Described)


def test_descriptions(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    for text, why in [
        ('links = [["a", "r1"], ["r1", "nobody"]]', "nobody"),
        ('links = [["a", "r1"], ["b", "r2"], ["r1", "a"]]', "twice"),
        ('block = "no"\nlinks = [["a", "r1"], ["b", "r2"]]', "block"),
    ]:
        with pytest.raises(RoutingError, match=why):
            read_text(text).plan(1)
    file.write_text("links = 7")
    with pytest.raises(RoutingError, match="links"):
        read(file)
    store = tmp_path / "segments.json"
    assert [next_run(store), next_run(store)] == [1, 2]
    store.write_text("{}")
    with pytest.raises(ValueError, match="no store"):
        next_run(store)
