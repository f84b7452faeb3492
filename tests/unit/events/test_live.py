"""Messages published at one host reach the subscribers at others, each once and in order, and no others."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.events.world import STREAM, Client, TestHost, World, until
from tests.unit.fabric.edges import lose

from treecast.middleware.broker.pubsub import Message
from treecast.middleware.model.wishes import Wish
from treecast.middleware.relay.events.ports import EventSettings


async def test_a_publish_reaches_those_who_want_it_at_other_hosts(world: World) -> None:
    a, b, c = await world.start(1, 2, 3)
    at_b, at_c = b.client(), c.client()
    await at_b.subscribe("sport/+")
    await at_c.subscribe("#")
    assert a.publish("sport/tennis", b"1", 1) == 2
    assert a.publish("news", b"2") == 1
    assert a.publish("$own/x", b"3") == 0
    await until(lambda: len(at_c.got) == 2 and at_b.got)
    assert at_b.got == [("sport/tennis", b"1", 1)]
    assert sorted(at_c.got) == [("news", b"2", 0), ("sport/tennis", b"1", 1)]  # order holds per topic
    assert b.counters.messages_received == 1  # messages that no client there wants are not sent


async def test_what_is_said_of_a_message_travels_with_it(world: World) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    properties = b"\x01\x01\x03\x00\x04text&\x00\x01k\x00\x01v"
    a.publish("t", b"x", 2, properties=properties, retain=True, expires_at=a.hub.clock.wall + 60)
    await until(lambda: client.got)
    message = client.messages[0]
    assert (message.qos, message.retain, message.properties) == (2, True, properties)
    assert message.expires_at == a.hub.clock.wall + 60
    kept = b.hub.retained.get(b"t")
    assert kept is not None
    assert kept.payload == b"x"


async def test_what_came_from_a_host_goes_to_no_other(world: World) -> None:
    hosts = await world.start(1, 2, 3)
    clients = [host.client() for host in hosts]
    for client in clients:
        await client.subscribe("t/#")
    for number, host in enumerate(hosts):
        host.publish("t/x", b"%d" % number, 1)
    await until(lambda: all(len(client.got) == 3 for client in clients))
    for host in hosts:
        host.publish("t/end", b"end")
    await until(lambda: all(client.payloads.count(b"end") == 3 for client in clients))
    for client in clients:
        assert sorted(client.payloads) == [b"0", b"1", b"2", b"end", b"end", b"end"]


async def test_a_subscription_is_confirmed_when_all_hosts_know_it(world: World) -> None:
    hosts = await world.start(1, 2, 3)
    for number in range(20):
        client = hosts[number % 3].client()
        await client.subscribe(f"t/{number}")
        for host in hosts:
            host.publish(f"t/{number}", b"%d" % host.number, 1)
        await until(lambda client=client: len(client.got) == 3)


async def test_expired_on_the_way_is_not_handed_over(world: World) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    a.publish("t", b"late", 1, expires_at=a.hub.clock.wall - 1)
    a.publish("t", b"on time", 1)
    await until(lambda: client.got)
    assert client.payloads == [b"on time"]
    assert b.hub.counters.expired == 1


async def test_large_messages_and_many_in_one_turn_keep_their_order(world: World) -> None:
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    sent = [bytes([n % 256]) * (300_000 if n % 50 == 0 else n) for n in range(200)]
    for number, payload in enumerate(sent):
        a.publish("t", payload, number % 3)
    await until(lambda: len(client.got) == len(sent))
    assert client.payloads == sent


async def test_what_is_missing_is_waited_for_however_long_the_origin_is_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publishers of these messages have their acknowledgements, and the origin still owes them."""
    quick = replace(STREAM, orphaned_after=0.6, heartbeat_longest=0.25, give_up_after=0.1)
    monkeypatch.setattr("tests.unit.events.world.STREAM", quick)
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    link = lose(a.fabric, 1, 0.0)
    a.publish("t", b"first", 1)
    await until(lambda: client.got)
    assert b.events is not None
    (received,) = b.events.receiving._streams.values()
    receiver, sent = received.joined.receiver, [b"first"]
    while not len(receiver._buffer.gaps):
        link.loss = 0.5
        sent.append(b"%d" % len(sent))
        a.publish("t", sent[-1], 1)
        await asyncio.sleep(0.001)
        if len(receiver._buffer.gaps):
            link.loss = 1.0
            await asyncio.sleep(0.05)  # a repair may be on its way
    await until(lambda: b.fabric.now() > receiver._orphaned_since + 4 * quick.give_up_after)
    link.loss = 0.0
    await until(lambda: len(client.got) >= len(sent))
    assert client.payloads == sent


