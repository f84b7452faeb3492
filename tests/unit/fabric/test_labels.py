"""The labels carrier over UDP, with in-process P4 switches between the hosts: tunnels both ways."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.fabric.edges import KEYS, STREAM, Collected, until

from treecast.middleware.control.trees import states
from treecast.middleware.control.trees.manager import HeldTrees
from treecast.middleware.dataplane.p4.bits import csum16_bytes
from treecast.middleware.dataplane.p4files import load_file
from treecast.middleware.evaluation.switched import SwitchedNetwork
from treecast.middleware.fabric.carriers.carrier import Place
from treecast.middleware.fabric.carriers.labels import BY_ETHERNET, LabelRules, Labels
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import FabricCounters
from treecast.middleware.routing.network import Network, build
from treecast.middleware.routing.virtual.rules import RuleBase
from treecast.middleware.wire.label_stack import UDP_PORT, encode_labels, end_of_labels, hop

PROGRAM = Path(__file__).resolve().parents[3] / "p4" / "virtual_trees.p4"
HOSTS = {1: "127.0.9.1", 2: "127.0.9.2", 3: "127.0.9.3"}
SWITCH = "127.0.9.99"
NAMES = {1: "one", 2: "two", 3: "three"}


def network() -> Network:
    """Two switches; host one is at the first, the others at the second."""
    names = ["s", "t", "one", "two", "three"]
    return build(names, [(0, 1), (2, 0), (3, 1), (4, 1)], hosts=[2, 3, 4])


def number(address: str) -> int:
    return int.from_bytes(socket.inet_aton(address))


class Switches:
    """All switches behind one UDP address: tunnels to hosts, Ethernet among themselves."""

    def __init__(self, rules: RuleBase) -> None:
        self.network = rules.network
        self.run = SwitchedNetwork(load_file(PROGRAM))
        self.hosts = {HOSTS[host]: self.network.node(NAMES[host]) for host in HOSTS}
        held = HeldTrees(self.network, rules.trees)
        self.run.become(
            self.network,
            {
                switch: states.labels(self.network, switch, held, rules.trees, tunnels=self._tunnels(switch))
                for switch in self.network.switches
            },
        )
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.bind((SWITCH, UDP_PORT))
        self.copies = 0

    def _tunnels(self, switch: int) -> dict[int, states.Tunnel]:
        found = {}
        for address, host in self.hosts.items():
            if self.network.switch_of(host) == switch:
                port = self.network.ports[self.network.out[host][0] ^ 1]
                found[port] = states.Tunnel(1, 2, number(SWITCH), number(address))
        return found

    def readable(self) -> None:
        while True:
            try:
                data, (address, _) = self.sock.recvfrom(65535)
            except BlockingIOError:
                return
            carried = self.run.send(self.hosts[address], self._frame(address, data))
            for link, frames in carried.frames.items():
                if self.network.is_host[self.network.heads[link]]:
                    for frame in frames:
                        self._deliver(frame)

    def _frame(self, address: str, data: bytes) -> bytes:
        header = bytearray.fromhex("4500 0000 0000 0000 40 11 0000 00000000 00000000")
        header[2:4] = (28 + len(data)).to_bytes(2)
        header[12:20] = socket.inet_aton(address) + socket.inet_aton(SWITCH)
        header[10:12] = csum16_bytes(bytes(header)).to_bytes(2)
        udp = UDP_PORT.to_bytes(2) * 2 + (8 + len(data)).to_bytes(2) + bytes(2)
        return bytes(12) + b"\x08\x00" + bytes(header) + udp + data

    def _deliver(self, frame: bytes) -> None:
        """Checks a frame for a host (type, checksum, lengths, ports) and sends it."""
        assert frame[12:14] == b"\x08\x00"
        header, udp = frame[14:34], frame[34:42]
        assert csum16_bytes(header) == 0
        assert int.from_bytes(header[2:4]) == len(frame) - 14
        assert int.from_bytes(udp[4:6]) == len(frame) - 34
        assert (udp[:2], udp[2:4]) == (UDP_PORT.to_bytes(2), UDP_PORT.to_bytes(2))
        self.copies += 1
        self.sock.sendto(frame[42:], (socket.inet_ntoa(header[16:20]), UDP_PORT))


@asynccontextmanager
async def hosts() -> AsyncIterator[dict[int, Fabric]]:
    made = {}
    settings = FabricSettings(stream=STREAM, carriers=("labels",), options={"labels": SWITCH})
    for host, address in HOSTS.items():
        made[host] = Fabric(host, settings, KEYS, FabricCounters(), random.Random(host))
        await made[host].start((address, 0))
    for one in made.values():
        for other in made.values():
            one.carriers.set_name(other.host, NAMES[other.host])
            if one is not other:
                one.set_host(other.host, other.address)
    try:
        yield made
    finally:
        for fabric in made.values():
            fabric.close()


async def test_streams_travel_by_stacks_of_labels(require: Callable[[object, str], None]) -> None:
    rules = RuleBase(network(), 4)
    rules.add(0b1101)
    switches = Switches(rules)
    asyncio.get_running_loop().add_reader(switches.sock.fileno(), switches.readable)
    try:
        async with hosts() as at:
            await _carry(at, rules, switches)
    finally:
        asyncio.get_running_loop().remove_reader(switches.sock.fileno())
        switches.sock.close()


async def _carry(at: dict[int, Fabric], rules: RuleBase, switches: Switches) -> None:
    origin = at[1].originate(7, 1)
    sinks = []
    for host in (2, 3):
        origin.add_receiver(host, 0)
        sinks.append(Collected())
        at[host].join(1, 7, 1, sinks[-1], progress=Progress(0, 0))
    labels = at[1].carriers.named("labels")
    with pytest.raises(OSError, match="was not told"):
        origin.use_carrier("labels", {2, 3})
    assert at[1].carriers.pick({2, 3}, 1000, 2) is None
    changed: list[bool] = []
    at[1].on_reach = lambda: changed.append(True)
    labels.learn(LabelRules(3, rules.network, rules))
    assert changed
    with pytest.raises(ValueError, match="version 2"):
        labels.learn(LabelRules(2, rules.network, rules))
    with pytest.raises(ValueError, match="no group 5000"):
        origin.use_carrier("labels", {2, 3}, 5000)
    assert at[1].carriers.pick({2, 3}, origin.sender.mtu, 0) is labels  # needs no state in the network
    heard: set[int] = set()
    for host in (2, 3):
        at[host].on_probe = lambda *_, host=host: heard.add(host)
    at[1].send_probe("labels", 0, 9, [2, 3])
    await until(lambda: heard == {2, 3})
    origin.publish(b"by unicast", 1)
    await until(lambda: all(len(sink.deliveries) == 1 for sink in sinks))
    origin.use_carrier("labels", {2, 3})
    before = switches.copies
    payloads = [bytes([n]) * (3000 * n) for n in range(1, 12)]
    for count, payload in enumerate(payloads, 2):
        origin.publish(payload, 1)
        await until(lambda count=count: all(len(sink.deliveries) == count for sink in sinks))
    assert all(sink.payloads == [b"by unicast", *payloads] for sink in sinks)
    assert [peer.carrier for peer in origin.peers()] == ["labels", "labels"]
    assert switches.copies - before >= 2 * len(payloads)
    assert at[1].state().carriers[1].name == "labels"


def test_where_segments_begin() -> None:
    stack = encode_labels([hop(1), hop(2)])
    whole = bytes(14) + stack + b"segment"
    buffer = memoryview(bytearray(whole + bytes(4)))
    assert end_of_labels(buffer, 14, len(whole)) == 14 + 6
    assert end_of_labels(buffer, 14, 15) == end_of_labels(buffer, 14, 18) == -1
    assert end_of_labels(memoryview(bytearray(b"\xff\xff" + bytes(2000))), 0, 2002) == -1
    empty = memoryview(bytearray(b"\0\0data\0\0data"))
    assert [end_of_labels(empty, start, start + 6) for start in (0, 6)] == [2, 8]


class _Wire:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.address = "nowhere"

    def send(self, datagrams: list[bytes]) -> None:
        self.sent += datagrams


def test_hosts_are_parted_where_a_stack_has_no_room() -> None:
    star = build(["s", *(f"h{n}" for n in range(9))], [(0, n) for n in range(1, 10)], hosts=range(1, 10))
    wire = _Wire()
    carrier = Labels(BY_ETHERNET, 2 + 2 * 3)
    carrier.begin(1, wire)
    for host in range(1, 10):
        carrier.set_host(host, Place(name=f"h{host - 1}"))
    carrier.set_host(77, Place(name="nowhere"))
    carrier.learn(LabelRules(1, star, RuleBase(star, 0)))
    carrier.send(0, [b"data"], [2, 3, 4, 5, 6, 7, 8, 9, 77])
    labels = [int.from_bytes(one[at : at + 2]) for one in wire.sent for at in range(2, len(one) - 4, 2)]
    assert sorted(labels) == [2 * edge for edge in range(1, 9)]
    assert all(len(one) <= 8 + 4 for one in wire.sent)
    carrier.send(0, [b"more", b"data"], [3, 2])
    carrier.send(0, [b"more"], [2, 3])
    assert carrier.observed() == {tuple(f"h{n}" for n in range(1, 9)): 1, ("h1", "h2"): 3}
    assert carrier.reach([2, 77]).hosts == {2}
    carrier.set_host(1, None)
    with pytest.raises(OSError, match="was not told"):
        carrier.check(0)
