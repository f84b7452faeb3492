"""The state of a session: messages for absent clients, wills, retained messages, shared subscriptions."""

from __future__ import annotations

import pytest
from tests.unit.mqtt.face import MemoryHost
from tests.unit.script import Like

from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import (
    Ack,
    Connect,
    Publish,
    Will,
)
from treecast.shims.mqtt.codec_properties import Properties

BOTH = pytest.mark.parametrize("version", [V311, V5])


# --- sessions that last


@BOTH
def test_a_session_that_lasts_gets_what_came_meanwhile(host: MemoryHost, version: int) -> None:
    lasting = {} if version == V311 else {"session_expiry": 100}
    sub = host.connected("s", version, clean=False, **lasting)
    sub.subscribe("t", qos=2)
    sub.leave()
    pub = host.connected("p")
    for qos in (0, 1, 2):
        pub.publish("t", b"%d" % qos, qos)
    again = host.client(version)
    assert again.connect("s", clean=False, **lasting).session_present
    got = again.publishes()
    assert [(p.payload, p.qos, p.duplicate) for p in got] == [(b"1", 1, False), (b"2", 2, False)]


def test_what_was_not_acknowledged_is_sent_again_under_its_id(host: MemoryHost) -> None:
    sub = host.connected("s", clean=False, session_expiry=100)
    sub.subscribe("t", qos=2)
    pub = host.connected("p")
    for qos in (1, 2, 2):
        pub.publish("t", b"%d" % qos, qos)
    one, two, three = sub.publishes()
    sub << Ack(codec.PUBREC, two.packet_id) >> Ack(codec.PUBREL, two.packet_id)
    sub.drop()
    host.connected("s", clean=False, session_expiry=100) >> [
        Publish(b"t", b"1", 1, False, True, one.packet_id),
        Ack(codec.PUBREL, two.packet_id),
        Publish(b"t", b"2", 2, False, True, three.packet_id),
    ]


def test_what_is_sent_again_keeps_to_the_window_of_the_new_connection(host: MemoryHost) -> None:
    sub = host.connected("s", clean=False, session_expiry=100)
    sub.subscribe("t", qos=2)
    pub = host.connected("p")
    for number in range(6):
        pub.publish("t", b"%d" % number, 1 + number % 2)
    ids = [one.packet_id for one in sub.publishes()]
    sub.drop()
    pub.publish("t", b"6", 1)  # waits behind them
    again = host.connected("s", clean=False, session_expiry=100, receive_maximum=2)
    pub.publish("t", b"7", 0)  # so does one that needs no window
    assert again.payloads() == [b"0", b"1"]
    again.ack(codec.PUBACK, ids[4])  # of the connection before: it is not sent again
    assert again.got() == []
    again.ack(codec.PUBACK, ids[0])
    (third,) = again.publishes()
    assert (third.payload, third.packet_id, third.duplicate) == (b"2", ids[2], True)
    again.drop()  # the rest is sent from its beginning
    last = host.connected("s", clean=False, session_expiry=100, receive_maximum=4)
    assert last.payloads() == [b"1", b"2", b"3", b"5"]
    last.ack(codec.PUBACK, ids[2])
    pub.publish("t", b"8", 0)
    assert last.payloads() == [b"6", b"8"]


def test_a_turn_sends_again_about_a_megabyte(host: MemoryHost) -> None:
    sub = host.connected("s", clean=False, session_expiry=100)
    sub.subscribe("t", qos=1)
    pub = host.connected("p")
    for _ in range(5):
        pub.publish("t", bytes(600_000), 1)
        assert len(sub.publishes()) == 1
    sub.drop()
    again = host.client()
    again.send(Connect(V5, "s", False, 0, None, None, None, Properties(session_expiry=100)))
    again.written = b"".join(again.session.output.take())
    assert 1_000_000 < len(again.written) < 1_700_000
    assert len(again.got()) == 6