async def test_order_holds_while_interest_changes(world: World) -> None:
    """A topic moves between the streams of {b}, {c} and {b, c} repeatedly, with loss."""
    world.loss = 0.02
    a, b, c = await world.start(1, 2, 3)
    always = {2: b.client(), 3: c.client()}
    fickle = {2: b.client(), 3: c.client()}
    await always[2].subscribe("t/0", "t/1", "x")
    await always[3].subscribe("t/1", "x")
    rng, sent = random.Random(5), 0
    wants = dict.fromkeys(fickle, False)
    for _ in range(60):
        for _ in range(rng.randrange(12)):
            a.publish(f"t/{rng.randrange(3)}", b"%d" % sent, rng.randrange(3))
            sent += 1
        number = rng.choice([2, 3])
        if wants[number]:
            fickle[number].unsubscribe("t/+")
        else:
            await fickle[number].subscribe("t/+")
        wants[number] = not wants[number]
    a.publish("x", b"end", 1)
    a.publish("t/0", b"end", 1)
    a.publish("t/1", b"end", 1)
    await until(lambda: all(client.payloads.count(b"end") >= 2 for client in always.values()))
    await until(lambda: always[2].payloads.count(b"end") == 3)
    assert len(a.streams) >= 3
    for client in (*always.values(), *fickle.values()):
        for topic in ("t/0", "t/1", "t/2"):
            numbers = [int(payload) for name, payload, _ in client.got if name == topic and payload != b"end"]
            assert numbers == sorted(set(numbers))


async def test_beyond_so_many_streams_messages_go_to_more_hosts_than_want_them(world: World) -> None:
    world.settings = EventSettings(most_streams=1, tick=0.02, open_wait=5.0)
    a, b, c = await world.start(1, 2, 3)
    at_b, at_c = b.client(), c.client()
    await at_b.subscribe("b", "both")
    await at_c.subscribe("c", "both")
    for number in range(30):
        a.publish(("b", "c", "both")[number % 3], b"%d" % number, 1)
    await until(lambda: len(at_b.got) == 20 and len(at_c.got) == 20)
    for client, left_out in ((at_b, 1), (at_c, 0)):
        for topic in {topic for topic, _, _ in client.got}:
            numbers = [int(payload) for name, payload, _ in client.got if name == topic]
            assert numbers == sorted(numbers)
        assert {int(payload) for payload in client.payloads} == {n for n in range(30) if n % 3 != left_out}
    assert len(a.streams) == 2


async def test_a_stream_that_is_not_used_ends_at_both_ends(world: World) -> None:
    world.settings = EventSettings(idle=0.1, tick=0.02, over=0.1, open_wait=5.0)
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    a.publish("t", b"1", 1)
    await until(lambda: client.got)
    assert b.events is not None
    await until(lambda: not a.streams and not b.events.receiving._streams)
    assert not [record for record in a.journal.records.values() if not record.of_client]
    a.publish("t", b"2", 1)
    await until(lambda: client.payloads == [b"1", b"2"])


async def test_a_host_without_the_face_is_left_out(world: World) -> None:
    world.settings = EventSettings(refusals=2, retry=0.01, tick=0.02, open_wait=5.0)
    a, b = await world.start(1, 2)
    (c,) = await world.start(3, share=False)
    c.interest.want(Wish(("t",)))  # as for a reader of a Kafka topic
    c.interest.release()
    client = b.client()
    await client.subscribe("t")
    await until(lambda: sorted(a.interest.hosts_for(("t",))) == [2, 3])
    a.publish("t", b"1", 1)
    await until(lambda: client.payloads == [b"1"])
    assert a.events is not None
    remotes = a.events.remotes
    await until(lambda: remotes[3].deaf)
    a.publish("t", b"2", 1)
    await until(lambda: client.payloads == [b"1", b"2"])


async def test_messages_that_nobody_else_wants_make_no_stream(world: World) -> None:
    a, _ = await world.start(1, 2)
    local = a.client()
    await local.subscribe("t")
    a.publish("t", b"1", 1)
    a.end_turn()
    assert local.payloads == [b"1"]
    assert a.streams == []


async def a_stream_that_nobody_opens(world: World) -> tuple[TestHost, TestHost, Client, Any]:
    """`b` does not answer a's request to open the stream. Returns the removed handler as well."""
    world.settings = EventSettings(queue_bytes=1000, open_wait=60.0, retry=0.05, tick=0.02, batch_bytes=100)
    a, b = await world.start(1, 2)
    client = b.client()
    await client.subscribe("t")
    assert b.events is not None
    return a, b, client, b.methods._entries.pop(120)


async def test_a_message_that_may_be_lost_waits_only_where_there_is_room(world: World) -> None:
    """A stream that cannot be sent queues `queue_bytes`; further messages are dropped and counted."""
    a, b, client, entry = await a_stream_that_nobody_opens(world)
    for number in range(20):
        a.publish("t", b"%2d" % number + bytes(98), 0)
        a.end_turn()
    assert a.counters.dropped > 0
    b.methods._entries[120] = entry
    await until(lambda: len(client.got) == 20 - a.counters.dropped)
    assert [p[:2] for p in client.payloads] == [b"%2d" % n for n in range(20 - a.counters.dropped)]


async def test_what_is_promised_is_not_dropped_but_holds_its_publishers_back(world: World) -> None:
    a, b, client, entry = await a_stream_that_nobody_opens(world)
    assert a.events is not None
    for number in range(20):
        a.publish("t", b"%2d" % number + bytes(98), 1)
        a.end_turn()
    assert a.counters.dropped == 0
    assert a.events.sending.congested
    b.methods._entries[120] = entry
    await until(lambda: len(client.got) == 20)
    assert [p[:2] for p in client.payloads] == [b"%2d" % n for n in range(20)]
    await until(lambda: not a.events.sending.congested)
    assert isinstance(client.messages[0], Message)
