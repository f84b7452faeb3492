"""Hosts whose address changes or goes, and hosts that listen on all addresses, in a LAN."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.network.conftest import StartLab
from tests.network.lan import CONTROL, FABRIC, LanHosts, received, switch, until

HOSTS = ("a", "b", "c")
COUNT = 300

MakeHosts = Callable[..., LanHosts]


@pytest.fixture
def hosts(lab: StartLab, tmp_path: Path, require_tool: Callable[[str], str]) -> MakeHosts:
    require_tool("mosquitto_sub")
    return lambda *names: LanHosts(lab(switch(names)), tmp_path, names)


def readdress(made: LanHosts, host: str) -> tuple[str, str]:
    """Gives a host another address of its network, as DHCP does. Returns the old and the new one."""
    old = made.lab.interface(host).ipv4
    new = ipaddress.ip_interface(f"{old.network.broadcast_address - 2}/{old.network.prefixlen}")
    made.lab.run(host, "ip", "addr", "del", str(old), "dev", "eth0")
    made.lab.run(host, "ip", "addr", "add", str(new), "dev", "eth0")
    return str(old.ip), str(new.ip)


def addresses(made: LanHosts, host: str) -> dict[str, str]:
    """Returns the fabric addresses of all hosts, as one of them knows them from the coordinator."""
    return {one["name"]: one["address"] for one in made.ask(host, "status")["hosts"]}


def test_a_link_goes_down_and_another_address_comes(hosts: MakeHosts) -> None:
    """Hosts follow a host to its new address, and back, without a restart; nothing is lost or repeated."""
    made = hosts(*HOSTS)
    for host in HOSTS:
        made.start(host)
    payloads = [str(number) for number in range(4 * COUNT)]
    at = {host: made.subscribe(host, "t", 4 * COUNT) for host in ("b", "c")}
    made.publish("a", "t", payloads[:COUNT])
    made.lab.run("c", "ip", "link", "set", "eth0", "down")
    made.publish("a", "t", payloads[COUNT : 2 * COUNT])
    made.lab.run("c", "ip", "link", "set", "eth0", "up")
    old, new = readdress(made, "c")
    made.publish("a", "t", payloads[2 * COUNT : 3 * COUNT])
    until(lambda: addresses(made, "a")["c"] == f"{new}:{FABRIC}", "the coordinator to know the new address")
    until(lambda: made.found("c")["host a"][0][0] == "ok", "c to be connected from its new address")
    (trouble,) = [
        text for level, text in made.found("c")["daemon"] if level == "bad" and "fabric uses" in text
    ]
    assert old in trouble
    assert f"{new} of eth0" in trouble
    assert [trouble] == [text for text in made.ask("c", "status")["problems"] if "fabric uses" in text]
    made.lab.run("c", "ip", "addr", "del", f"{new}/24", "dev", "eth0")
    made.lab.run("c", "ip", "addr", "add", f"{old}/24", "dev", "eth0")
    made.publish("a", "t", payloads[3 * COUNT :])
    for host, subscriber in at.items():
        assert received(subscriber, "t") == payloads, host
    until(lambda: not made.ask("c", "status")["problems"], "c to be well")
    until(lambda: addresses(made, "a")["c"] == f"{old}:{FABRIC}", "the coordinator to know the old address")


def test_the_address_of_a_running_daemon_is_gone(hosts: MakeHosts) -> None:
    """Its Unix socket lives on: doctor asks it there, and names the address and the listeners."""
    made = hosts("a", "b")
    for host in made.hosts:
        made.start(host)
    own = made.lab.interface("b").ipv4
    made.lab.run("b", "ip", "addr", "del", str(own), "dev", "eth0")
    until(lambda: made.ask("b", "status")["problems"], "b to notice")
    ran = made.command("b", "doctor")
    assert ran.returncode == 1
    assert "daemon  " in ran.stdout
    found = made.found("b")
    assert found["control address"] == [
        ("bad", f"{own.ip}:7671 is on no interface of this host: nobody reaches it there")
    ]
    bad = [text for level, text in found["daemon"] if level == "bad"]
    assert any(f"{own.ip}, where --control listen" in text for text in bad)
    assert any("eth0 has no other: other hosts cannot reach this one" in text for text in bad)
    assert "fabric's address is on no interface" in made.log("b")
    until(lambda: made.found("a")["host b"][0][0] == "slow", "a to notice")
    made.lab.run("b", "ip", "addr", "add", str(own), "dev", "eth0")
    until(lambda: not made.ask("b", "status")["problems"], "b to be well")
    until(lambda: made.found("a")["host b"][0][0] == "ok", "a to be connected again")


def test_hosts_that_listen_on_all_addresses_use_the_advertised_ones_interface(hosts: MakeHosts) -> None:
    """Multicast is on, by the interface that has the address; a translated address is told as what it is."""
    made = hosts(*HOSTS)
    for host in ("a", "b"):
        at = f"{made.lab.ipv4(host)}:{FABRIC}"
        made.start(host, fabric=f"0.0.0.0:{FABRIC}", fabric_advertised=at)
        found = made.found(host)
        assert "on interface eth0, MTU 1500" in found["fabric"][0][1]
        assert found["carrier ip-multicast"][0][0] == "ok"
    made.start("c", fabric=f"0.0.0.0:{FABRIC}", fabric_advertised=f"198.51.100.7:{FABRIC}")
    found = made.found("c")
    assert "announced as 198.51.100.7:7672 on no interface of this host" in found["fabric"][0][1]
    assert "no interface of this host has 198.51.100.7" in found["carrier ip-multicast"][0][1]
    assert not made.ask("c", "status")["problems"]


def test_the_coordinators_host_has_another_address(hosts: MakeHosts) -> None:
    """Doctor at the others says that it is away. With its new address, they meet again."""
    made = hosts("a", "b")
    for host in made.hosts:
        made.start(host)
    old, new = readdress(made, "a")
    until(lambda: made.found("b")["cluster"][0][0] == "slow", "b to notice")
    (_, text), *_ = made.found("b")["cluster"]
    assert "which is away" in text
    assert old in text
    assert "whether its host still has that address" in text
    for host in made.hosts:
        made.stop(host)
    made.start("a", control=f"{new}:{CONTROL}", fabric=f"{new}:{FABRIC}")
    made.start("b", join=f"{new}:{CONTROL}")
    until(lambda: made.found("b")["cluster"][0][0] == "ok", "b to have joined again")
    until(lambda: made.found("b")["host a"][0][0] == "ok", "b to be connected to a")
