"""Fabrics in one process over loopback: real sockets, real time, loss."""

from __future__ import annotations

import asyncio
import select

import pytest
from msgspec.structs import replace
from tests.unit.fabric.edges import ALONE, KEYS, STREAM, Collected, fabrics, lose, until

from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.settings import FabricSettings
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import NO_KEYS, Kind, control, encode
from treecast.middleware.wire.segment_bodies import Heartbeat

START = Progress(0, 0)


@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_stream_reaches_two_hosts_whole_and_in_order(address: str, offload: bool) -> None:
    settings = FabricSettings(stream=STREAM, offload=offload, mtu=1500)
    async with fabrics(1, 2, 3, address=address, settings=settings) as (one, two, three):
        sinks = [Collected(), Collected()]
        origin = one.originate(7, 1, name="topic-0")
        for fabric, sink in zip((two, three), sinks, strict=True):
            origin.add_receiver(fabric.host, 0)
            fabric.join(1, 7, 1, sink, progress=START)
        payloads = [b"%d" % number * (1 + number * 37 % 2000) for number in range(300)]
        for payload in payloads:
            assert origin.publish(payload, 2) is not None
        await until(lambda: all(len(sink.deliveries) == 300 for sink in sinks))
        assert [sink.payloads for sink in sinks] == [payloads] * 2
        origin.close()
        await until(lambda: origin.finished)
        rows = origin.rows()
        assert {row.addressed for row in rows.values()} == {600}
        assert all(row.balanced and row.closed for row in rows.values())
        assert (one.counters.sent_packets > one.counters.send_calls) is offload
        assert (one.counters.offload_refused, one.counters.dropped_packets) == (0, 0)
        origin.forget()
        assert one.origins() == []


@pytest.mark.parametrize("offload", [True, False])
async def test_what_is_lost_is_repaired(offload: bool) -> None:
    settings = FabricSettings(stream=STREAM, offload=offload, mtu=1500)
    async with fabrics(1, 2, settings=settings) as (one, two):
        sink = Collected()
        lossy = [lose(one, 5, 0.1), lose(two, 6, 0.1)]
        origin = one.originate(7, 1)
        origin.add_receiver(2, 0)
        two.join(1, 7, 1, sink, progress=START)
        payloads = [b"%d" % number * 900 for number in range(400)]
        for at in range(0, 400, 10):
            for payload in payloads[at : at + 10]:
                origin.publish(payload, 1)
            await until(lambda at=at: len(sink.deliveries) > at - 50)
        origin.close()
        await until(lambda: origin.finished)
        assert sink.payloads == payloads
        row = origin.rows()[2]
        assert (row.addressed, row.outstanding, row.balanced) == (400, 0, True)
        assert row.repaired > 0
        assert lossy[0].lost > 0


async def test_a_receiver_joins_at_the_current_sequence() -> None:
    async with fabrics(1, 2) as (one, two):
        origin = one.originate(7, 1, name="a name")
        for number in range(10):
            origin.publish(b"%d" % number, 3)
        origin.add_receiver(2)
        sink = Collected()
        joined = two.join(1, 7, 1, sink, progress=Progress(30, 30))
        await until(lambda: origin.peers()[0].heard > 0 and joined.receiver.known == 30)
        origin.publish(b"new", 1)
        await until(lambda: bool(sink.deliveries))
        assert (sink.payloads, joined.next, joined.lag, joined.receiver.name) == ([b"new"], 31, 0, "a name")


async def test_deliveries_come_in_few_calls_and_what_was_left_brings_no_more() -> None:
    async with fabrics(1, 2) as (one, two):
        origin = one.originate(7, 1)
        origin.add_receiver(2, 0)
        sink = Collected()
        joined = two.join(1, 7, 1, sink, progress=START)
        for _ in range(200):
            origin.publish(b"x" * 100, 1)
        await until(lambda: len(sink.deliveries) == 200)
        assert sink.calls < 20
        joined.leave()
        origin.publish(b"more", 1)
        await until(lambda: two.counters.refused.get("UNKNOWN_STREAM", 0) > 0)
        assert len(sink.deliveries) == 200
        assert two.state().received_streams == 0


