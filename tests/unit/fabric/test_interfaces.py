"""Which address takes the place of one that is gone, and a fabric that moves to it."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from tests.unit.fabric.edges import STREAM, Collected, fabrics, until

from treecast.middleware.fabric import edge
from treecast.middleware.fabric.carriers.ip_multicast import refusal_of
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import (
    NO_INTERFACE,
    Network,
    interface_of,
    is_here,
    lasting_addresses,
    successor,
)

NEAR = ipaddress.ip_interface("10.0.0.3/24")
NEAR_6 = ipaddress.ip_interface("fd00::3/64")


def found(*texts: str) -> list[tuple[str, Network]]:
    pairs = [text.split() for text in texts]
    return [(name, ipaddress.ip_interface(address)) for name, address in pairs]


@pytest.mark.parametrize(
    ("addresses", "host"),
    [
        (("eth0 10.0.0.9/24", "eth0 10.0.0.3/24"), "10.0.0.3"),  # it is there
        (("eth1 10.0.0.3/24",), "10.0.0.3"),  # on another interface
        (("lo 127.0.0.1/8", "eth0 192.168.1.9/24", "eth0 10.0.0.9/24"), "10.0.0.9"),  # of its network
        (("eth0 192.168.1.9/24", "eth1 10.0.0.9/24"), "192.168.1.9"),  # never by another interface
        (("eth0 169.254.1.9/16", "eth0 fd00::9/64", "lo 127.0.0.1/8"), ""),  # nothing of its kind
        ((), ""),
    ],
)
def test_the_successor_of_an_address(addresses: tuple[str, ...], host: str) -> None:
    assert successor("10.0.0.3", "eth0", NEAR, found(*addresses)) == host


def test_the_successor_of_an_address_of_ipv6() -> None:
    there = found("eth0 fe80::9/64", "eth0 fd01::9/64", "eth0 fd00::9/64", "eth0 10.0.0.9/24")
    assert successor("fd00::3", "eth0", NEAR_6, there) == "fd00::9"
    assert successor("fd00::3", "eth0", NEAR_6, there[:1]) == ""


def test_addresses_of_this_machine() -> None:
    assert is_here("127.0.0.1")
    assert is_here("127.1.2.3")  # the whole network is loopback's
    assert is_here("0.0.0.0")
    assert not is_here("198.51.100.7")
    assert ("lo", "127.0.0.1") in [(name, str(network.ip)) for name, network in lasting_addresses()]


def test_the_reason_names_what_is_missing() -> None:
    lo = interface_of("127.0.0.1")
    assert refusal_of(lo, "127.0.0.1") == ""
    assert "--fabric-advertised" in refusal_of(NO_INTERFACE, "0.0.0.0")
    assert "no interface of this host has 198.51.100.7" in refusal_of(NO_INTERFACE, "198.51.100.7")


async def test_listening_everywhere_the_advertised_address_names_the_interface() -> None:
    """Groups work, and segments are as long as its packets."""
    settings = FabricSettings(advertised="127.0.0.1")
    async with fabrics(1, address="0.0.0.0", settings=settings) as (one,):
        state = one.state()
        assert (state.interface.name, one.named) == ("lo", "127.0.0.1")
        assert state.segment_bytes > 1280
        assert state.carriers[1].refusal == ""
    settings = FabricSettings(advertised="198.51.100.7")  # translated: on no interface
    async with fabrics(1, address="0.0.0.0", settings=settings) as (one,):
        assert "has 198.51.100.7" in one.state().carriers[1].refusal


async def test_streams_go_on_when_the_fabric_moves() -> None:
    """Both ends move while there is data, the receiver's groups too; nothing is lost or repeated."""
    settings = FabricSettings(stream=STREAM, mtu=1500)
    async with fabrics(1, 2, settings=settings) as (one, two):
        sink, payloads = Collected(), [b"%d" % number * 200 for number in range(300)]
        two.carriers.named("ip-multicast").join(777)
        origin = one.originate(7, 1)
        origin.add_receiver(2, 0)
        two.join(1, 7, 1, sink, progress=Progress(0, 0))
        for at, payload in enumerate(payloads):
            if at == 100:
                two.rebind("127.0.0.2")
                one.set_host(2, two.address)
            if at == 200:
                one.rebind("127.0.0.3")
                two.set_host(1, one.address)
            origin.publish(payload, 1)
            await until(lambda at=at: len(sink.deliveries) > at - 20)
        await until(lambda: len(sink.deliveries) == 300)
        assert sink.payloads == payloads
        assert (one.address[0], two.address[0]) == ("127.0.0.3", "127.0.0.2")
        assert two.carriers.is_member(777)
        two.rebind("127.0.0.2")  # only looks at its interface again
        assert two.address[0] == "127.0.0.2"


@pytest.mark.parametrize("carrier", ["ip-multicast", "stare"])
async def test_groups_are_joined_again_on_an_interface_of_the_same_name(
    carrier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a driver was loaded again: the kernel has dropped the memberships with the old interface."""
    settings = FabricSettings(carriers=(carrier,))
    async with fabrics(1, 2, settings=settings) as (one, two):
        probed: list[tuple[int, int, int]] = []
        two.on_probe = lambda *probe: probed.append(probe)
        two.carriers.named(carrier).join(777)
        two.carriers.named(carrier).join(778)
        monkeypatch.setattr(edge, "interface_of", lambda _: NO_INTERFACE)
        two.rebind("127.0.0.1")
        assert not two.carriers.is_member(777)
        assert "no interface of this host has 127.0.0.1" in two.state().carriers[1].refusal
        two.carriers.named(carrier).leave(778)
        monkeypatch.undo()
        two.rebind("127.0.0.1")
        assert two.state().carriers[1].refusal == ""
        assert (two.carriers.is_member(777), two.carriers.is_member(778)) == (True, False)
        one.send_probe(carrier, 777, 5, [2])
        await until(lambda: probed == [(1, 777, 5)])


async def test_a_fabric_that_cannot_move_stays() -> None:
    async with fabrics(1) as (one,):
        before, reader = one.address, one._udp.sock
        with pytest.raises(OSError, match="assign"):
            one.rebind("198.51.100.7")
        assert one.address == before
        assert one._udp.sock is reader
        assert one._udp.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
