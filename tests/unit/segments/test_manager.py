"""The network controller with real routers in memory: packets are sent at every step of every change."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import grpc
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.routing.networks import networks
from tests.unit.segments.site import Site, address, some_groups

from treecast.middleware.api.v1 import daemon_pb2 as pb
from treecast.middleware.control.segments.description import Described, next_run, read
from treecast.middleware.control.segments.publishers import Daemons
from treecast.middleware.routing.network import Network, RoutingError


@settings(max_examples=10, deadline=None)
@given(networks(7, hosts=True, least=2), st.integers(0, 10**6))
def test_packets_arrive_once_at_every_step(network: Network, seed: int) -> None:
    """Controllers come and go; their leftovers are replaced by make before break as well."""
    asyncio.run(come_and_go(network, seed))


async def come_and_go(network: Network, seed: int) -> None:
    rng, site = Random(seed), Site(network)
    for run in range(1, 4):
        manager = site.manager(run)
        await manager.start()
        site.check()
        for _ in range(3):
            groups = some_groups(network, rng)
            await manager.update(groups)
            assert {(root, receivers) for root, trees in site.told.items() for receivers in trees} == groups
            assert site.held() == len(manager.forest.segments)
            assert not await manager.update(groups)
    assert site.versions == sorted(set(site.versions))


@settings(max_examples=10, deadline=None)
@given(networks(7, hosts=True, least=3), st.integers(0, 10**6))
def test_what_fails_at_any_step_is_gone_on_with(network: Network, seed: int) -> None:
    asyncio.run(fail_and_go_on(network, seed))


async def fail_and_go_on(network: Network, seed: int) -> None:
    rng, site = Random(seed), Site(network)
    manager = site.manager(1)
    await manager.start()
    for run in range(2, 6):
        groups = some_groups(network, rng)
        broken = rng.choice(list(site.routers.values()))
        broken.broken, site.deaf = bool(rng.randint(0, 1)), bool(rng.randint(0, 1))
        if broken.broken or site.deaf:
            try:
                await manager.update(groups)
            except OSError:
                site.check()
        broken.broken = site.deaf = False
        if rng.randint(0, 1):  # the controller died there
            manager = site.manager(run)
            await manager.start()
            site.check()
        await manager.update(groups)
        await manager.update(groups)
        assert site.held() == len(manager.forest.segments)


async def test_a_daemon_that_was_restarted_is_told_again() -> None:
    site = Site(two_routers())
    manager = site.manager(1)
    await manager.start()
    groups = {("a", ("b",))}
    await manager.update(groups)
    told, site.told = site.told, {}
    assert not await manager.update(groups)
    assert not site.told
    manager.remind()
    assert not await manager.update(groups)
    assert site.told == told
    assert site.versions == [manager.version] * 2


async def test_hosts_reach_each_other_by_their_addresses() -> None:
    site = Site(two_routers())
    await site.manager(1).start()
    packet = b"\x60\0\0\0\0\x08\x11\x40" + address(2).to_bytes(16) + address(3).to_bytes(16) + bytes(8)
    ((node, data),) = site.carry(2, bytes(12) + b"\x86\xdd" + packet, Counter())
    assert node == 3
    assert data[14:] == packet[:7] + b"\x3e" + packet[8:]


def two_routers() -> Network:
    return read_text('links = [["a", "r1"], ["r1", "r2"], ["r2", "b"]]').network()


def read_text(text: str) -> Described:
    hosts = "".join(
        f'[hosts.{name}]\naddress = "fd00::{n}"\nmac = "02:00:00:00:00:0{n}"\n'
        for n, name in enumerate("ab", 1)
    )
    return msgspec.toml.decode(text + '\n[routers]\nr1 = "x"\nr2 = "y"\n' + hosts, type=Described)


def test_descriptions(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    for text, why in [
        ('links = [["a", "r1"], ["r1", "nobody"]]', "nobody"),
        ('links = [["a", "r1"], ["b", "r2"], ["r1", "a"]]', "twice"),
        ('block = "no"\nlinks = [["a", "r1"], ["b", "r2"]]', "block"),
    ]:
        with pytest.raises(RoutingError, match=why):
            read_text(text).plan(1)
    file.write_text("links = 7")
    with pytest.raises(RoutingError, match="links"):
        read(file)
    store = tmp_path / "segments.json"
    assert [next_run(store), next_run(store)] == [1, 2]
    store.write_text("{}")
    with pytest.raises(ValueError, match="no store"):
        next_run(store)


async def test_a_daemon_that_stays_away_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Each look asks it; the log has a line when that begins, and one when it ends."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{unused.getsockname()[1]}"
    daemons = Daemons({"a": where}, seconds=5.0)
    with caplog.at_level(logging.INFO, "treecast.middleware.control.segments.publishers"):
        for _ in range(3):
            assert await daemons.wanted() is None
        assert [one.levelname for one in caplog.records] == ["WARNING"]
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_NoReceivers(),))
        server.add_insecure_port(where)
        await server.start()
        try:
            for _ in range(2):
                assert await daemons.wanted() == {}
        finally:
            await server.stop(0)
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]


class _NoReceivers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A daemon's control address that knows of no receivers."""

    def service(self, details: Any) -> Any:
        async def answer(request: bytes, context: Any) -> bytes:
            return pb.ListReceiverSetsResponse().SerializeToString()

        return grpc.unary_unary_rpc_method_handler(answer)
