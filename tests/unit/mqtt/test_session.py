"""One host's sessions in memory, by MQTT's requirements: each test names its clause or section."""

from __future__ import annotations

import pytest
from tests.unit.mqtt.face import MemoryHost, ended
from tests.unit.script import Like

from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Ping,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
)
from treecast.shims.mqtt.codec_properties import Properties
from treecast.shims.mqtt.settings import MqttSettings

BOTH = pytest.mark.parametrize("version", [V311, V5])


# --- connecting


@BOTH
def test_a_client_connects_pings_and_leaves(host: MemoryHost, version: int) -> None:
    client = host.client(version)
    assert client.connect("a").reason == 0
    client << Ping(codec.PINGREQ) >> Ping(codec.PINGRESP)
    client.leave()
    assert client.session.output.closing
    assert len(host.sessions) == 0


def test_what_the_server_takes_is_said(host: MemoryHost) -> None:
    answer = host.client().connect("a")
    assert answer.properties.receive_maximum == host.settings.receive_maximum
    assert answer.properties.topic_alias_maximum == host.settings.topic_alias_maximum
    assert answer.properties.maximum_packet_size == host.settings.max_packet_bytes


def test_an_empty_client_id_is_filled_in(host: MemoryHost) -> None:
    one, two = host.client().connect(""), host.client().connect("")
    assert one.properties.assigned_client_id
    assert one.properties.assigned_client_id != two.properties.assigned_client_id


def test_a_lasting_session_of_version_311_needs_a_client_id(host: MemoryHost) -> None:
    client = host.client(V311)
    assert client.connect("", clean=False) == Connack(False, 2)  # [MQTT-3.1.3-8]
    assert client.session.output.closing


def test_another_protocol_version_is_refused_in_words_that_it_knows(host: MemoryHost) -> None:
    client = host.client(V311)
    client.send_bytes(bytes.fromhex("100d00064d514973647003 02 0000 000161".replace(" ", "")))
    assert client.got_bytes() == bytes.fromhex("20020001")
    assert client.session.output.closing


def test_an_unknown_authentication_method_is_refused(host: MemoryHost) -> None:
    assert host.client().connect("a", auth_method="SCRAM").reason == codec.BAD_AUTH_METHOD


@BOTH
def test_nothing_may_come_before_connect(host: MemoryHost, version: int) -> None:
    client = host.client(version)
    client.send(Ping(codec.PINGREQ))
    assert client.session.output.closing
    assert "[MQTT-3.1.0-1]" in client.session.output.failure


def test_a_second_connect_ends_the_connection(host: MemoryHost) -> None:
    client = host.connected("a")
    (last,) = client << Connect(V5, "a") >> Like(Disconnect, reason=codec.PROTOCOL_ERROR)
    assert "[MQTT-3.1.0-2]" in (last.properties.reason_string or "")


def test_the_same_client_id_takes_over(host: MemoryHost) -> None:
    first = host.connected("a", clean=False, session_expiry=100)
    first.subscribe("t", qos=1)
    second = host.client()
    answer = second.connect("a", clean=False, session_expiry=100)
    assert answer.session_present
    first >> Like(Disconnect, reason=codec.TAKEN_OVER)  # [MQTT-3.1.4-3]
    host.connected().publish("t", b"x")
    assert second.payloads() == [b"x"]
    first.drop()
    assert host.sessions.connected == 2


def test_the_keep_alive_is_waited_for_one_and_a_half_times(host: MemoryHost) -> None:
    client = host.connected("a", keep_alive=10)
    host.pass_time(14.9)
    assert not client.session.output.closing
    client << Ping(codec.PINGREQ) >> Ping(codec.PINGRESP)
    host.pass_time(14.9)
    assert not client.session.output.closing
    host.pass_time(0.2)
    client >> Like(Disconnect, reason=codec.KEEP_ALIVE_TIMEOUT)


def test_a_shorter_keep_alive_may_be_imposed(make_host: type[MemoryHost]) -> None:
    host = make_host(MqttSettings(max_keep_alive=60))
    client = host.client()
    assert client.connect("a", keep_alive=120).properties.server_keep_alive == 60
    assert host.client().connect("b", keep_alive=50).properties.server_keep_alive is None
    host.pass_time(91)
    assert client.session.output.closing