def test_a_session_ends_when_its_time_has_passed(host: MemoryHost) -> None:
    host.connected("s", clean=False, session_expiry=10).drop()
    host.pass_time(9)
    assert len(host.sessions) == 1
    host.pass_time(2)
    assert len(host.sessions) == 0
    assert not host.client().connect("s", clean=False, session_expiry=10).session_present


def test_clean_start_forgets_the_session(host: MemoryHost) -> None:
    sub = host.connected("s", clean=False, session_expiry=100)
    sub.subscribe("t", qos=1)
    sub.drop()
    again = host.client()
    assert not again.connect("s", clean=True).session_present
    host.connected("p").publish("t", b"x", 1)
    again >> []
    assert host.hub.subscriptions == 0


def test_the_expiry_may_be_changed_when_leaving(host: MemoryHost) -> None:
    host.connected("s", clean=False, session_expiry=10).leave(session_expiry=100)
    host.pass_time(50)
    assert len(host.sessions) == 1
    client = host.connected("t")
    client.leave(session_expiry=100)
    assert "3.14.2.2.2" in client.session.output.failure


def test_a_message_expires_in_the_queue_and_counts_down(host: MemoryHost) -> None:
    sub = host.connected("s", clean=False, session_expiry=1000)
    sub.subscribe("t", qos=1)
    sub.drop()
    pub = host.connected("p")
    pub.publish("t", b"short", 1, message_expiry=5)
    pub.publish("t", b"long", 1, message_expiry=100)
    host.pass_time(20)
    (got,) = host.connected("s", clean=False, session_expiry=1000).publishes()
    assert (got.payload, got.properties.message_expiry) == (b"long", 80)
    assert host.counters.expired == 1


# --- wills


@BOTH
def test_a_will_is_published_for_who_goes_without_a_word(host: MemoryHost, version: int) -> None:
    sub = host.connected("s")
    sub.subscribe("w", qos=1)
    will = Will(b"w", b"gone", 1, True)
    host.connected("a", version, will=will).drop()
    sub >> Like(Publish, payload=b"gone", qos=1)
    host.connected("b", version, will=will).leave()
    sub >> []
    late = host.connected("late")
    late.subscribe("w")
    late >> Like(Publish, payload=b"gone", retain=True)


def test_a_will_may_be_asked_for_when_leaving(host: MemoryHost) -> None:
    sub = host.connected("s")
    sub.subscribe("w")
    host.connected("a", will=Will(b"w", b"gone")).leave(codec.DISCONNECT_WITH_WILL)
    assert sub.payloads() == [b"gone"]


def test_a_will_waits_for_its_delay(host: MemoryHost) -> None:
    sub = host.connected("s")
    sub.subscribe("w")
    will = Will(b"w", b"gone", properties=Properties(will_delay=10, content_type="x"))
    host.connected("a", will=will, clean=False, session_expiry=100).drop()
    host.pass_time(9)
    sub >> []
    host.connected("a", will=will, clean=False, session_expiry=100).drop()
    host.pass_time(9)
    sub >> []
    host.pass_time(2)
    sub >> Like(Publish, payload=b"gone", properties=Properties(content_type="x"))


def test_a_will_goes_out_when_the_session_ends_before_its_delay(host: MemoryHost) -> None:
    sub = host.connected("s")
    sub.subscribe("w")
    will = Will(b"w", b"gone", properties=Properties(will_delay=100))
    host.connected("a", will=will, clean=False, session_expiry=5).drop()
    host.pass_time(6)
    assert sub.payloads() == [b"gone"]
    host.connected("b", will=will).drop()
    assert sub.payloads() == [b"gone"]


def test_a_clean_start_ends_the_session_and_lets_the_will_go(host: MemoryHost) -> None:
    sub = host.connected("s")
    sub.subscribe("w")
    will = Will(b"w", b"gone", properties=Properties(will_delay=100))
    host.connected("a", will=will, clean=False, session_expiry=500).drop()
    host.connected("a", clean=True)
    assert sub.payloads() == [b"gone"]


