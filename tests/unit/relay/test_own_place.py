"""A host whose address changes: it listens at another one, and other hosts learn it from the host itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.fabric.channel.hosts import CLUSTER, QUICK, until

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import Change, HostEntry, Kind, Position, Presence, Update
from treecast.middleware.fabric.channel import listen_on_one_number
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import Interface, interface_of
from treecast.middleware.model.counters import Counters
from treecast.middleware.relay import own_place
from treecast.middleware.relay.neighbours import Endpoint, Neighbours, Port
from treecast.middleware.relay.own_place import OwnPlace
from treecast.middleware.relay.view import ClusterView

LO = interface_of("127.0.0.1")
ETH = Interface("eth0", 2, 1500)


def told(view: ClusterView, *hosts: tuple[int, Address]) -> None:
    """Applies what a coordinator tells."""
    entries = [HostEntry(host, f"host{host}", "", str(at), "1", 1, Presence.ATTACHED) for host, at in hosts]
    changes = tuple(Change(Kind.HOST, entry.name, entry) for entry in entries)
    view.apply(Update(True, Position("h", view.position.revision + 1), changes))


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Neighbours]]:
    """Starts the neighbours of a host, which accepts every host that it is told."""
    made: list[Neighbours] = []

    async def start(host: int, listening: str = "127.0.0.1", announced: Address | None = None) -> Neighbours:
        stream, datagrams = listen_on_one_number(Address(listening, 0))
        port = Port(Address(*stream.getsockname()[:2]), stream, datagrams)
        fabric = FabricSettings(advertised=announced.host if announced else listening)
        if announced is not None:
            announced = Address(announced.host, port.address.port)
        endpoint = Endpoint(port, None, QUICK, fabric, announced)
        one = Neighbours(endpoint, host, 1, CLUSTER, ClusterView(), Counters())
        one.channels.on_up = one.accepted
        made.append(one)
        await one.start_fabric()
        await one.start_channels()
        return one

    yield start
    for one in made:
        await one.place.close()
        await one.close_channels()
        await one.close_fabric()


def known(here: Neighbours, host: int) -> tuple[str, str]:
    """Returns the host's addresses for calls and for segments."""
    (peer,) = [one for one in here.channels.peers() if one.host_id == host]
    address = here.fabric.carriers.unicast.addresses.get(host)
    return peer.address, f"{address[0]}:{address[1]}" if address else ""


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
async def test_others_follow_a_host_without_the_coordinator(
    start: Callable[..., Neighbours], listening: str
) -> None:
    announced = Address("127.0.0.1", 1) if listening == "0.0.0.0" else None
    one, two = await start(1, listening, announced), await start(2)
    told(one._view, (1, one.announced), (2, two.announced))
    told(two._view, (1, one.announced), (2, two.announced))
    await until(lambda: one.channels.is_up(2) and two.channels.is_up(1))
    heard: list[str] = []
    one.on_moved.append(lambda here: heard.append(str(here.announced)))
    await one._move("127.0.0.2")
    new = f"127.0.0.2:{one.address.port}"
    assert heard == [new]
    await until(lambda: known(two, 1) == (new, new))
    await until(lambda: one.channels.is_up(2) and two.channels.is_up(1))
    # what the coordinator tells of an earlier move comes later, and is older than the host's own word
    told(two._view, (1, Address("127.0.0.9", 9)), (2, two.announced))
    assert known(two, 1) == (new, new)


async def test_a_translated_address_stays_announced(start: Callable[..., Neighbours]) -> None:
    one, two = await start(1, "127.0.0.1", Address("198.51.100.7", 1)), await start(2)
    told(one._view, (1, one.announced), (2, two.announced))
    await until(lambda: one.channels.is_up(2))
    await one._move("127.0.0.2")
    assert one.announced.host == "198.51.100.7"
    assert one.address.host == "127.0.0.2"
    assert one.fabric.address[0] == "127.0.0.2"


class Machine:
    """Stands for the addresses of a machine: (interface, address)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
        self.host, self.moves, self.fails = host, list[str](), 0
        monkeypatch.setattr(own_place, "is_here", lambda address: address == self.host)
        monkeypatch.setattr(own_place, "interface_of", lambda address: ETH)
        monkeypatch.setattr(own_place, "lasting_addresses", list)
        monkeypatch.setattr(own_place, "network_of", lambda address: None)
        monkeypatch.setattr(own_place, "successor", lambda *_: self.host)
        monkeypatch.setattr(own_place, "_AGAIN", 0.01)

    async def move(self, host: str) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError(99, "Cannot assign requested address")
        self.moves.append(host)


async def test_an_address_goes_and_comes_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(monkeypatch, "10.0.0.3")
    place = OwnPlace(machine.move)
    place.at("10.0.0.3", ETH)
    await place.start()
    try:
        assert place.trouble == ""
        with caplog.at_level(logging.INFO):
            machine.host = ""
            place._changed()
            assert "no interface of this host has 10.0.0.3" in place.trouble
            assert "eth0 has no other" in place.trouble
            machine.host, machine.fails = "10.0.0.77", 2
            place._changed()
            await until(lambda: machine.moves == ["10.0.0.77"])
            await asyncio.sleep(0)
            assert "uses 10.0.0.77 of eth0" in place.trouble
            machine.host = "10.0.0.3"
            place._changed()
            await until(lambda: machine.moves == ["10.0.0.77", "10.0.0.3"])
            await until(lambda: place.trouble == "")
        events = [record.message for record in caplog.records]
        assert sum("fabric's address is on no interface" in event for event in events) >= 2
        assert sum("fabric's address is back" in event for event in events) == 1
    finally:
        await place.close()


async def test_an_address_that_was_never_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, "")
    place = OwnPlace(machine.move)
    place.at("198.51.100.7", Interface("", 0, 1280))
    await place.start()
    await place.close()
    assert "give --fabric the address of one" in place.trouble


async def test_a_fabric_that_listens_everywhere_behind_a_translated_address_has_no_trouble() -> None:
    place = OwnPlace(lambda host: asyncio.sleep(0))
    place.at("", LO)
    await place.start()
    await place.close()
    assert place.trouble == ""
