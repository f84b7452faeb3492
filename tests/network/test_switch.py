"""A lab's P4 switches: separate processes on veth pairs, programmed over P4Runtime, carrying real traffic."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab
from tests.network.traffic import GROUP, collect, datagrams, join, reaches, send

from treecast.middleware.control.switches import SwitchSession, SwitchState
from treecast.middleware.dataplane.lab.description import Description, Host, Link, Switch
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.p4 import ActionCall, Entry, ExactMatch, MulticastGroup, Replica

PROGRAM = """
#include <core.p4>
#include <v1model.p4>

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.ethernet); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply {} }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action drop() { mark_to_drop(standard); }
    action forward(bit<9> port) { standard.egress_spec = port; }
    action multicast(bit<16> group) { standard.mcast_grp = group; }
    table addresses {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; multicast; drop; }
        default_action = drop();
    }
    apply { addresses.apply(); }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply { if (standard.egress_port == standard.ingress_port) { mark_to_drop(standard); } }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.ethernet); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
GROUP_MAC = 0x01005E010203  # 239.1.2.3


@pytest.fixture
def line(lab: StartLab, tmp_path: Path, require: Callable[[object, str], None]) -> Lab:
    """Three hosts on two switches: a and b on s, c on t."""
    require(importlib.util.find_spec("finsy"), "finsy is not installed")
    program = tmp_path / "addresses.p4"
    program.write_text(PROGRAM)
    switch = Switch(str(program))
    links = tuple(Link(pair) for pair in (("a", "s"), ("b", "s"), ("c", "t"), ("s", "t")))
    made = lab(
        Description(hosts=dict.fromkeys("abc", Host()), switches={"s": switch, "t": switch}, links=links)
    )
    asyncio.run(_program(made))
    return made


def _entry(mac: int, action: str, **arguments: int) -> tuple[str, Entry]:
    return "I.addresses", Entry({"hdr.ethernet.dst": ExactMatch(mac)}, ActionCall(f"I.{action}", arguments))


async def _program(made: Lab) -> None:
    """Programs the ports: s has a 1, b 2, t 3; t has c 1, s 2."""
    macs = {node: int(made.interface(node).mac.replace(":", ""), 16) for node in "abc"}
    towards = {"s": {"a": 1, "b": 2, "c": 3}, "t": {"a": 2, "b": 2, "c": 1}}
    for switch, ports in towards.items():
        group = MulticastGroup(1, tuple(Replica(port) for port in sorted(set(ports.values()))))
        state = SwitchState.of(
            groups=[group],
            entries=[
                *(_entry(macs[node], "forward", port=port) for node, port in ports.items()),
                _entry(GROUP_MAC, "multicast", group=1),
            ],
        )
        async with SwitchSession(made.p4runtime(switch)) as session:
            await session.learn_program()
            assert await session.bring_to(state) == len(state)


def test_unicast_and_multicast_pass(line: Lab) -> None:
    assert reaches(line, "a", "b")
    assert reaches(line, "c", "a")
    with datagrams(line, "a") as a, datagrams(line, "b") as b, datagrams(line, "c") as c:
        for node, end in (("b", b), ("c", c)):
            join(line, node, end)
        send(a, GROUP, 200)
        assert collect(b, 200) == list(range(200))
        assert collect(c, 200) == list(range(200))


def test_counts_are_written_on_demand(line: Lab) -> None:
    assert reaches(line, "a", "b")
    pid = next(child.pid for child in line._children if "s" in child.args and child.poll() is None)
    path = line.switch_stats("s")
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + 30
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    counts = json.loads(path.read_text())
    assert counts["name"] == "s"
    assert counts["pipeline"]["tables"]["I.addresses"]["hits"] >= 2
    assert counts["pipeline"]["ports"]["1"]["packets_in"] >= 1
