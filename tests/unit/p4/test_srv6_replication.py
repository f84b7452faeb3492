"""The SRv6 router: its vectors on both engines, 64 branches, and agreement with the model of the segments."""

from __future__ import annotations

import ipaddress
import os
import shlex
import subprocess
from collections import Counter
from functools import lru_cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet6 import UDP, IPv6
from scapy.layers.l2 import Ether
from tests.unit.routing.networks import networks

from treecast.middleware.dataplane.p4 import ir
from treecast.middleware.dataplane.p4.runtime import (
    ActionCall,
    Entry,
    ExactMatch,
    LpmMatch,
    MulticastGroup,
    Replica,
    Switch,
)
from treecast.middleware.dataplane.p4.stf.parse import parse
from treecast.middleware.dataplane.p4.stf.runner import PORTS, Runner
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.routing.bits import mask_of, members
from treecast.middleware.routing.network import Network
from treecast.middleware.routing.replication.delivery import deliver
from treecast.middleware.routing.replication.forest import Forest
from treecast.middleware.routing.replication.paths import Paths
from treecast.middleware.routing.replication.segments import LOCAL, Branch, Segment
from treecast.middleware.routing.replication.shapes import MOST_BRANCHES, direct
from treecast.middleware.wire.srv6_sids import Layout, Sid

PROGRAMS = Path(__file__).resolve().parents[3] / "p4"
LAYOUT = Layout(ipaddress.ip_address("fcbb:bb00::").packed).check()
GROUP = ipaddress.ip_address("ff18::100").packed
MACS = {"own": 0x0200000000A1, "next_hop": 0x0200000000A2}
TO_HOST = 0x1000  # functions: End.DX6 to the host behind a port
REPLICATE = 0x2000  # functions of replication segments


@lru_cache(maxsize=1)
def program() -> ir.Program:
    return load_file(PROGRAMS / "srv6_replication.p4")


@pytest.mark.parametrize("interpret", [False, True])
def test_vectors(interpret: bool) -> None:
    switch = Switch(program(), ports=PORTS, interpret=interpret)
    assert interpret or switch.engine == "generated"
    report = Runner(program(), switch).run(parse((PROGRAMS / "srv6_replication.stf").read_text(), "srv6"))
    assert not report.problems
    assert report.met == report.expected >= 20
    assert switch.stats().recirculations < 10, "no packet loops"