def test_who_never_connects_is_sent_away(host: MemoryHost) -> None:
    client = host.client()
    host.sessions.await_connect(client.session.connection, host.now)
    host.pass_time(host.settings.connect_seconds - 0.1)
    client.session.receive(b"\x10", host.now)  # a partial CONNECT does not count
    assert not client.session.output.closing
    host.pass_time(0.2)
    assert client.session.output.closing


def test_more_clients_than_may_be_are_refused(make_host: type[MemoryHost]) -> None:
    host = make_host(MqttSettings(max_connections=1))
    host.connected("a")
    assert host.client().connect("b").reason == codec.SERVER_BUSY
    assert host.client(V311).connect("c").reason == 3


def test_more_sessions_than_may_be_are_refused(make_host: type[MemoryHost]) -> None:
    host = make_host(MqttSettings(max_sessions=2))
    for name in ("a", "b"):
        host.connected(name, session_expiry=1000).drop()
    assert host.client().connect("c").reason == codec.QUOTA_EXCEEDED
    assert host.client(V311).connect("c").reason == 3
    assert host.client().connect("a", clean=False, session_expiry=1000).session_present
    host.client().connect("b")  # a clean start ends the former session
    assert host.client().connect("c").reason == codec.QUOTA_EXCEEDED


# --- publishing and subscribing


