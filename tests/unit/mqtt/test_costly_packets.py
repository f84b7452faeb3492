"""Packets that cost more to serve than to send: bounds of one packet, and passes of the loop for the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.moving_loop import Loop
from tests.unit.mqtt.face import Client, MemoryHost, ended
from tests.unit.script import Like

from treecast.middleware.model.budget import WorkBudget
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311, MqttError
from treecast.shims.mqtt.codec_packets import (
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Ping,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
    encode,
)
from treecast.shims.mqtt.codec_properties import Properties
from treecast.shims.mqtt.codec_read import (
    MAX_FILTERS,
    MAX_USER_PROPERTIES,
    Reader,
    user_pairs,
    user_properties_end,
)
from treecast.shims.mqtt.settings import MqttSettings

BOTH = pytest.mark.parametrize("version", [V311, V5])
ONE = b"\x26\0\0\0\0"


# --- user properties


def one_by_one(data: bytes) -> list[tuple[str, str]] | None:
    """The plain reference: reads property after property; None if one is malformed."""
    reader, pairs = Reader(data, 0, len(data)), []
    try:
        while reader.left and data[reader.position] == 0x26:
            reader.byte()
            pairs.append((reader.text(), reader.text()))
    except MqttError:
        return None
    return pairs


texts = st.one_of(
    st.text(max_size=6).map(str.encode),
    st.binary(max_size=4),
    st.sampled_from([b"", b"\0", b"a\0b", b"\xc3", b"\xa9", b"x" * 200]),
)
rows = st.lists(st.tuples(texts, texts), max_size=5).map(
    lambda row: b"".join(
        b"\x26" + len(name).to_bytes(2, "big") + name + len(text).to_bytes(2, "big") + text
        for name, text in row
    )
)


@given(rows, st.sampled_from([b"", b"\x01\x01", b"\x26", b"\x26\0\1", b"\x26\0\5ab"]))
def test_a_row_of_user_properties_is_read_as_one_after_the_other(row: bytes, rest: bytes) -> None:
    data, pairs = row + rest, one_by_one(row + rest)
    try:
        end = user_properties_end(data, 0, len(data))
    except MqttError:
        assert pairs is None
        return
    assert user_pairs(data, 0, end) == pairs
    assert end == len(data) or data[end] != 0x26


def test_user_properties_are_bounded() -> None:
    most = ONE * MAX_USER_PROPERTIES
    assert user_properties_end(most, 0, len(most)) == len(most)
    with pytest.raises(MqttError):
        user_properties_end(most + ONE, 0, len(most) + len(ONE))


def many() -> Properties:
    return Properties(user=(("", ""),) * (MAX_USER_PROPERTIES + 1))


def test_a_connect_with_too_many_is_refused(host: MemoryHost) -> None:
    client = host.client()
    client.send(Connect(V5, "a", properties=many()))
    [answer] = client.got()
    assert isinstance(answer, Connack)
    assert answer.reason == codec.QUOTA_EXCEEDED
    assert client.session.output.closing


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_with_too_many_is_refused_alone(host: MemoryHost, qos: int) -> None:
    sub, client = host.connected("s"), host.connected("a")
    sub.subscribe("a")
    client.send(Publish(b"a", b"x", qos, packet_id=7, properties=many()), Ping(codec.PINGREQ))
    refused, ping = client.got()
    assert refused.reason == codec.QUOTA_EXCEEDED  # type: ignore[union-attr]
    assert ping == Ping(codec.PINGRESP)
    sub >> []


def test_a_publish_without_an_answer_and_with_too_many_ends_its_connection(host: MemoryHost) -> None:
    client = host.connected("a")
    client.send(Publish(b"a", b"x", properties=many()))
    client >> Like(Disconnect, reason=codec.QUOTA_EXCEEDED)


# --- sizes before and after log-in


def test_the_largest_fields_of_a_connect_fit(host: MemoryHost) -> None:
    client, most = host.client(), 65535
    will = Will(b"w" * most, b"p" * most)
    client.send(Connect(V5, "c" * most, True, 0, will, "u" * most, b"p" * most))
    [answer] = client.got()
    assert isinstance(answer, Connack)
    assert answer.reason == 0


@BOTH
def test_a_larger_connect_is_refused_by_its_header(host: MemoryHost, version: int) -> None:
    client = host.client(version)
    client.send_bytes(b"\x10\x81\x80\x20" + b"\0\4MQTT" + bytes([version]))  # announces 512 KiB and a byte
    answers = client.got()
    assert [answer.reason for answer in answers] == [codec.PACKET_TOO_LARGE] * (version == V5)  # type: ignore[union-attr]
    assert client.session.output.closing


@BOTH
@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_filters_of_one_packet_are_bounded(host: MemoryHost, version: int, kind: type) -> None:
    client = host.connected("a", version)
    filters = [f"f/{number}".encode() for number in range(MAX_FILTERS + 1)]
    client.send(
        Subscribe(1, tuple(map(FilterRequest, filters)))
        if kind is Subscribe
        else Unsubscribe(1, tuple(filters))
    )
    assert (ended(client) is not None) == (version == V5)
    assert host.hub.subscriptions == 0


@BOTH
def test_levels_of_a_topic_are_bounded(make_host: type[MemoryHost], version: int) -> None:
    host = make_host(MqttSettings(max_levels=3))
    sub, client = host.connected("s"), host.connected("a", version)
    sub.subscribe("#")
    client.publish("a/b/c", b"1", 1, True)
    client.publish("a/b/c/d", b"2", 1, True)
    assert client.session.output.closing
    assert sub.payloads() == [b"1"]
    assert host.hub.retained.count == 1


def test_levels_of_a_will_are_bounded(make_host: type[MemoryHost]) -> None:
    host = make_host(MqttSettings(max_levels=3))
    assert host.client().connect("a", will=Will(b"a/b/c/d", b"x")).reason == codec.BAD_TOPIC


# --- passes of the loop


@pytest.fixture
def loop(host: MemoryHost) -> Loop:
    loop = Loop()
    host.sessions.work = WorkBudget(loop.time, loop.call_soon, 0.5)
    return loop


def filters_of(count: int) -> tuple[FilterRequest, ...]:
    return tuple(FilterRequest(f"f/{number}".encode(), 1) for number in range(count))


def finish(client: Client) -> int:
    """Goes on with what the client has sent. Returns in how many passes it was done."""
    passes = 0
    while client.session.suspended:
        client.session.go_on(client.host.now)
        passes += 1
    return passes


def test_a_long_subscribe_takes_several_passes_and_keeps_the_order(host: MemoryHost, loop: Loop) -> None:
    other, client = host.connected("o"), host.connected("a")
    client << [Subscribe(1, filters_of(100)), Publish(b"f/99", b"x"), Ping(codec.PINGREQ)] >> []
    other << Ping(codec.PINGREQ) >> Ping(codec.PINGRESP)
    client.send(Publish(b"f/98", b"y"))  # behind all of it
    assert finish(client) > 1
    suback, first, ping, second = client.got()
    assert suback == Suback(codec.SUBACK, 1, b"\1" * 100)
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.payload, ping, second.payload) == (b"x", Ping(codec.PINGRESP), b"y")


def test_a_long_unsubscribe_takes_several_passes(host: MemoryHost, loop: Loop) -> None:
    client = host.connected("a")
    client.send(Subscribe(1, filters_of(100)))
    finish(client)
    client.got()
    client << [Unsubscribe(2, tuple(one.filter for one in filters_of(100))), Ping(codec.PINGREQ)] >> []
    assert finish(client) > 1
    client >> [Suback(codec.UNSUBACK, 2, bytes(100)), Ping(codec.PINGRESP)]
    assert host.hub.subscriptions == 0


def test_a_client_that_leaves_in_between_leaves_nothing(host: MemoryHost, loop: Loop) -> None:
    client = host.connected("a")
    client.send(Subscribe(1, filters_of(100)))
    client.drop()
    finish_all(loop)
    assert host.hub.subscriptions == 0
    client.session.go_on(host.now)
    assert host.hub.subscriptions == 0


def finish_all(loop: Loop) -> int:
    passes = 0
    while loop.soon:
        loop.turn()
        passes += 1
    return passes


def test_the_subscriptions_of_a_session_that_ends_go_in_several_passes(host: MemoryHost, loop: Loop) -> None:
    client = host.connected("a")
    client.send(Subscribe(1, filters_of(100)))
    finish(client)
    finish_all(loop)
    client.leave()
    assert 0 < host.hub.subscriptions < 100
    again, pub = host.connected("a"), host.connected("p")
    again.subscribe("f/3")
    pub.publish("f/3", b"x")
    assert again.payloads() == [b"x"]
    assert finish_all(loop) > 1
    assert host.hub.subscriptions == 1
    pub.publish("f/3", b"y")
    assert again.payloads() == [b"y"]


def test_many_retained_messages_take_several_passes_and_none_comes_behind_a_newer_one(
    host: MemoryHost, loop: Loop
) -> None:
    pub, client = host.connected("p"), host.connected("a")
    every = {f"f/{number}" for number in range(1500)}
    for topic in every:
        pub.publish(topic, b"kept", retain=True)
    client.send(Subscribe(1, (FilterRequest(b"f/#", 1),)))
    finish(client)
    _, *first = client.got()
    came = {one.topic.decode() for one in first if isinstance(one, Publish)}
    assert 0 < len(came) < 1500
    replaced, removed, *_ = every - came
    pub.publish(replaced, b"newer", retain=True)
    pub.publish(removed, b"", retain=True)
    assert client.payloads() == [b"newer", b""]
    assert finish_all(loop) > 1
    rest = client.publishes()
    assert {one.payload for one in rest} == {b"kept"}
    assert came | {one.topic.decode() for one in rest} == every - {replaced, removed}
    assert len(came) + len(rest) == 1498


def test_a_lasting_session_that_is_away_meanwhile_gets_the_rest_of_many_retained_messages(
    host: MemoryHost, loop: Loop
) -> None:
    pub, client = host.connected("p"), host.connected("a", session_expiry=60)
    every = {b"f/%d" % number for number in range(1500)}
    for topic in every:
        pub.publish(topic.decode(), b"kept", qos=1, retain=True)
    client.send(Subscribe(1, (FilterRequest(b"f/#", 1),)))
    finish(client)
    _, *first = client.got()
    client.drop()
    finish_all(loop)
    again = host.client()
    assert again.connect("a", clean=False, session_expiry=60).session_present
    came = [one.topic for one in (*first, *again.got()) if isinstance(one, Publish)]
    assert set(came) == every


def test_a_large_packet_waits_while_others_work(host: MemoryHost, loop: Loop) -> None:
    client = host.connected("a")
    client.subscribe("t")
    host.sessions.work.later(lambda: None)
    client.send(Publish(b"t", b"w" * 70_000))
    assert client.payloads() == [b"w" * 70_000]  # its payload costs nothing
    properties = Properties(user=(("name", "x" * 5000),))
    client << [Publish(b"t", b"x" * 70_000, properties=properties), Publish(b"t", b"y")] >> []
    finish_all(loop)
    finish(client)
    assert [payload[:1] for payload in client.payloads()] == [b"x", b"y"]


# --- keep-alive


@BOTH
def test_bytes_of_a_packet_that_never_ends_are_no_sign_of_life(host: MemoryHost, version: int) -> None:
    client = host.connected("a", version, keep_alive=10)
    client.send_bytes(b"\x30\x7f\0\3a/b")
    for _ in range(4):
        host.pass_time(4)
        client.send_bytes(b"x")
    assert client.session.output.closing


@BOTH
def test_a_large_packet_on_a_slow_network_is_a_sign_of_life(host: MemoryHost, version: int) -> None:
    client = host.connected("a", version, keep_alive=10)
    packet = encode(Publish(b"a", b"x" * 60_000), version)
    for begin in range(0, len(packet), 5000):
        host.pass_time(8)
        client.send_bytes(packet[begin : begin + 5000])
    assert not client.session.output.closing


# --- Maximum Packet Size of the client [MQTT-3.1.2-24]


def test_a_connack_leaves_out_what_the_client_can_do_without(host: MemoryHost) -> None:
    client = host.client()
    answer = client.connect("a", maximum_packet_size=8)
    assert answer == Connack(False, 0)
    client << Ping(codec.PINGREQ) >> Ping(codec.PINGRESP)


def test_a_client_that_cannot_take_its_connack_is_not_served(host: MemoryHost) -> None:
    client = host.client()
    client.send(Connect(V5, "", properties=Properties(maximum_packet_size=8)))  # an id must be assigned
    client >> []
    assert client.session.output.closing
    host.pass_time(1)
    assert len(host.sessions) == 0


def test_a_refusal_that_is_too_large_is_not_sent(make_host: type[MemoryHost]) -> None:
    client = make_host(MqttSettings(max_connections=0)).client()
    client.send(Connect(V5, "a", properties=Properties(maximum_packet_size=4)))
    assert client.got_bytes() == b""
    assert client.session.output.closing


def test_filters_whose_answer_is_too_large_are_refused_before_anything_is_done(host: MemoryHost) -> None:
    client = host.connected("a", maximum_packet_size=30)
    assert client.subscribe("f/1", "f/2") == b"\0\0"
    client.send(Subscribe(2, filters_of(60)))
    last = ended(client)
    assert last is not None
    assert last.reason == codec.PACKET_TOO_LARGE
    assert last.properties == Properties()


def test_an_unsuback_that_is_too_large_is_refused_too(host: MemoryHost) -> None:
    client = host.connected("a", maximum_packet_size=30)
    client.subscribe("f/1")
    client.send(Unsubscribe(2, tuple(one.filter for one in filters_of(60))))
    client >> Like(Disconnect, reason=codec.PACKET_TOO_LARGE)


def test_long_packets_behind_each_other_are_all_served(host: MemoryHost, loop: Loop) -> None:
    client = host.connected("a")
    for number in range(1, 4):
        client.send(Subscribe(number, filters_of(100)))
    client.send(Ping(codec.PINGREQ))
    finish(client)
    answers = client.got()
    assert answers[-1] == Ping(codec.PINGRESP)
    assert [one.packet_id for one in answers[:-1]] == [1, 2, 3]  # type: ignore[union-attr]