async def test_a_sink_that_fails_loses_the_stream_and_not_the_fabric() -> None:
    class Failing(Collected):
        def deliver(self, deliveries: list) -> None:  # type: ignore[type-arg]
            raise OSError("the disk is full")

    async with fabrics(1, 2) as (one, two):
        origins = [one.originate(stream, 1) for stream in (7, 8)]
        failing, sink = Failing(), Collected()
        for origin in origins:
            origin.add_receiver(2, 0)
        two.join(1, 7, 1, failing, progress=START)
        two.join(1, 8, 1, sink, progress=START)
        for origin in origins:
            origin.publish(b"x", 1)
        await until(lambda: bool(sink.deliveries) and failing.error is not None)
        assert two.counters.sink_errors == 1
        assert [joined.key for joined in two.joined()] == [(1, 8, 1)]
        assert origins[0].rows()[2].outstanding == 1  # it was not reported as delivered


async def test_inspection() -> None:
    async with fabrics(1, 2) as (one, _):
        state = one.state()
        assert (state.host, state.address, state.interface.name) == (1, one.address, "lo")
        assert state.segment_bytes == min(state.interface.mtu - 36, 65_507 - 28)
        unicast, multicast = state.carriers
        assert (unicast.name, unicast.refusal, unicast.targets) == ("unicast", "", 1)
        assert (multicast.name, multicast.targets) == ("ip-multicast", 0)
        with pytest.raises(ValueError, match="no AF_INET address"):
            one.set_host(9, ("::1", 5))
        one.originate(1, 1)
        with pytest.raises(ValueError, match="served"):
            one.originate(1, 1)


async def test_bad_packets_are_counted_by_reason() -> None:
    async with fabrics(1, 2, settings=ALONE) as (one, two):
        stranger = one._udp.sock
        segment = control(Kind.HEARTBEAT, 1, 7, 1, 1, b"")
        sound = encode(segment, KEYS)
        packets = {
            "TOO_SHORT": b"short",
            "TRUNCATED": sound[:50],
            "UNAUTHENTICATED": encode(segment, NO_KEYS) + bytes(16),
            "FORGED": sound[:-1] + bytes([sound[-1] ^ 1]),
            "VERSION": b"\xff" + sound[1:],
            "UNKNOWN_STREAM": sound,
            "UNKNOWN_ORIGIN": encode(control(Kind.NAK, 2, 7, 1, 1, b""), KEYS),
            "OWN": encode(control(Kind.NAK, 1, 7, 1, 2, b""), KEYS),
            "BODY": encode(control(Kind.PROBE, 1, 0, 0, 1, b"x"), KEYS),
        }
        for packet in packets.values():
            stranger.sendto(packet, two.address)
        await until(lambda: len(two.counters.refused) >= len(packets))
        assert two.counters.refused == dict.fromkeys(packets, 1)


async def test_after_a_stall_what_has_arrived_is_taken_before_anything_is_asked_for() -> None:
    async with fabrics(1, 2, settings=ALONE) as (one, two):
        sink = Collected()
        origin = one.originate(7, 1)
        origin.add_receiver(2, 0)
        joined = two.join(1, 7, 1, sink, progress=START)
        origin.publish(b"first", 1)
        await until(lambda: len(sink.deliveries) == 1)
        asyncio.get_running_loop().remove_reader(two._udp.sock.fileno())
        await until(lambda: not two._soon)
        if two._timer is not None:
            two._timer.cancel()
        two._timer_at = -NEVER  # stalled: no timer is early enough to be started
        told = control(Kind.HEARTBEAT, 1, 7, 1, 1, Heartbeat(2, 0).encode())
        now = two.now()
        two._streams.receivers.receive(told, now)  # announces a second record, which it lacks
        two._streams.answers(now)
        origin.publish(b"second", 1)
        await until(lambda: bool(select.select([two._udp.sock], [], [], 0)[0]))
        await asyncio.sleep(0.05)  # the time of the first request passes
        assert two._streams.receivers.due(two.now())
        assert "NAK" not in joined.counters.sent
        two._work()
        assert sink.payloads == [b"first", b"second"]
        assert "NAK" not in joined.counters.sent