@pytest.mark.parametrize("publisher", [V311, V5])
@pytest.mark.parametrize("subscriber", [V311, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("asked", [0, 1, 2])
def test_messages_of_every_qos_arrive_once(
    host: MemoryHost, publisher: int, subscriber: int, qos: int, asked: int
) -> None:
    sub, pub = host.connected("s", subscriber), host.connected("p", publisher)
    assert sub.subscribe("a/+", qos=asked) == bytes([asked])
    answers = {0: [], 1: [Ack(codec.PUBACK, 5)], 2: [Ack(codec.PUBREC, 5)]}
    pub << Publish(b"a/b", b"x", qos, packet_id=5 if qos else 0) >> answers[qos]
    if qos == 2:
        pub << Ack(codec.PUBREL, 5) >> Ack(codec.PUBCOMP, 5)
    plain = {"topic": b"a/b", "payload": b"x", "retain": False, "duplicate": False}
    (got,) = sub >> Like(Publish, qos=min(qos, asked), **plain)
    if got.qos == 1:
        sub << Ack(codec.PUBACK, got.packet_id) >> []
    elif got.qos == 2:
        sub << Ack(codec.PUBREC, got.packet_id) >> Ack(codec.PUBREL, got.packet_id)
        sub << Ack(codec.PUBCOMP, got.packet_id) >> []
    assert not sub.state.inflight  # type: ignore[union-attr]


def test_a_qos_2_publish_that_comes_again_is_handed_over_once(host: MemoryHost) -> None:
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("t")
    publish, again = (Publish(b"t", b"x", 2, duplicate=twice, packet_id=5) for twice in (False, True))
    pub << [publish, publish, again] >> [Ack(codec.PUBREC, 5)] * 3
    sub >> Like(Publish, payload=b"x")
    pub << Ack(codec.PUBREL, 5) >> Ack(codec.PUBCOMP, 5)
    pub << Ack(codec.PUBREL, 5) >> Ack(codec.PUBCOMP, 5, codec.PACKET_ID_NOT_FOUND)
    pub << publish >> Ack(codec.PUBREC, 5)
    sub >> Like(Publish, payload=b"x")


def test_a_publish_that_nobody_wants_is_answered_so(host: MemoryHost) -> None:
    pub = host.connected("p")
    publish = Publish(b"t", b"x", 1, packet_id=5)
    pub << publish >> Ack(codec.PUBACK, 5, codec.NO_MATCHING_SUBSCRIBERS)
    host.connected("o", V311) << publish >> Ack(codec.PUBACK, 5)


@BOTH
def test_a_wildcard_in_a_topic_name_ends_the_connection(host: MemoryHost, version: int) -> None:
    pub = host.connected("p", version)
    pub.publish("a/#", b"x")
    last = ended(pub)
    assert "[MQTT-3.3.2-2]" in pub.session.output.failure
    assert (last is not None) == (version == V5)


def test_overlapping_subscriptions_give_one_message_with_all_identifiers(host: MemoryHost) -> None:
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("a/#", qos=0, identifier=1)
    sub.subscribe("a/+", qos=2, identifier=300)
    pub.publish("a/b", b"x", 2)
    (got,) = sub >> Like(Publish, qos=2)
    assert sorted(got.properties.subscription_ids) == [1, 300]


def test_no_local_leaves_out_the_clients_own(host: MemoryHost) -> None:
    one, two = host.connected("1"), host.connected("2")
    one.subscribe("t", no_local=True)
    two.subscribe("t", no_local=True)
    one.publish("t", b"x")
    assert (one.payloads(), two.payloads()) == ([], [b"x"])
    one.subscribe("#")  # this subscription is not no-local
    one.publish("t", b"y")
    assert (one.payloads(), two.payloads()) == ([b"y"], [b"y"])


def test_no_local_on_a_shared_subscription_is_an_error(host: MemoryHost) -> None:
    client = host.connected("a")
    client.send(Subscribe(1, (sub_request("$share/g/t", no_local=True),)))
    assert "[MQTT-3.8.3-4]" in client.session.output.failure


def sub_request(filter: str, **options: object):  # type: ignore[no-untyped-def]
    from treecast.shims.mqtt.codec_packets import FilterRequest

    return FilterRequest(filter.encode(), **options)  # type: ignore[arg-type]


@BOTH
def test_bad_filters_are_refused_one_by_one(host: MemoryHost, version: int) -> None:
    client = host.connected("a", version)
    reasons = client.subscribe("a/#/b", "fine", qos=1)
    assert reasons == bytes([0x8F if version == V5 else 0x80, 1])


@BOTH
@pytest.mark.parametrize(
    ("filter", "rule"),
    [
        ("", "MQTT-4.7.3-1"),
        ("$share/g/", "MQTT-4.8.2-2"),
        ("$share//a", "MQTT-4.8.2-1"),
        ("$share", "MQTT-4.8.2-1"),
    ],
)
def test_what_is_no_filter_ends_the_connection(
    host: MemoryHost, version: int, filter: str, rule: str
) -> None:
    client = host.connected("a", version)
    client.send(Subscribe(1, (sub_request("fine"), sub_request(filter))))
    last = ended(client)
    assert f"[{rule}]" in client.session.output.failure
    if version == V5:
        assert last is not None
        assert last.reason == (codec.MALFORMED if not filter else codec.PROTOCOL_ERROR)


@BOTH
def test_an_empty_filter_cannot_be_unsubscribed(host: MemoryHost, version: int) -> None:
    client = host.connected("a", version)
    client.send(Unsubscribe(1, (b"",)))
    assert client.session.output.closing
    assert "[MQTT-4.7.3-1]" in client.session.output.failure


# Malformed CONNECTs of version 5, and the reason in CONNACK.
BROKEN_CONNECTS = [
    pytest.param("10 0d 0004 4d515454 05 03 0000 00 0000", codec.MALFORMED, id="reserved flag"),
    pytest.param("10 0e 0004 4d515454 05 02 0000 00 0005 61", codec.MALFORMED, id="ends early"),
    pytest.param("10 0f 0004 4d515454 05 02 0000 00 0001 61 62", codec.MALFORMED, id="bytes left over"),
    pytest.param("10 0e 0004 4d515454 05 02 0000 00 0001 ff", codec.MALFORMED, id="no UTF-8"),
    pytest.param("10 0d 0004 4d515454 05 1a 0000 00 0000", codec.MALFORMED, id="QoS without will"),
    pytest.param(
        "10 10 0004 4d515454 05 02 0000 03 210000 0000", codec.PROTOCOL_ERROR, id="receive maximum 0"
    ),
    pytest.param("10 0f 0004 4d515454 05 02 0000 02 1902 0000", codec.PROTOCOL_ERROR, id="flag of 2"),
    pytest.param("10 0f 0004 4d515454 05 02 0000 02 7f00 0000", codec.MALFORMED, id="unknown property"),
    pytest.param(
        "10 12 0004 4d515454 05 06 0000 00 0000 00 0000 0000", codec.BAD_TOPIC, id="will without topic"
    ),
    pytest.param("11 0d 0004 4d515454 05 02 0000 00 0000", codec.MALFORMED, id="flags of the packet"),
    pytest.param("10 ffffff7f 0004 4d515454 05 02", codec.PACKET_TOO_LARGE, id="too large"),
]


@pytest.mark.parametrize(("data", "reason"), BROKEN_CONNECTS)
def test_a_broken_connect_of_version_5_is_answered(host: MemoryHost, data: str, reason: int) -> None:
    client = host.client()
    (answer,) = client << bytes.fromhex(data) >> Like(Connack, reason=reason, session_present=False)
    assert answer.properties.reason_string == client.session.output.failure
    assert client.session.output.closing


def test_a_broken_connect_in_pieces_is_answered_as_well(host: MemoryHost) -> None:
    client = host.client()
    for byte in bytes.fromhex("10 0d 0004 4d515454 05 03 0000 00 0000"):
        client << bytes([byte])
    client >> Like(Connack, reason=codec.MALFORMED)


@pytest.mark.parametrize("data", ["10 0c 0004 4d515454 04 03 0000 0000", "10 ffffffff", "c0 00", "00"])
def test_version_311_and_who_cannot_be_told_are_closed_without_a_word(host: MemoryHost, data: str) -> None:
    """[MQTT-3.1.4-1] of version 3.1.1: its CONNACK has no code for it."""
    client = host.client(V311)
    client << bytes.fromhex(data) >> []
    assert client.session.output.closing


def test_filters_may_be_forbidden(make_host: type[MemoryHost]) -> None:
    host = make_host(MqttSettings(refused_filters=("#", "secret/#")))
    assert host.connected("a").subscribe("#", "secret/#", "$share/g/#", "a") == b"\x80\x80\x80\x00"


def test_filters_are_bounded(make_host: type[MemoryHost]) -> None:
    host = make_host(MqttSettings(max_subscriptions=2, max_levels=3))
    client = host.connected("a")
    assert client.subscribe("a/b/c/d") == bytes([codec.BAD_FILTER])
    assert client.subscribe("a", "b", "c") == bytes([0, 0, codec.QUOTA_EXCEEDED])
    assert client.subscribe("a", qos=1) == b"\x01"


@BOTH
def test_unsubscribing(host: MemoryHost, version: int) -> None:
    sub, pub = host.connected("s", version), host.connected("p")
    sub.subscribe("a", "b")
    reasons = bytes([0, codec.NO_SUBSCRIPTION_EXISTED]) if version == V5 else b""
    sub << Unsubscribe(9, (b"a", b"never")) >> Suback(codec.UNSUBACK, 9, reasons)
    pub << [Publish(b"a", b"x"), Publish(b"b", b"y")]
    sub >> Like(Publish, payload=b"y")


def test_dollar_topics_are_hidden_from_leading_wildcards(host: MemoryHost) -> None:
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("#", "+/x")
    pub.publish("$other/x", b"hidden")
    assert sub.payloads() == []
    sub.subscribe("$other/#")
    pub.publish("$other/x", b"seen")
    assert sub.payloads() == [b"seen"]


def test_what_version_5_says_about_a_message_is_passed_on_in_order(host: MemoryHost) -> None:
    sub, old, pub = host.connected("s"), host.connected("o", V311), host.connected("p")
    sub.subscribe("t")
    old.subscribe("t")
    given = Properties(
        payload_format=1,
        content_type="text/plain",
        response_topic="answers",
        correlation_data=b"\x01\x02",
        user=(("b", "1"), ("a", "2"), ("b", "3")),
    )
    pub.send(Publish(b"t", b"text", properties=given))
    (got,) = sub.publishes()
    assert got.properties == given
    assert old.payloads() == [b"text"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_payload_that_is_no_text_though_it_is_said_to_be(host: MemoryHost, qos: int) -> None:
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("t")
    packet_id = pub.publish("t", b"\xff", qos, payload_format=1)
    if qos:
        pub >> Like(Ack, packet_id=packet_id, reason=codec.BAD_PAYLOAD_FORMAT)
    else:
        pub >> Like(Disconnect, reason=codec.BAD_PAYLOAD_FORMAT)
    sub >> []


# --- bad input that must not affect others


def test_an_authentication_packet_out_of_place(host: MemoryHost) -> None:
    client = host.connected("a")
    client << Auth(0x18, Properties(auth_method="m")) >> Like(Disconnect, reason=codec.PROTOCOL_ERROR)


@pytest.mark.parametrize("kind", [codec.PUBACK, codec.PUBREC, codec.PUBCOMP])
def test_answers_to_what_was_never_asked(host: MemoryHost, kind: int) -> None:
    client = host.connected("a")
    expected = [Ack(codec.PUBREL, 77, codec.PACKET_ID_NOT_FOUND)] if kind == codec.PUBREC else []
    client << Ack(kind, 77) >> expected
    assert not client.session.output.closing


def test_a_client_of_another_protocol_is_named(host: MemoryHost) -> None:
    client = host.client()
    client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert client.session.output.failure == "the client speaks HTTP"


def test_nothing_is_done_after_the_end(host: MemoryHost) -> None:
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("t")
    publish = Publish(b"t", b"x")
    pub << [publish, Disconnect(), publish] << publish
    sub >> Like(Publish, payload=b"x")


# --- the server's topics about itself


def test_sys_topics_are_published_retained_and_kept_from_clients(host: MemoryHost) -> None:
    from treecast.middleware.model.counters import FaceCounters
    from treecast.shims.mqtt import sys_topics

    sub, everything = host.connected("s"), host.connected("e")
    sub.subscribe("$SYS/broker/clients/#")
    everything.subscribe("#")
    sys_topics.publish(host.hub, sys_topics.values(host.sessions, FaceCounters(), 12.3))
    got = {p.topic.decode().removeprefix(sys_topics.PREFIX): p.payload for p in sub.publishes()}
    assert got["clients/connected"] == b"2"
    everything >> []
    late = host.connected("l")
    late.subscribe("$SYS/broker/uptime")
    assert [(p.payload, p.retain) for p in late.publishes()] == [(b"12 seconds", True)]
    late.publish("$SYS/broker/uptime", b"0 seconds")
    assert "server's own" in late.session.output.failure
    other = host.connected("o")
    other.publish("$SYS/broker/uptime", b"0 seconds")
    assert "server's own" in other.session.output.failure
    assert host.client().connect("w", will=Will(b"$SYS/x", b"")).reason == codec.BAD_TOPIC


@pytest.mark.parametrize("version", [codec.V311, codec.V5])
def test_bridges_publish_their_state_below_sys(host: MemoryHost, version: int) -> None:
    state = b"$SYS/broker/connection/far.name/state"
    bridge = host.client(version)
    assert bridge.connect("bridge", will=Will(state, b"0", 1, True)).reason == 0
    bridge.publish(state.decode(), b"1", qos=1, retain=True)
    sub = host.connected("s")
    sub.subscribe("$SYS/broker/connection/#")
    sub >> Like(Publish, topic=state, payload=b"1", retain=True)
    bridge.drop()
    sub >> Like(Publish, topic=state, payload=b"0")


def test_a_bridge_of_version_3_gets_retained_messages_as_such_and_not_its_own(host: MemoryHost) -> None:
    bridge, other = host.client(codec.V311), host.connected("other")
    bridge << Connect(codec.V311, "bridge", bridge=True) >> Connack(False, 0)
    bridge.subscribe("#")
    bridge.publish("a", b"its own")
    other.publish("a", b"retained", retain=True)
    other.publish("a", b"not")
    assert [(p.payload, p.retain) for p in bridge.publishes()] == [(b"retained", True), (b"not", False)]
    assert bridge.subscribe("$share/group/b") == b"\0"