# --- retained messages


@BOTH
def test_a_retained_message_comes_with_the_subscription(host: MemoryHost, version: int) -> None:
    host.connected("p").publish("a/b", b"kept", 1, retain=True)
    sub = host.connected("s", version)
    sub.subscribe("a/#", qos=1)
    sub >> Like(Publish, payload=b"kept", retain=True, qos=1)
    host.connected("p").publish("a/b", b"", retain=True)
    late = host.connected("l", version)
    late.subscribe("a/#")
    late >> []


def test_retain_handling(host: MemoryHost) -> None:
    host.connected("p").publish("t", b"kept", retain=True)
    sub = host.connected("s")
    for handling, times in ((2, 0), (1, 0), (0, 1), (0, 1), (1, 0)):
        sub.subscribe("t", retain_handling=handling)
        assert len(sub.publishes()) == times
    other = host.connected("o")
    other.subscribe("t", retain_handling=1)
    assert len(other.publishes()) == 1


def test_retain_as_published(host: MemoryHost) -> None:
    plain, marked, pub = host.connected("s"), host.connected("m"), host.connected("p")
    plain.subscribe("t")
    marked.subscribe("t", retain_as_published=True)
    pub.publish("t", b"x", retain=True)
    plain >> Like(Publish, retain=False)
    marked >> Like(Publish, retain=True)


def test_a_retained_message_expires(host: MemoryHost) -> None:
    host.connected("p").publish("t", b"kept", retain=True, message_expiry=10)
    host.pass_time(4)
    sub = host.connected("s")
    sub.subscribe("t")
    assert [p.properties.message_expiry for p in sub.publishes()] == [6]
    host.pass_time(7)
    sub.subscribe("t")
    sub >> []
    host.hub.sweep()
    assert host.hub.retained.count == 0


def test_retained_topics_are_bounded(make_host: type[MemoryHost]) -> None:
    host = make_host(hub_settings=PubSubSettings(max_retained=1))
    pub, sub = host.connected("p"), host.connected("s")
    pub.publish("a", b"1", retain=True)
    pub.publish("b", b"2", retain=True)
    pub.publish("a", b"3", retain=True)
    sub.subscribe("#")
    assert sub.payloads() == [b"3"]
    assert host.counters.retained_refused == 1


# --- shared subscriptions


def test_a_shared_subscription_gives_each_message_to_one_member(host: MemoryHost) -> None:
    members = [host.connected(f"m{number}") for number in range(3)]
    for member in members:
        member.subscribe("$share/g/t/#", qos=1)
    alone, pub = host.connected("alone"), host.connected("p")
    alone.subscribe("t/#")
    for number in range(30):
        pub.publish("t/x", b"%d" % number, number % 2)
    got = [member.payloads() for member in members]
    assert sorted(payload for part in got for payload in part) == sorted(b"%d" % n for n in range(30))
    assert [len(part) for part in got] == [10, 10, 10]
    assert len(alone.payloads()) == 30


def test_a_member_that_is_away_is_passed_over(host: MemoryHost) -> None:
    away = host.connected("away", clean=False, session_expiry=100)
    here, pub = host.connected("here"), host.connected("p")
    for member in (away, here):
        member.subscribe("$share/g/t", qos=1)
    away.drop()
    for number in range(4):
        pub.publish("t", b"%d" % number, 1)
    for one in here >> [Publish] * 4:
        here << Ack(codec.PUBACK, one.packet_id)
    here.leave()
    pub.publish("t", b"later", 1)
    back = host.connected("away", clean=False, session_expiry=100)
    assert back.payloads() == [b"later"]


def test_retained_messages_do_not_come_with_a_shared_subscription(host: MemoryHost) -> None:
    host.connected("p").publish("t", b"kept", retain=True)
    sub = host.connected("s")
    sub.subscribe("$share/g/t")
    sub >> []
