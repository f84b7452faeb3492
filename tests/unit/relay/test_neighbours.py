"""A host that no other accepts reports it, and only then."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.fabric.channel.hosts import CLUSTER, QUICK, Host, until

from treecast.middleware.api.discovery import Address
from treecast.middleware.api.entries import Change, HostEntry, Kind, Position, Presence, Update
from treecast.middleware.fabric.channel import listen_on_one_number
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.counters import Counters
from treecast.middleware.relay.neighbours import Endpoint, Neighbours, Port
from treecast.middleware.relay.view import ClusterView

OWN = 7


def told(view: ClusterView, *hosts: tuple[Host, Presence]) -> None:
    entries = [
        HostEntry(host.host_id, f"host{host.host_id}", "", str(host.address), "1", 1, presence)
        for host, presence in hosts
    ]
    changes = tuple(Change(Kind.HOST, entry.name, entry) for entry in entries)
    view.apply(Update(True, Position("h", view.position.revision + 1), changes))


@pytest.fixture
async def neighbours() -> AsyncIterator[Callable[[int], Neighbours]]:
    """Makes host 7 in one of its runs, without a cluster's key."""
    made: list[Neighbours] = []

    def make(run: int) -> Neighbours:
        stream, datagrams = listen_on_one_number(Address("127.0.0.1", 0))
        port = Port(Address(*stream.getsockname()[:2]), stream, datagrams)
        ways = Endpoint(port, None, QUICK, FabricSettings())
        made.append(Neighbours(ways, OWN, run, CLUSTER, ClusterView(), Counters()))
        return made[-1]

    yield make
    for one in made:
        await one.close_channels()
        await one.close_fabric()


async def others(*numbers: int) -> list[Host]:
    """Starts hosts that have seen run 5 of host 7."""
    hosts = [await Host(number, key=None).start() for number in numbers]
    newer = await Host(OWN, incarnation=5, key=None).start()
    newer.knows(*hosts)
    for host in hosts:
        host.knows(newer)
        await until(lambda host=host: host.channels.is_up(OWN))
    newer.kill()
    for host in hosts:
        host.channels.set_host(OWN, None)
        host.channels._peer(OWN).incarnation = 5  # as if the host had been known all along
    return hosts


async def test_a_run_that_was_overtaken_is_told(
    neighbours: Callable[[int], Neighbours], caplog: pytest.LogCaptureFixture
) -> None:
    a, b = await others(1, 2)
    own = neighbours(3)
    told(own._view, (a, Presence.ATTACHED), (b, Presence.ATTACHED))
    assert own.isolation() == ""
    await own.start_fabric()
    await own.start_channels()
    with caplog.at_level(logging.ERROR):
        await until(own.isolation)
    assert own.isolation().startswith("no other host accepts this one (host host1: ")
    assert "a newer incarnation of the host is known: 3, known is 5" in own.isolation()
    assert (
        len([record for record in caplog.records if "do not see what is written here" in record.message]) == 1
    )
    for host in (a, b):
        await host.channels.close()


async def test_one_that_accepts_it_is_enough_and_one_that_is_away_says_nothing(
    neighbours: Callable[[int], Neighbours],
) -> None:
    (a,) = await others(1)
    fresh = await Host(2, key=None).start()
    own = neighbours(3)
    told(own._view, (a, Presence.ATTACHED), (fresh, Presence.ATTACHED))
    await own.start_fabric()
    await own.start_channels()
    await until(lambda: own.channels.is_up(2) and own.channels.peers()[0].refused)
    assert own.isolation() == ""
    told(own._view, (a, Presence.AWAY), (fresh, Presence.ATTACHED))
    assert own.isolation() == ""
    told(own._view, (a, Presence.ATTACHED), (fresh, Presence.AWAY))
    assert own.isolation()
    for host in (a, fresh):
        await host.channels.close()


async def test_a_host_that_nobody_answers_is_not_refused(neighbours: Callable[[int], Neighbours]) -> None:
    gone = await Host(1, key=None).start()
    await gone.channels.close()
    own = neighbours(3)
    told(own._view, (gone, Presence.ATTACHED))
    await own.start_fabric()
    await own.start_channels()
    await until(lambda: own.channels.peers()[0].last_error)
    assert own.isolation() == ""
