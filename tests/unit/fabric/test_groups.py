"""Multicast on the loopback interface: probes, one packet for many, memberships."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.unit.fabric.edges import IP_MULTICAST, PATIENCE, STREAM, Collected, fabrics, join, leave, until

from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.fabric.sockets.interfaces import interface_of
from treecast.middleware.fabric.sockets.memberships import Memberships
from treecast.middleware.wire import stare

START = Progress(0, 0)
STATE = 300_001  # other tests on this machine may use its neighbours at the same time


async def test_a_probe_reaches_members_and_a_stream_goes_to_the_group_for_those_confirmed() -> None:
    settings = FabricSettings(stream=STREAM, mtu=1500)
    async with fabrics(1, 2, 3, 4, settings=settings) as (one, two, three, four):
        heard: list[tuple[int, int, int, int]] = []
        for fabric in (two, three, four):
            fabric.on_probe = lambda *probe, host=fabric.host: heard.append((host, *probe))
        join(two, STATE)
        join(three, STATE)
        one.send_probe(IP_MULTICAST, STATE, 99, ())
        await until(lambda: len(heard) == 2)
        assert sorted(heard) == [(2, 1, STATE, 99), (3, 1, STATE, 99)]

        origin = one.originate(7, 1)
        sinks = [Collected() for _ in range(3)]
        for fabric, sink in zip((two, three, four), sinks, strict=True):
            origin.add_receiver(fabric.host, 0)
            fabric.join(1, 7, 1, sink, progress=START)
        origin.use_carrier(IP_MULTICAST, {2, 3}, STATE)
        assert {peer.host: peer.carrier for peer in origin.peers()} == {
            2: "ip-multicast",
            3: "ip-multicast",
            4: "unicast",
        }
        payloads = [bytes([number]) * 5000 for number in range(50)]
        for payload in payloads:
            origin.publish(payload, 1)
        await until(lambda: all(len(sink.deliveries) == 50 for sink in sinks))
        assert all(sink.payloads == payloads for sink in sinks)
        assert origin.counters.sent["DATA"] == 50 * 4
        sent = one.counters.sent_packets
        assert 2 * 200 <= sent < 2 * 200 + 60  # one copy to the group, one to host 4, and control packets
        origin.drop_carrier()
        assert {peer.carrier for peer in origin.peers()} == {"unicast"}
        origin.publish(b"last", 1)
        await until(lambda: all(len(sink.deliveries) == 51 for sink in sinks))


async def test_a_burst_waits_for_the_group_that_is_being_formed() -> None:
    settings = FabricSettings(stream=STREAM, mtu=1500)
    async with fabrics(1, 2, 3, settings=settings) as (one, two, three):
        origin = one.originate(7, 1)
        sinks = [Collected() for _ in range(2)]
        for fabric, sink in zip((two, three), sinks, strict=True):
            join(fabric, STATE + 3)
            origin.add_receiver(fabric.host, 0)
            fabric.join(1, 7, 1, sink, progress=START)
        origin.await_group(PATIENCE)
        before, payload = one.stream_settings.live_before, bytes(50_000)
        for _ in range(20):
            origin.publish(payload, 1)
        at_once = before // len(payload)
        await until(lambda: all(len(sink.deliveries) >= at_once for sink in sinks))
        assert before <= origin.pace().payload < before + len(payload)
        origin.use_carrier(IP_MULTICAST, {2, 3}, STATE + 3)
        origin.group_stands()
        await until(lambda: all(len(sink.deliveries) == 20 for sink in sinks))
        by_unicast = sum([one.size for one in origin.sent() if one.carrier == "unicast"])
        assert by_unicast < 2 * 1.2 * (before + len(payload))

        origin.drop_carrier()
        origin.await_group(0.05)  # a group that is not formed delays nothing further
        for _ in range(20):
            origin.publish(payload, 1)
        await until(lambda: all(len(sink.deliveries) == 40 for sink in sinks))


async def test_who_left_a_group_answers_no_probe() -> None:
    async with fabrics(1, 2, 3) as (one, two, three):
        heard: list[int] = []
        two.on_probe = three.on_probe = lambda *probe: heard.append(probe[2])
        for fabric in (two, three):
            join(fabric, STATE + 1)
        leave(two, STATE + 1)
        assert two.state().carriers[1].targets == 0
        one.send_probe(IP_MULTICAST, STATE + 1, 5, ())
        await until(lambda: bool(heard))
        assert heard == [5]


async def test_a_host_that_the_group_does_not_reach_falls_back_to_unicast() -> None:
    async with fabrics(1, 2, 3) as (one, two, three):
        unreached: list[tuple[int, int]] = []
        one.on_unreached = lambda origin, host: unreached.append((origin.key[1], host))
        origin = one.originate(7, 1)
        sinks = [Collected() for _ in range(2)]
        for fabric, sink in zip((two, three), sinks, strict=True):
            origin.add_receiver(fabric.host, 0)
            fabric.join(1, 7, 1, sink, progress=START)
        join(three, STATE + 2)
        unread = two.carriers.named(IP_MULTICAST)._receiver  # type: ignore[attr-defined]
        asyncio.get_running_loop().remove_reader(unread.sock.fileno())  # the fabrics of one machine share it
        two._inlets.remove(unread)
        origin.use_carrier(IP_MULTICAST, {2, 3}, STATE + 2)
        count = 0
        async with asyncio.timeout(PATIENCE):
            while not unreached:
                origin.publish(b"%d" % count, 1)
                count += 1
                await asyncio.sleep(0.001)
        assert unreached == [(7, 2)]
        assert (origin.confirmed, one.counters.fell_back) == (frozenset({3}), 1)
        await until(lambda: all(len(sink.deliveries) == count for sink in sinks))
        asked = origin.sender.peers.get(2).asked  # type: ignore[union-attr]
        for number in range(200):
            origin.publish(b"%d" % number, 1)
        await until(lambda: all(len(sink.deliveries) == count + 200 for sink in sinks))
        assert origin.sender.peers.get(2).asked - asked < 100  # type: ignore[union-attr]


async def test_why_groups_are_refused() -> None:
    async with fabrics(1, address="0.0.0.0") as (one,):
        assert "listens on all interfaces" in one.state().carriers[1].refusal
        with pytest.raises(OSError, match="listens on all interfaces"):
            join(one, STATE)
        with pytest.raises(OSError, match="listens on all interfaces"):
            one.originate(1, 1).use_carrier(IP_MULTICAST, {2}, STATE)
    async with fabrics(1, settings=FabricSettings(carriers=())) as (one,):
        assert [carrier.name for carrier in one.state().carriers] == ["unicast"]
        with pytest.raises(ValueError, match="start with --carrier ip-multicast"):
            one.originate(1, 1).use_carrier(IP_MULTICAST, {2}, STATE)
    async with fabrics(1) as (one,):
        with pytest.raises(ValueError, match="state id 255"):
            one.send_probe(IP_MULTICAST, 255, 1, ())


def test_memberships_past_the_bound_of_one_socket() -> None:
    held = Memberships(interface_of("127.0.0.1"), socket.AF_INET)
    try:
        groups = [stare.group(310_000 + number) for number in range(100)]
        for group in groups:
            held.join(group)
        held.join(groups[0])
        assert (len(held), held.holders) == (100, 5)
        for group in groups[:45]:
            held.leave(group)
        assert (len(held), held.holders) == (55, 3)
        for group in groups[:45]:
            held.join(group)
        assert (len(held), held.holders) == (100, 5)
        held.leave(b"\xef\0\0\1")
    finally:
        held.close()
    assert (len(held), held.holders) == (0, 0)
