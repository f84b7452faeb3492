"""Any cut of the bytes has the same effect, and no bytes at all affect other clients."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.mqtt.face import Client, MemoryHost

from treecast.shims.mqtt.codec import V5, V311
from treecast.shims.mqtt.codec_packets import Packet, Publish, encode
from treecast.shims.mqtt.codec_properties import NONE, Properties

topics = st.sampled_from([b"a", b"a/b", b"a/c", b"b", b"nobody"])
marks = st.sampled_from([NONE, Properties(user=(("k", "v"),)), Properties(message_expiry=5)])
publishes = st.lists(
    st.tuples(topics, st.binary(max_size=200), st.integers(0, 2), st.booleans(), marks), max_size=30
)
FILTERS = (("s1", "a/#", 0), ("s2", "a/+", 1), ("s3", "#", 2), ("s4", "b", 0))


def stream(found: list[tuple[bytes, bytes, int, bool, Properties]], version: int) -> bytes:
    out = b""
    for number, (topic, payload, qos, retain, properties) in enumerate(found):
        given = properties if version == V5 else NONE
        packet = Publish(topic, payload, qos, retain, False, number + 1 if qos else 0, given)
        out += encode(packet, version)
    return out


def outcome(data: bytes, cuts: list[int], version: int) -> list[list[Packet]]:
    """Returns the packets of each subscriber and the publisher after `data`, cut at `cuts`."""
    host = MemoryHost()
    subscribers = []
    for number, (name, filter, qos) in enumerate(FILTERS):
        client = host.connected(name, (V311, V5)[number % 2])
        client.subscribe(filter, qos=qos)
        subscribers.append(client)
    pub = host.connected("p", version)
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        pub.send_bytes(data[begin:end])
    return [client.got() for client in (*subscribers, pub)]


@given(publishes, st.sampled_from([V311, V5]), st.data())
@settings(max_examples=60)
def test_the_same_comes_of_it_however_it_is_cut(
    found: list[tuple[bytes, bytes, int, bool, Properties]], version: int, data: st.DataObject
) -> None:
    bytes_ = stream(found, version)
    whole = outcome(bytes_, [], version)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(bytes_)), max_size=8)))
    assert outcome(bytes_, cuts, version) == whole
    if len(bytes_) < 400:
        assert outcome(bytes_, list(range(1, len(bytes_))), version) == whole


@given(publishes)
@settings(max_examples=60)
def test_every_subscriber_gets_what_its_filters_match_in_order(
    found: list[tuple[bytes, bytes, int, bool, Properties]],
) -> None:
    from treecast.middleware.broker.pubsub.reference import matches

    got = outcome(stream(found, V5), [], V5)
    for (_, filter, qos), packets in zip(FILTERS, got, strict=False):
        expected = [(t, p, min(q, qos)) for t, p, q, _, _ in found if matches(filter.encode(), t)]
        assert [(g.topic, g.payload, g.qos) for g in packets if isinstance(g, Publish)] == expected


def test_runs_are_passed_through_as_they_came() -> None:
    """The output is the input's bytes in one piece."""
    host = MemoryHost()
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("#")
    data = b"".join(encode(Publish(b"t/%d" % (n % 3), b"x" * 100), V5) for n in range(200))
    pub.send_bytes(data)
    (session,) = host.outputs.take()
    assert session.take() == [data]


def test_a_large_packet_is_gathered_in_pieces() -> None:
    host = MemoryHost()
    sub, pub = host.connected("s"), host.connected("p")
    sub.subscribe("t", qos=1)
    payload = bytes(range(256)) * 4000
    data = encode(Publish(b"t", payload, 1, packet_id=1), V5) + encode(Publish(b"t", b"after"), V5)
    for begin in range(0, len(data), 7777):
        pub.send_bytes(data[begin : begin + 7777])
    assert sub.payloads() == [payload, b"after"]


def connected(host: MemoryHost, version: int) -> Client:
    client = host.connected("bad", version)
    client.subscribe("#", qos=2)
    client.got()
    return client


@given(st.binary(max_size=300), st.sampled_from([V311, V5]), st.booleans())
@settings(max_examples=100)
def test_any_bytes_end_at_worst_their_own_connection(data: bytes, version: int, opened: bool) -> None:
    host = MemoryHost()
    good, pub = host.connected("good"), host.connected("pub")
    good.subscribe("quiet")
    client = connected(host, version) if opened else host.client(version)
    client.send_bytes(data)
    client.got_bytes()
    assert client.session.output.closing == bool(client.session.output.failure) or b"\xe0" in data
    pub.publish("quiet", b"still here")
    assert b"still here" in good.payloads()


@given(st.lists(st.tuples(st.integers(1, 15), st.integers(0, 15), st.binary(max_size=30)), max_size=6))
@settings(max_examples=100)
def test_packets_of_every_type_with_any_body(packets: list[tuple[int, int, bytes]]) -> None:
    host = MemoryHost()
    client = connected(host, V5)
    for kind, flags, body in packets:
        client.send_bytes(bytes([kind << 4 | flags, len(body)]) + body)
    client.got_bytes()
    if client.session.output.failure:
        assert client.session.output.phase == 2
