"""Topic aliases, sizes and flow control agreed by client and server. Each test names its clause."""

from __future__ import annotations

import pytest
from tests.unit.mqtt.face import MemoryHost
from tests.unit.script import Like

from treecast.middleware.broker.pubsub import PubSubSettings, QueuePolicy
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import (
    Ack,
    Disconnect,
    Publish,
)
from treecast.shims.mqtt.settings import MqttSettings

BOTH = pytest.mark.parametrize("version", [V311, V5])
# --- topic aliases


def test_aliases_of_the_client_end_at_the_server(host: MemoryHost) -> None:
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("#")
    pub.publish("a/b", b"1", topic_alias=3)
    pub.publish("", b"2", topic_alias=3)
    pub.publish("c", b"3", topic_alias=3)
    pub.publish("", b"4", 1, topic_alias=3)
    got = sub.publishes()
    assert [(g.topic, g.payload, g.properties.topic_alias) for g in got] == [
        (b"a/b", b"1", None),
        (b"a/b", b"2", None),
        (b"c", b"3", None),
        (b"c", b"4", None),
    ]


@pytest.mark.parametrize(("alias", "reason"), [(101, codec.BAD_TOPIC_ALIAS), (5, codec.PROTOCOL_ERROR)])
def test_aliases_that_stand_for_nothing(host: MemoryHost, alias: int, reason: int) -> None:
    pub = host.connected("p")
    pub.publish("", b"x", topic_alias=alias)
    pub >> Like(Disconnect, reason=reason)


def test_aliases_for_a_client_that_takes_them(host: MemoryHost) -> None:
    sub, pub = host.connected("s", topic_alias_maximum=1), host.connected("p")
    sub.subscribe("#")
    for topic in ("a", "a", "b", "b", "a"):
        pub.publish(topic, b"x")
    got = sub.publishes()
    assert [(g.topic, g.properties.topic_alias) for g in got] == [
        (b"a", 1),
        (b"", 1),
        (b"b", None),
        (b"b", None),
        (b"", 1),
    ]


# --- limits of the client, flow control


def test_packets_larger_than_a_client_takes_are_never_sent(host: MemoryHost) -> None:
    sub, pub = host.connected("s", maximum_packet_size=30), host.connected("p")
    sub.subscribe("t", qos=1)
    for payload in (b"x" * 40, b"small"):
        pub.publish("t", payload, 1)
        pub.publish("t", payload, 0)
    assert sub.payloads() == [b"small", b"small"]
    assert host.counters.dropped_large == 2
    assert len(sub.state.inflight or {}) == 1  # type: ignore[union-attr]


def test_a_reason_string_that_would_be_too_large_is_left_out(host: MemoryHost) -> None:
    client = host.connected("s", maximum_packet_size=20)
    client.publish("a/+", b"x")
    client >> Disconnect(codec.BAD_TOPIC)


def test_a_client_that_wants_no_problem_information_gets_none(host: MemoryHost) -> None:
    client = host.connected("s", request_problems=0)
    packet_id = client.publish("t", b"\xff", 1, payload_format=1)
    client >> Ack(codec.PUBACK, packet_id, codec.BAD_PAYLOAD_FORMAT)


def test_a_packet_larger_than_the_server_takes_is_refused_by_its_header(
    make_host: type[MemoryHost],
) -> None:
    host = make_host(MqttSettings(max_packet_bytes=100))
    client = host.connected("a")
    client.send_bytes(bytes.fromhex("30ffffff7f"))
    client >> Like(Disconnect, reason=codec.PACKET_TOO_LARGE)


def test_a_length_is_believed_only_as_its_bytes_come(host: MemoryHost) -> None:
    client = host.connected("a")
    client.send_bytes(bytes.fromhex("30808080 04".replace(" ", "")))  # announces 8 MiB
    assert client.session._partial is not None
    assert len(client.session._partial) == 5


