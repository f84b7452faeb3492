"""Hosts whose address changes or goes, and hosts that listen on all addresses, in a LAN."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
    return {one["name"]: one["address"] for one in status(made, host)["hosts"]}


def status(made: LanHosts, host: str) -> dict[str, Any]:
    """Returns what a host says of itself; a problem that it cannot be asked where it does not answer."""
    return made.ask(host, "status") or {"hosts": [], "problems": [f"{host} does not answer"]}


def level(made: LanHosts, host: str, check: str) -> str:
    """Returns the level of doctor's first finding of a check; an empty one without any."""
    return next((level for level, _ in made.found(host).get(check, [])), "")


def bad(made: LanHosts, host: str) -> list[str]:
    """Returns what doctor finds wrong with a host's daemon."""
    return [text for level, text in made.found(host).get("daemon", []) if level == "bad"]


def away(made: LanHosts, host: str) -> str:
    """Returns what doctor says of a cluster that does not answer."""
    return next((text for level, text in made.found(host).get("cluster", []) if level == "slow"), "")


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
    until(lambda: addresses(made, "a").get("c") == f"{new}:{FABRIC}", "a to know the new address")
    until(lambda: level(made, "c", "host a") == "ok", "c to be connected from its new address")

    def told(texts: list[str]) -> list[str]:
        return [text for text in texts if f"fabric uses {new} of eth0" in text and old in text]

    until(lambda: len(told(bad(made, "c"))) == 1, "doctor to name the old address and the new one")
    until(lambda: told(bad(made, "c")) == told(status(made, "c")["problems"]), "status to say the same")
    made.lab.run("c", "ip", "addr", "del", f"{new}/24", "dev", "eth0")
    made.lab.run("c", "ip", "addr", "add", f"{old}/24", "dev", "eth0")
    made.publish("a", "t", payloads[3 * COUNT :])
    for host, subscriber in at.items():
        assert received(subscriber, "t") == payloads, host
    until(lambda: not status(made, "c")["problems"], "c to be well")
    until(lambda: addresses(made, "a").get("c") == f"{old}:{FABRIC}", "a to know the old address")


def test_the_address_of_a_running_daemon_is_gone(hosts: MakeHosts) -> None:
    """Its Unix socket lives on: doctor asks it there, and names the address and the listeners."""
    made = hosts("a", "b")
    for host in made.hosts:
        made.start(host)
    own = made.lab.interface("b").ipv4
    made.lab.run("b", "ip", "addr", "del", str(own), "dev", "eth0")
    for said in (
        f"{own.ip}, where --control listen",
        "eth0 has no other: other hosts cannot reach this one",
    ):
        until(lambda said=said: any(said in text for text in bad(made, "b")), f"b to say: {said}")
    ran = made.command("b", "doctor")
    assert ran.returncode == 1
    assert "daemon  " in ran.stdout
    assert made.found("b")["control address"] == [
        ("bad", f"{own.ip}:7671 is on no interface of this host: nobody reaches it there")
    ]
    until(lambda: "fabric's address is on no interface" in made.log("b"), "the line in b's log")
    until(lambda: level(made, "a", "host b") == "slow", "a to notice")
    made.lab.run("b", "ip", "addr", "add", str(own), "dev", "eth0")
    until(lambda: not status(made, "b")["problems"], "b to be well")
    until(lambda: level(made, "a", "host b") == "ok", "a to be connected again")


def test_hosts_that_listen_on_all_addresses_use_the_advertised_ones_interface(hosts: MakeHosts) -> None:
    """Multicast is on, by the interface that has the address; a translated address is told as what it is."""
    made = hosts(*HOSTS)
    for host in ("a", "b"):
        at = f"{made.lab.ipv4(host)}:{FABRIC}"
        made.start(host, fabric=f"0.0.0.0:{FABRIC}", fabric_advertised=at)
        found = made.found(host)
        assert "on interface eth0, MTU 1500" in found["fabric"][0][1]
        until(lambda host=host: level(made, host, "carrier ip-multicast") == "ok", "multicast to be on")
    made.start("c", fabric=f"0.0.0.0:{FABRIC}", fabric_advertised=f"198.51.100.7:{FABRIC}")
    found = made.found("c")
    assert "announced as 198.51.100.7:7672 on no interface of this host" in found["fabric"][0][1]
    assert "no interface of this host has 198.51.100.7" in found["carrier ip-multicast"][0][1]
    assert not status(made, "c")["problems"]


def test_the_coordinators_host_has_another_address(hosts: MakeHosts) -> None:
    """Doctor at the others says that it is away. With its new address, they meet again."""
    made = hosts("a", "b")
    for host in made.hosts:
        made.start(host)
    old, new = readdress(made, "a")
    for said in ("which is away", old, "whether its host still has that address"):
        until(lambda said=said: said in away(made, "b"), f"b to say: {said}")
    for host in made.hosts:
        made.stop(host)
    made.start("a", control=f"{new}:{CONTROL}", fabric=f"{new}:{FABRIC}")
    made.start("b", join=f"{new}:{CONTROL}")
    until(lambda: level(made, "b", "cluster") == "ok", "b to have joined again")
    until(lambda: level(made, "b", "host a") == "ok", "b to be connected to a")
