"""Bridges deliver unicast to one port, and multicast to members only, as measured at the ports."""

from __future__ import annotations

import socket
import time

import pytest
from tests.network.conftest import StartLab
from tests.network.traffic import GROUP, collect, datagrams, join, send

from treecast.middleware.dataplane.lab.description import Bridge, Description, Host, Link
from treecast.middleware.dataplane.lab.lab import Lab
from treecast.middleware.dataplane.lab.namespaces import open_socket

HOSTS = ("alpha", "beta", "gamma", "delta")
COUNT = 200
_NOISE = 20  # frames of the kernel itself: neighbour discovery, membership reports, queries
_TRIES = 60
_MEMBERSHIP_QUERY = 0x11  # RFC 3376, section 4


def switched(bridge: Bridge) -> Description:
    return Description(
        hosts=dict.fromkeys(HOSTS, Host()),
        bridges={"lan": bridge},
        links=tuple(Link((host, "lan")) for host in HOSTS),
    )


def received(made: Lab) -> dict[str, int]:
    return {host: made.counters(host)["rx_packets"] for host in HOSTS}


def multicast_reaches(made: Lab) -> dict[str, int]:
    """Returns the frames that came to each host while COUNT datagrams went from alpha to the group."""
    with datagrams(made, "alpha") as alpha:
        before = received(made)
        send(alpha, GROUP, COUNT)
        after = received(made)
    return {host: after[host] - before[host] for host in HOSTS}


def test_multicast_reaches_only_members(lab: StartLab) -> None:
    made = lab(switched(Bridge()))
    with datagrams(made, "beta") as beta, datagrams(made, "gamma") as gamma:
        join(made, "beta", beta)
        join(made, "gamma", gamma)
        for _ in range(_TRIES):  # the bridge floods until its querier has been up for half a second
            reached = multicast_reaches(made)
            assert reached["beta"] >= COUNT
            assert reached["gamma"] >= COUNT
            if reached["delta"] < _NOISE:
                break
            time.sleep(0.1)
        assert reached["delta"] < _NOISE
        collect(beta)
        sent_before = made.counters("alpha")["tx_packets"]
        with datagrams(made, "alpha") as alpha:
            send(alpha, GROUP, COUNT)
        assert collect(beta, COUNT) == list(range(COUNT))
        assert COUNT <= made.counters("alpha")["tx_packets"] - sent_before < COUNT + _NOISE


@pytest.mark.parametrize("bridge", [Bridge(snooping=False), Bridge(querier=False)])
def test_multicast_floods_without_snooping_or_without_querier(lab: StartLab, bridge: Bridge) -> None:
    made = lab(switched(bridge))
    with datagrams(made, "beta") as beta:
        join(made, "beta", beta)
        assert multicast_reaches(made)["delta"] >= COUNT


@pytest.mark.parametrize(("hash_max", "snooping"), [(8, "0"), (64, "1")])
def test_too_many_groups_switch_snooping_off(lab: StartLab, hash_max: int, snooping: str) -> None:
    made = lab(switched(Bridge(hash_max=hash_max)))
    with datagrams(made, "beta") as beta, datagrams(made, "alpha") as alpha:
        for number in range(12):
            join(made, "beta", beta, f"239.9.9.{number}")
        join(made, "alpha", alpha)  # its report arrives after the earlier ones of the others
        made.run("alpha", "true")
        state = made.run("lan", "cat", "/sys/class/net/br0/bridge/multicast_snooping").stdout
        assert state.strip() == snooping


def test_the_querier_asks(lab: StartLab) -> None:
    made = lab(switched(Bridge()))
    with open_socket(
        made.namespace("delta"), socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)
    ) as ear:
        ear.settimeout(15.0)  # the querier asks one second after its start, then every ten
        while True:
            packet = ear.recv(2048)
            header = (packet[0] & 15) * 4
            if packet[9] == socket.IPPROTO_IGMP and packet[header] == _MEMBERSHIP_QUERY:
                break
    assert packet[16:20] == socket.inet_aton("224.0.0.1")


def test_unicast_goes_to_one_port(lab: StartLab) -> None:
    made = lab(switched(Bridge()))
    with datagrams(made, "alpha") as alpha, datagrams(made, "beta") as beta:
        send(beta, made.ipv4("alpha"), 1)  # the bridge learns the port of beta
        send(alpha, made.ipv4("beta"), 1)
        collect(beta)
        before = received(made)
        send(alpha, made.ipv4("beta"), COUNT)
        assert collect(beta, COUNT) == list(range(COUNT))
    after = received(made)
    assert after["beta"] - before["beta"] >= COUNT
    assert after["gamma"] - before["gamma"] < _NOISE
    port = made.end("gamma", "lan", at="lan")
    assert made.counters("lan", port.interface)["tx_packets"] < COUNT