@pytest.mark.skipif("TREECAST_P4C" not in os.environ, reason="TREECAST_P4C names no p4c-bm2-ss")
def test_p4c_takes_it_for_bmv2(tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    source = str(PROGRAMS / "srv6_replication.p4")
    command = [*shlex.split(os.environ["TREECAST_P4C"]), "--std", "p4-16", "-o", str(made), source]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr


def sid(node: int, function: int) -> int:
    return int.from_bytes(LAYOUT.encode(Sid(node, function)))


class Router:
    """One node with the program, and its entries."""

    def __init__(self, node: int) -> None:
        self.node = node
        self.switch = Switch(program(), ports=PORTS)
        self._branches = 0
        self._groups = 0
        self._add("routes", {"meta.destination": LpmMatch(sid(node, 0), 48)}, "local")

    def _add(self, table: str, key: dict[str, ExactMatch | LpmMatch], action: str, **given: int) -> None:
        where = "Srv6Egress" if table == "branches" else "Srv6Ingress"
        call = ActionCall(f"{where}.{action}", dict(given))
        self.switch.control.table(f"{where}.{table}").insert(Entry(dict(key), call))

    def route(self, node: int, port: int) -> None:
        self._add("routes", {"meta.destination": LpmMatch(sid(node, 0), 48)}, "leave", port=port, **MACS)

    def own(self, function: int, action: str, **given: int) -> None:
        self._add("sids", {"hdr.ipv6.dst": ExactMatch(sid(self.node, function))}, action, **given)

    def policy(self, address: bytes, to: int) -> None:
        key: dict[str, ExactMatch | LpmMatch] = {"hdr.ipv6.dst": ExactMatch(int.from_bytes(address))}
        self._add("policies", key, "encapsulate", source=sid(self.node, 0), sid=to)

    def replicate(self, function: int, branches: list[tuple[int, int | None]]) -> None:
        """Installs a replication segment: for each branch its port and the SID there; None delivers to a
        host."""
        replicas = []
        for port, to in branches:
            self._branches += 1
            key: dict[str, ExactMatch | LpmMatch] = {"standard.egress_rid": ExactMatch(self._branches)}
            if to is None:
                self._add("branches", key, "deliver", **MACS)
            else:
                self._add("branches", key, "onward", sid=to, **MACS)
            replicas.append(Replica(port, self._branches))
        self._groups += 1
        self.switch.control.replication.insert_group(MulticastGroup(self._groups, tuple(replicas)))
        self.own(function, "end_replicate", group=self._groups)


def packet(to: bytes, payload: bytes = b"treecast") -> bytes:
    inner = IPv6(src="2001:db8::1", dst=str(ipaddress.ip_address(to)), hlim=64) / UDP(sport=7, dport=9)
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:a1", type=0x86DD) / inner / payload)


def test_a_segment_with_64_branches() -> None:
    router = Router(1)
    router.replicate(REPLICATE, [(port, sid(2, port)) for port in range(1, MOST_BRANCHES + 1)])
    router.policy(GROUP, sid(1, REPLICATE))
    found = router.switch.receive(200, packet(GROUP), 0.0)
    assert sorted(out.port for out in found) == list(range(1, 65))
    for out in found:
        read = Ether(out.packet)[IPv6]
        assert int(ipaddress.ip_address(read.dst)) == sid(2, out.port)
        assert bytes(read.payload)[8:] == packet(GROUP)[14 + 8 :]
        assert (read.nh, read.plen) == (41, len(packet(GROUP)) - 14)


def test_a_loop_of_replication_segments_ends_with_the_hop_limit() -> None:
    """No controller of ours makes one. Each round takes a hop from the packet and makes one copy for the
    host.
    """
    routers = {1: Router(1), 2: Router(2)}
    routers[1].replicate(REPLICATE, [(1, sid(2, REPLICATE)), (2, None)])
    routers[2].replicate(REPLICATE, [(1, sid(1, REPLICATE))])
    routers[1].policy(GROUP, sid(1, REPLICATE))
    found = routers[1].switch.receive(2, packet(GROUP), 0.0)  # packs it, and begins
    passes, hosts, node = 1, 0, 1
    while found:
        hosts += sum((node, out.port) == (1, 2) for out in found)
        onward = [out.packet for out in found if (node, out.port) != (1, 2)]
        assert len(onward) <= 1
        node = 3 - node
        passes += len(onward)
        found = [one for data in onward for one in routers[node].switch.receive(1, data, 0.0)]
    assert passes <= 65
    assert 0 < hosts <= 33


def test_a_copy_to_a_sid_that_nobody_has_is_dropped_where_it_should_be() -> None:
    """A tree of which one router has lost its segment: the others' copies arrive."""
    first, second = Router(1), Router(2)
    first.replicate(REPLICATE, [(1, sid(2, REPLICATE)), (2, None)])
    first.policy(GROUP, sid(1, REPLICATE))
    copies = {out.port: out.packet for out in first.switch.receive(9, packet(GROUP), 0.0)}
    assert set(copies) == {1, 2}
    assert not second.switch.receive(1, copies[1], 0.0)
    assert second.switch.stats().recirculations == 0


class Domain:
    """Routers of a network with the segments of a forest; hosts send and get unchanged packets."""

    def __init__(self, network: Network, forest: Forest) -> None:
        self.network = network
        self.routers = {node: Router(node) for node in network.switches}
        self.copies: Counter[int] = Counter()
        self.arrived: dict[int, list[bytes]] = {}
        paths = Paths(network)
        for node, router in self.routers.items():
            for other in network.switches:
                if other != node:
                    router.route(other, network.ports[paths.path(node, other)[0]])
            for link in network.out[node]:
                if network.is_host[network.heads[link]]:
                    port = network.ports[link]
                    router.own(TO_HOST + port, "end_dx6", port=port, **MACS)
        for kept in forest.segments.kept.values():
            self._hold(kept.segment)

    def _hold(self, segment: Segment) -> None:
        branches = []
        for branch in segment.branches:
            here = len(branch.way) == 1 and branch.segment == LOCAL
            port = self.network.ports[branch.way[0]]
            branches.append((port, None if here else self.sid_of(branch)))
        self.routers[segment.node].replicate(REPLICATE + segment.number, branches)

    def sid_of(self, branch: Branch) -> int:
        """Returns a replication SID, or for a leaf the SID by which its router hands packets to it."""
        if branch.segment != LOCAL:
            return sid(branch.node, REPLICATE + branch.segment)
        link = self.network.out[branch.node][0] ^ 1
        return sid(self.network.tails[link], TO_HOST + self.network.ports[link])

    def send(self, host: int, frame: bytes) -> None:
        """Carries one packet through the domain until no copy is in flight."""
        waiting = [(self.network.out[host][0], frame)]
        for link, data in waiting:
            assert len(waiting) < 1000
            self.copies[link] += 1
            node = self.network.heads[link]
            if self.network.is_host[node]:
                self.arrived.setdefault(node, []).append(data)
                continue
            port = self.network.ports[link ^ 1]
            for out in self.routers[node].switch.receive(port, data, 0.0):
                waiting.append((self.network.link_at(node, out.port), out.packet))


@settings(max_examples=25, deadline=None)
@given(networks(8, hosts=True, least=2), st.integers(0, 10**6))
def test_routers_do_what_the_model_says(network: Network, seed: int) -> None:
    """Several groups share segments: every copy on every link, and every byte at the hosts, matches the
    model."""
    rng = Random(seed)
    forest = Forest(network, direct(Paths(network)))
    for number in range(4):
        root = rng.choice(network.hosts)
        forest.open(number, root, mask_of(rng.sample(network.hosts, rng.randint(1, len(network.hosts)))))
    held = {number: kept.segment for number, kept in forest.segments.kept.items()}
    for number, group in forest.groups.items():
        if group.entry is None:
            continue
        domain = Domain(network, forest)
        address = (int.from_bytes(GROUP) + int(str(number))).to_bytes(16)
        ingress = domain.routers[network.switch_of(group.root)]
        ingress.policy(address, domain.sid_of(group.entry))
        domain.send(group.root, packet(address))
        model = deliver(network, held, group.root, group.entry)
        assert domain.copies == model.copies
        assert set(domain.arrived) == set(members(group.leaves))
        sent = packet(address)[14:]
        for (frame,) in domain.arrived.values():
            assert frame[14:] == sent[:7] + b"\x3f" + sent[8:], "one hop less, for the router that packed it"