async def test_a_new_message_does_not_wait_for_what_the_next_turn_sends() -> None:
    async with fabrics(1, 2) as (one, two):
        origin = one.originate(7, 1)
        origin.add_receiver(2, 0)
        sink = Collected()
        two.join(1, 7, 1, sink, progress=START)
        origin.publish(b"first", 1)
        await until(lambda: len(sink.deliveries) == 1 and not one._soon)
        await asyncio.sleep(0.001)
        one._work_soon()
        before = one.counters.sent_packets
        origin.publish(b"second", 1)
        assert one.counters.sent_packets == before + 1
        await until(lambda: len(sink.deliveries) == 2)
        assert sink.payloads == [b"first", b"second"]


async def test_a_turn_of_the_loop_does_its_work_once() -> None:
    async with fabrics(1, 2, settings=ALONE) as (one, _):
        await until(lambda: not one._soon)
        before = one._worked_at
        one._on_readable(one._udp)
        one._on_timer()
        one._on_readable(one._udp)
        assert one._worked_at == before
        await asyncio.sleep(0)
        worked = one._worked_at
        assert worked > before
        await asyncio.sleep(0)
        assert one._worked_at == worked, "a second round of work in one turn"


async def test_what_is_put_off_after_lone_messages_is_done_without_others() -> None:
    async with fabrics(1, 2) as (one, two):
        origin = one.originate(7, 1)
        origin.add_receiver(2, 0)
        two.join(1, 7, 1, Collected(), progress=START)
        await until(lambda: two._worked_at > 0 and not two._soon)
        if two._timer is not None:
            two._timer.cancel()
        two._timer, two._timer_at = None, NEVER
        now = two._worked_at = two.now()
        assert two._work_later(now)
        assert not two._work_later(now + 1)
        await until(lambda: two._worked_at > now)
        assert two._work_later(two._worked_at - 3600), "the clock went back"


async def test_messages_that_come_alone_are_reported() -> None:
    async with fabrics(1, 2) as (one, two):
        sink = Collected()
        origin = one.originate(7, 1)
        origin.add_receiver(2, 0)
        two.join(1, 7, 1, sink, progress=START)
        for number in range(50):
            origin.publish(b"%d" % number, 1)
            await until(lambda number=number: len(sink.deliveries) > number)
        await until(lambda: origin.rows()[2].closed)
        assert origin.rows()[2].addressed == 50


async def test_streams_without_news_rest_and_wake() -> None:
    """Over sockets, with keys: two hosts that serve each other two streams come down to beats alone."""
    quick = replace(
        STREAM, rests=True, report_idle=0.1, heartbeat_longest=0.1, orphaned_after=0.5, silent_after=0.6
    )
    async with fabrics(1, 2, settings=FabricSettings(stream=quick, carriers=())) as (one, two):
        sinks = [Collected(), Collected()]
        ways = [(one, two, sinks[0]), (two, one, sinks[1])]
        origins = [here.originate(stream, 1, name="t") for here, _, _ in ways for stream in (7, 8)]
        for origin in origins:
            here, there, sink = ways[origin.key[0] - 1]
            origin.add_receiver(there.host, 0)
            there.join(here.host, origin.key[1], 1, sink, progress=START)
            origin.publish(b"first", 1)
        await until(lambda: all(peer.rests for origin in origins for peer in origin.sender.peers))
        await until(
            lambda: all(
                joined.receiver._reporting.rests for fabric in (one, two) for joined in fabric.joined()
            )
        )
        await until(
            lambda: all(origin.sender._heartbeat_at == NEVER for origin in origins)
        )  # the last is over
        sent = [dict(origin.counters.sent) for origin in origins]
        beats = two.counters.beats_received
        await until(lambda: two.counters.beats_received > beats + 8)  # longer than silence would be allowed
        assert [dict(origin.counters.sent) for origin in origins] == sent
        assert (one.counters.refused, two.counters.refused, one.counters.rests_broken) == ({}, {}, 0)
        origins[0].publish(b"second", 1)
        await until(lambda: len(sinks[0].deliveries) == 3)
        await until(lambda: all(peer.rests for origin in origins for peer in origin.sender.peers))