def test_no_more_is_in_flight_than_the_client_takes(host: MemoryHost) -> None:
    sub, pub = host.connected("s", receive_maximum=2), host.connected("p")
    sub.subscribe("t", qos=2)
    for number in range(5):
        pub.publish("t", b"%d" % number, 1 + number % 2)
    first = sub >> [Like(Publish, payload=b"0"), Like(Publish, payload=b"1")]
    sub << Ack(codec.PUBACK, first[0].packet_id) >> Like(Publish, payload=b"2")
    sub << Ack(codec.PUBREC, first[1].packet_id) >> Ack(codec.PUBREL, first[1].packet_id)
    sub << Ack(codec.PUBCOMP, first[1].packet_id) >> Like(Publish, payload=b"3")


def test_more_of_qos_2_than_the_server_takes(make_host: type[MemoryHost]) -> None:
    host = make_host(MqttSettings(receive_maximum=2))
    pub = host.connected("p")
    for _ in range(3):
        pub.publish("t", b"x", 2)
    pub >> [Ack, Ack, Like(Disconnect, reason=codec.RECEIVE_MAXIMUM_EXCEEDED)]


@pytest.mark.parametrize(
    ("policy", "left"),
    [(QueuePolicy.DROP_NEW, [b"0", b"1", b"2"]), (QueuePolicy.DROP_OLD, [b"3", b"4", b"5"])],
)
@pytest.mark.parametrize("qos", [0, 1])
def test_the_queue_of_a_client_that_does_not_read_is_bounded(
    make_host: type[MemoryHost], policy: QueuePolicy, left: list[bytes], qos: int
) -> None:
    host = make_host(hub_settings=PubSubSettings(queue_policy=policy, queue_messages=3))
    sub, other, pub = host.connected("s"), host.connected("o"), host.connected("p")
    sub.subscribe("t", qos=qos)
    other.subscribe("t", qos=qos)
    sub.session.output.congest(True)
    for number in range(6):
        pub.publish("t", b"%d" % number, qos)
    assert len(other.payloads()) == 6
    assert sub.payloads() == []
    assert host.counters.dropped_full == 3
    sub.session.output.congest(False)
    sub.state.pump()  # type: ignore[union-attr]
    assert sub.payloads() == left


def test_a_client_that_does_not_read_may_be_sent_away(make_host: type[MemoryHost]) -> None:
    host = make_host(hub_settings=PubSubSettings(queue_policy=QueuePolicy.DISCONNECT, queue_messages=2))
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("t")
    sub.session.output.congest(True)
    for number in range(3):
        pub.publish("t", b"%d" % number)
    sub >> Like(Disconnect, reason=codec.QUOTA_EXCEEDED)


def test_what_is_not_acknowledged_takes_the_memory_of_a_queue(make_host: type[MemoryHost]) -> None:
    """A client may allow 65,535 publishes without an acknowledgement, of any size."""
    host = make_host(None, PubSubSettings(queue_bytes=10_000))
    sub, pub = host.connected("s", clean=False, session_expiry=100), host.connected("p")
    sub.subscribe("t", qos=2)
    for number in range(30):
        pub.publish("t", bytes(1000), 1 + number % 2)
    got = sub.publishes()
    assert len(got) == 10
    assert host.counters.dropped_full == 30 - 10 - 9
    sub.ack(codec.PUBACK, got[0].packet_id)
    assert len(sub.publishes()) == 1
    sub << Ack(codec.PUBREC, got[1].packet_id) >> [Ack(codec.PUBREL, got[1].packet_id), Like(Publish)]
    sub.drop()
    again = host.connected("s", clean=False, session_expiry=100)
    assert [type(one) for one in again.got()].count(Publish) == 10  # those in flight, and no others
    for one in got[2:]:
        again.ack(codec.PUBACK if one.qos == 1 else codec.PUBREC, one.packet_id)
    assert len([one for one in again.got() if isinstance(one, Publish)]) == 7
