"""P4 switches in the emulator agree with the graph-level model, and reach their controllers."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.control.stare_switch.programming import bring_up
from treecast.middleware.control.trees.states import switch_bitmask
from treecast.middleware.dataplane.emulator import Emulator, Endpoint, LinkSettings, SwitchDevice, read_counts
from treecast.middleware.dataplane.p4 import Switch, load_program
from treecast.middleware.evaluation.stare.programs import program
from treecast.middleware.routing.forwarding import ETHERNET, simulate
from treecast.middleware.routing.network import Network, build, with_hosts
from treecast.middleware.routing.schemes.common import delivery_tree
from treecast.middleware.routing.schemes.switch_bitmask import SwitchBitmask
from treecast.middleware.wire.label_stack_entries import SWITCH_BITMASK

PAYLOAD = bytes(range(40))


def bitmask_switches(network: Network, emulator: Emulator) -> None:
    for node in network.switches:
        ports = range(1, len(network.out[node]) + 1)
        switch = Switch(program("switch_bitmask"), ports=ports, cpu_port=None)
        bring_up(switch.control, switch_bitmask(network, node))
        emulator.attach(node, SwitchDevice(switch))


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10_000))
def test_stacks_of_switch_and_bitmask_go_as_the_model_says(seed: int) -> None:
    """Copies and bytes on each link, and the receivers, match `routing.forwarding.simulate`."""
    rng = random.Random(seed)
    count = rng.randint(2, 6)
    edges = [(rng.randrange(new), new) for new in range(1, count)] + [(0, count - 1)]
    network = with_hosts(build([f"s{n}" for n in range(count)], edges), 1)
    source, *receivers = rng.sample(network.hosts, rng.randint(2, count))
    scheme = SwitchBitmask(network)
    stack = scheme.encode(source, delivery_tree(network, source, receivers))
    model = simulate(network, scheme, source, stack, len(PAYLOAD))

    emulator = Emulator(network, random.Random(seed))
    bitmask_switches(network, emulator)
    hosts = {node: Endpoint() for node in network.hosts}
    for node, host in hosts.items():
        emulator.attach(node, host)
    hosts[source].send(bytes(12) + bytes.fromhex("9999") + SWITCH_BITMASK.encode(stack) + PAYLOAD)
    emulator.wake(source)
    emulator.run(1)
    packets = {link: way.packets for link, way in enumerate(emulator.ways) if way.packets}
    sizes = {link: way.bytes for link, way in enumerate(emulator.ways) if way.packets}
    assert packets == model.copies
    assert sum(one.recirculations for one in read_counts(emulator).switches.values()) >= len(receivers) - 1
    assert sizes == model.link_bytes
    assert {node for node, host in hosts.items() if host.arrived} == set(receivers)
    for node in receivers:
        [(_, _, frame)] = hosts[node].arrived
        _, end = SWITCH_BITMASK.decode(frame, ETHERNET)
        assert frame[end:] == PAYLOAD


UP_AND_DOWN = """
#include <core.p4>
#include <v1model.p4>
header port_t { bit<16> port; }
struct H { port_t port; }
struct M { }
parser P(packet_in p, out H h, inout M m, inout standard_metadata_t s) {
    state start { transition select(s.ingress_port) { 510: down; default: accept; } }
    state down { p.extract(h.port); transition accept; }
}
control V(inout H h, inout M m) { apply { } }
control I(inout H h, inout M m, inout standard_metadata_t s) {
    apply {
        if (h.port.isValid()) { s.egress_spec = (bit<9>) h.port.port; h.port.setInvalid(); }
        else { h.port.setValid(); h.port.port = (bit<16>) s.ingress_port; s.egress_spec = 510; }
    }
}
control E(inout H h, inout M m, inout standard_metadata_t s) { apply { } }
control C(inout H h, inout M m) { apply { } }
control D(packet_out p, in H h) { apply { p.emit(h.port); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


class Returns:
    """A controller that sends each packet back to its port `later` seconds on."""

    def __init__(self, later: float) -> None:
        self.later = later
        self.waiting: list[tuple[float, bytes]] = []
        self.ready: list[bytes] = []

    def packet_in(self, packet: bytes, now: float) -> None:
        self.waiting.append((now + self.later, packet))

    def work(self, now: float) -> None:
        self.ready += [packet for at, packet in self.waiting if at <= now]
        self.waiting = [one for one in self.waiting if one[0] > now]

    def take(self) -> Sequence[bytes]:
        ready, self.ready = self.ready, []
        return ready

    def next_deadline(self) -> float:
        return min((at for at, _ in self.waiting), default=float("inf"))


def test_packets_to_the_cpu_port_reach_the_controller_and_its_answers_leave() -> None:
    network = build(["s", "a", "b"], [(0, 1), (0, 2)], hosts=[1, 2])
    emulator = Emulator(network, random.Random(1), LinkSettings(delay=0.001))
    switch = Switch(load_program(UP_AND_DOWN, "up_and_down.p4"), ports=(1, 2))
    device = SwitchDevice(switch, Returns(0.5))
    ends = Endpoint(), Endpoint()
    emulator.attach(0, device)
    for node, end in enumerate(ends, 1):
        emulator.attach(node, end)
        end.send(b"from %d" % node)
        emulator.wake(node)
    emulator.run(2)
    assert [end.arrived for end in ends] == [[(0.502, 1, b"from 1")], [(0.502, 1, b"from 2")]]
    assert (device.packet_ins, device.packet_outs) == (2, 2)
    stats = read_counts(emulator).switches["s"]
    assert stats.ingress_passes == 4
    assert stats.ports[510].packets_out == 2
