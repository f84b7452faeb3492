"""Durable state: sessions, their undelivered messages, QoS 2 in both directions, retained messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.mqtt.face import Client, MemoryHost

from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V311
from treecast.shims.mqtt.codec_packets import Ack, Publish, Will
from treecast.shims.mqtt.codec_properties import Properties


def lasting(host: MemoryHost, name: str) -> Client:
    return host.connected(name, clean=False, session_expiry=1000)


def test_subscriptions_and_the_queue_are_there_after_a_kill(durable: MemoryHost) -> None:
    sub = lasting(durable, "s")
    sub.subscribe("a/#", qos=2, identifier=7)
    sub.drop()
    pub = durable.connected("p")
    for qos in (0, 1, 2):
        pub.publish("a/b", b"%d" % qos, qos, user=(("k", "v"),))
    pub.got()
    durable.crash()
    again = durable.client()
    assert again.connect("s", clean=False, session_expiry=1000).session_present
    got = again.publishes()
    assert [(p.payload, p.qos) for p in got] == [(b"1", 1), (b"2", 2)]
    assert got[0].properties.user == (("k", "v"),)
    assert got[0].properties.subscription_ids == (7,)
    durable.connected("q").publish("a/c", b"new", 1)
    assert [(p.payload, p.properties.subscription_ids) for p in again.publishes()] == [(b"new", (7,))]


def test_what_was_acknowledged_does_not_come_again(durable: MemoryHost) -> None:
    sub = lasting(durable, "s")
    sub.subscribe("t", qos=2)
    pub = durable.connected("p")
    for number in range(6):
        pub.publish("t", b"%d" % number, 1 + number % 2)
    for packet in sub.publishes()[:4]:
        if packet.qos == 1:
            sub.ack(codec.PUBACK, packet.packet_id)
        else:
            sub.ack(codec.PUBREC, packet.packet_id)
            sub.ack(codec.PUBCOMP, packet.packet_id)
    durable.crash()
    assert lasting(durable, "s").payloads() == [b"5", b"4"]  # messages of QoS 2 in flight come first


def test_qos_2_towards_the_client_keeps_its_ids(durable: MemoryHost) -> None:
    sub = lasting(durable, "s")
    sub.subscribe("t", qos=2)
    pub = durable.connected("p")
    for number in range(3):
        pub.publish("t", b"%d" % number, 2)
    one, two, three = sub.publishes()
    sub.ack(codec.PUBREC, one.packet_id)
    sub.got()
    sub.ack(codec.PUBREC, two.packet_id)
    sub.ack(codec.PUBCOMP, two.packet_id)
    durable.crash()
    again = lasting(durable, "s")
    assert again.got() == [
        Ack(codec.PUBREL, one.packet_id),
        Publish(b"t", b"2", 2, False, True, three.packet_id),
    ]
    again.ack(codec.PUBCOMP, one.packet_id)
    again.ack(codec.PUBREC, three.packet_id)
    durable.crash()
    assert lasting(durable, "s").got() == [Ack(codec.PUBREL, three.packet_id)]


def test_qos_2_from_the_client_is_handed_over_once(durable: MemoryHost) -> None:
    sub, pub = lasting(durable, "s"), lasting(durable, "p")
    sub.subscribe("t", qos=1)
    sub.drop()
    pub.send(Publish(b"t", b"x", 2, packet_id=9))
    pub.got()
    durable.crash()
    pub = lasting(durable, "p")
    pub << Publish(b"t", b"x", 2, False, True, 9) >> Ack(codec.PUBREC, 9)
    pub << Ack(codec.PUBREL, 9) >> Ack(codec.PUBCOMP, 9)
    durable.crash()
    assert lasting(durable, "s").payloads() == [b"x"]
    pub = lasting(durable, "p")
    pub << Ack(codec.PUBREL, 9) >> Ack(codec.PUBCOMP, 9, codec.PACKET_ID_NOT_FOUND)


def test_retained_messages_are_there_after_a_kill(durable: MemoryHost) -> None:
    pub = durable.connected("p")
    pub.publish("a", b"first", 1, retain=True)
    pub.publish("a", b"second", 1, retain=True)
    pub.publish("b", b"gone", 1, retain=True)
    pub.publish("b", b"", 1, retain=True)
    durable.crash()
    sub = durable.connected("s")
    sub.subscribe("#", qos=1)
    assert [(p.payload, p.retain, p.qos) for p in sub.publishes()] == [(b"second", True, 1)]


def test_sessions_that_end_with_their_connection_leave_nothing(durable: MemoryHost) -> None:
    sub, pub = durable.connected("s"), durable.connected("p", V311)
    sub.subscribe("t", qos=2)
    for qos in (0, 1, 2):
        pub.publish("t", b"x", qos)
    durable.end_turn()
    assert durable.hub.journal is not None
    assert durable.hub.journal.size == 0


def test_sessions_end_in_their_time_also_while_the_process_is_away(durable: MemoryHost) -> None:
    durable.connected("short", clean=False, session_expiry=10).drop()
    durable.connected("long", clean=False, session_expiry=1000).drop()
    durable.connected("here", clean=False, session_expiry=10)
    durable.now += 20
    durable.crash()
    assert {state.client_id for state in durable.sessions.states()} == {"long", "here"}
    durable.pass_time(11)
    assert {state.client_id for state in durable.sessions.states()} == {"long"}


def test_a_session_that_was_ended_stays_ended(durable: MemoryHost) -> None:
    sub = lasting(durable, "s")
    sub.subscribe("t", qos=1)
    sub.drop()
    durable.connected("p").publish("t", b"x", 1)
    durable.connected("s", clean=True).leave()
    durable.crash()
    assert len(durable.sessions) == 0
    assert not durable.client().connect("s", clean=False, session_expiry=1).session_present


def test_unsubscribing_lasts(durable: MemoryHost) -> None:
    from treecast.shims.mqtt.codec_packets import Unsubscribe

    sub = lasting(durable, "s")
    sub.subscribe("a", "$share/g/b", qos=1)
    sub.send(Unsubscribe(5, (b"a",)))
    durable.crash()
    sub = lasting(durable, "s")
    pub = durable.connected("p")
    pub.publish("a", b"1", 1)
    pub.publish("b", b"2", 1)
    assert sub.payloads() == [b"2"]


# --- wills are session state


def watched(host: MemoryHost) -> Client:
    sub = lasting(host, "watcher")
    sub.subscribe("w", qos=1)
    return sub


def will(delay: int = 0, **properties: object) -> Will:
    given = Properties(will_delay=delay, **properties)  # type: ignore[arg-type]
    return Will(b"w", b"gone", 1, True, given)


def test_a_will_whose_delay_runs_outlives_a_kill(durable: MemoryHost) -> None:
    watched(durable)
    asked = will(10, content_type="x", message_expiry=100)
    durable.connected("a", will=asked, clean=False, session_expiry=1000).drop()
    durable.pass_time(4)
    durable.crash()
    watcher = lasting(durable, "watcher")
    durable.pass_time(5)
    assert watcher.payloads() == []
    durable.pass_time(1)
    (sent,) = watcher.publishes()
    assert (sent.payload, sent.qos, sent.properties.content_type) == (b"gone", 1, "x")
    assert sent.properties.message_expiry == 100
    late = durable.connected("late")
    late.subscribe("w", qos=1)
    assert late.payloads() == [b"gone"], "the will was published as retained"
    watcher.ack(codec.PUBACK, sent.packet_id)
    durable.crash()
    durable.pass_time(100)
    assert lasting(durable, "watcher").payloads() == [], "the will is published once"


def test_a_will_whose_delay_ends_while_the_process_is_away_goes_out_at_its_start(durable: MemoryHost) -> None:
    watched(durable)
    durable.connected("a", will=will(10), clean=False, session_expiry=1000).drop()
    durable.end_turn()
    durable.now += 20
    durable.crash()
    assert lasting(durable, "watcher").payloads() == [b"gone"]


@pytest.mark.parametrize("version", [V311, codec.V5])
def test_the_will_of_a_client_that_was_connected_outlives_a_kill(durable: MemoryHost, version: int) -> None:
    watched(durable)
    asked = Will(b"w", b"gone", 1)
    durable.connected("a", version, will=asked, clean=False, session_expiry=1000)
    durable.crash()
    assert lasting(durable, "watcher").payloads() == [b"gone"]


def test_its_delay_runs_from_the_restart(durable: MemoryHost) -> None:
    """The time of the disconnect is unknown, and the client may be back in time."""
    watched(durable)
    for name in ("back", "gone"):
        durable.connected(name, will=will(10), clean=False, session_expiry=1000)
    durable.now += 100
    durable.crash()
    watcher = lasting(durable, "watcher")
    durable.pass_time(9)
    durable.connected("back", clean=False, session_expiry=1000)
    assert watcher.payloads() == []
    durable.pass_time(10)
    assert watcher.payloads() == [b"gone"]


def test_a_removed_will_stays_removed_over_a_kill(durable: MemoryHost) -> None:
    """Its client left, came back without one, or its session ended, which published it."""
    watched(durable)
    durable.connected("left", will=will(), clean=False, session_expiry=1000).leave()
    durable.connected("back", will=will(), clean=False, session_expiry=1000).drop()
    durable.connected("back", clean=False, session_expiry=1000)
    durable.connected("ended", will=will(50), clean=False, session_expiry=1000).drop()
    durable.connected("ended", clean=True).leave()
    assert len(lasting(durable, "watcher").payloads()) == 2
    durable.crash()
    durable.pass_time(100)
    assert len(lasting(durable, "watcher").payloads()) == 2, "the two from before, which are not acknowledged"


def test_a_will_is_kept_when_segments_go(tmp_path: Path) -> None:
    host = MemoryHost(hub_settings=PubSubSettings(segment_bytes=2048), data=tmp_path / "pubsub")
    watched(host)
    host.connected("a", will=will(), clean=False, session_expiry=1000)
    busy = lasting(host, "busy")
    busy.subscribe("t", qos=1)
    for number in range(200):
        host.connected("p").publish("t", b"%d" % number, 1)
        for packet in busy.publishes():
            busy.ack(codec.PUBACK, packet.packet_id)
    host.crash()
    assert lasting(host, "watcher").payloads() == [b"gone"]


# --- DUP


def test_what_was_never_sent_is_no_duplicate_after_a_restart(durable: MemoryHost) -> None:
    """[MQTT-3.3.1-3]: messages that waited for an absent client, or for room in its window."""
    away, here = lasting(durable, "away"), durable.client()
    here.connect("here", clean=False, session_expiry=1000, receive_maximum=2)
    for sub in (away, here):
        sub.subscribe("t", qos=1)
    away.drop()
    pub = durable.connected("p")
    for number in range(4):
        pub.publish("t", b"%d" % number, 1)
    assert here.payloads() == [b"0", b"1"]
    for _ in range(2):
        durable.crash()
    got = lasting(durable, "away").publishes()
    assert [(p.payload, p.duplicate) for p in got] == [(b"%d" % n, False) for n in range(4)]
    got = lasting(durable, "here").publishes()
    assert [(p.payload, p.duplicate) for p in got] == [
        (b"0", True),
        (b"1", True),
        (b"2", False),
        (b"3", False),
    ]
    durable.crash()
    for name in ("away", "here"):
        assert [p.duplicate for p in lasting(durable, name).publishes()] == [True] * 4


def test_whether_it_was_sent_is_kept_when_segments_go(tmp_path: Path) -> None:
    host = MemoryHost(hub_settings=PubSubSettings(segment_bytes=2048), data=tmp_path / "pubsub")
    for name in ("sent", "waits", "busy"):
        lasting(host, name).subscribe("rare" if name != "busy" else "t", qos=1)
    host.connected("p").publish("rare", b"x", 1)
    lasting(host, "waits").drop()
    busy = lasting(host, "busy")
    for number in range(200):
        host.connected("p").publish("t", b"%d" % number, 1)
        for packet in busy.publishes():
            busy.ack(codec.PUBACK, packet.packet_id)
    host.crash()
    assert host.hub.journal is not None
    assert len(host.hub.journal.log.segments) < 10
    assert [(p.payload, p.duplicate) for p in lasting(host, "sent").publishes()] == [(b"x", True)]


@pytest.mark.parametrize("seed", range(4))
def test_many_kills_amid_a_journal_of_small_segments(tmp_path: Path, seed: int) -> None:
    """Segments roll, and old ones are dropped after a move of their last messages: no loss, no QoS 2
    duplicate.
    """
    import random

    rng = random.Random(seed)
    host = MemoryHost(hub_settings=PubSubSettings(segment_bytes=4096), data=tmp_path / "pubsub")
    owed: list[bytes] = []
    lasting(host, "keeper").subscribe("rare", qos=1)
    host.connected("once").publish("rare", b"kept", 1)  # never acknowledged, so it keeps the first segment
    sub = lasting(host, "s")
    sub.subscribe("t", qos=2)
    for number in range(600):
        pub = host.connected("p")
        payload = b"%d" % number + b"." * rng.randrange(60)
        pub.publish("t", payload, rng.choice((1, 2)))
        assert pub.got()
        owed.append(payload)
        for packet in sub.got():
            if isinstance(packet, Publish) and rng.random() < 0.97:
                settle(sub, packet, owed)
            elif isinstance(packet, Ack):
                sub.ack(codec.PUBCOMP, packet.packet_id)
        if rng.random() < 0.03:
            host.crash()
            sub = lasting(host, "s")
    host.crash()
    assert host.hub.journal is not None
    assert len(host.hub.journal.log.segments) < 20
    rest = [packet for packet in lasting(host, "s").got() if isinstance(packet, Publish)]
    assert sorted(packet.payload for packet in rest) == sorted(owed)
    assert lasting(host, "keeper").payloads() == [b"kept"]


def settle(sub: Client, packet: Publish, owed: list[bytes]) -> None:
    """Acknowledges. A QoS 2 message belongs to the client from PUBREC on, and must never come again."""
    if packet.qos == 1:
        sub.ack(codec.PUBACK, packet.packet_id)
        if packet.payload in owed:
            owed.remove(packet.payload)
    else:
        owed.remove(packet.payload)
        sub.ack(codec.PUBREC, packet.packet_id)


def test_a_turn_that_was_not_stored_was_not_acknowledged(durable: MemoryHost) -> None:
    sub = lasting(durable, "s")
    sub.subscribe("t", qos=1)
    sub.drop()
    pub = durable.connected("p")
    durable.end_turn()
    pub.publish("t", b"x", 1)  # the process dies before the turn's end: no PUBACK was sent
    assert pub.written == b""
    durable.crash(store=False)
    assert lasting(durable, "s").payloads() == []
