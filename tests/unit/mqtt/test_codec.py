"""The codec in both directions, at every boundary, and each broken rule with its clause."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec import V5, V311, MqttError
from treecast.shims.mqtt.codec_packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    Ping,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Will,
    decode,
    encode,
)
from treecast.shims.mqtt.codec_properties import NONE, PROPERTIES, Properties, write_properties
from treecast.shims.mqtt.codec_publish import read_publish_properties
from treecast.shims.mqtt.codec_read import Reader, check_filter, read_length, split_share, varint_bytes

GOLDEN: list[tuple[int, Packet, str]] = [
    (V311, Connect(V311, "a", True, 60), "100d00044d515454040200 3c 000161"),
    (V311, Connect(V311, "a", True, 60, bridge=True), "100d00044d515454840200 3c 000161"),
    (
        V5,
        Connect(V5, "", False, 0, username="u", password=b"p", properties=Properties(session_expiry=5)),
        "1018 00044d515454 05 c0 0000 05 1100000005 0000 0001 75 0001 70",
    ),
    (V311, Connack(True, 0), "20020100"),
    (V5, Connack(False, 0x87), "2003008700"),
    (V311, Publish(b"a/b", b"hi", 1, False, False, 10), "3209 0003612f62 000a 6869"),
    (V5, Publish(b"a/b", b"hi", 0, True), "3108 0003612f62 00 6869"),
    (V5, Publish(b"", b"", 0, properties=Properties(topic_alias=1)), "3006 0000 03 230001"),
    (V311, Ack(codec.PUBREL, 7), "62020007"),
    (V5, Ack(codec.PUBACK, 7, 0x10), "4003000710"),
    (V311, Subscribe(1, (FilterRequest(b"a", 2),)), "8206 0001 0001 61 02"),
    (V5, Subscribe(1, (FilterRequest(b"a", 1, True, True, 2),)), "8207 0001 00 0001 61 2d"),
    (V311, Suback(codec.SUBACK, 1, b"\x02\x80"), "900400010280"),
    (V311, Unsubscribe(2, (b"a",)), "a205 0002 0001 61"),
    (V311, Suback(codec.UNSUBACK, 2, b""), "b0020002"),
    (V5, Ping(codec.PINGREQ), "c000"),
    (V5, Disconnect(), "e000"),
    (V5, Disconnect(0x8E), "e0018e"),
    (V5, Auth(0x18, Properties(auth_method="m")), "f006 18 04 15 0001 6d"),
]


def taken_apart(data: bytes) -> tuple[int, bytes]:
    size, body = read_length(data, 0, len(data))
    assert body + size == len(data)
    return data[0], data[body:]


def attempt(first: int, body: bytes, version: int) -> Packet | MqttError:
    """Returns the packet or the MqttError; any other error fails the test."""
    try:
        return decode(first, body, version)
    except MqttError as error:
        return error


@pytest.mark.parametrize(("version", "packet", "golden"), GOLDEN)
def test_golden_bytes_both_ways(version: int, packet: Packet, golden: str) -> None:
    data = bytes.fromhex(golden)
    assert encode(packet, version) == data
    first, body = taken_apart(data)
    assert decode(first, body, version) == packet


# --- random packets

ids = st.integers(1, 65535)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
names = st.text("abcäß/$ ", min_size=1, max_size=12).map(str.encode)
blobs = st.binary(max_size=40)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)


def properties_of(packet: int) -> st.SearchStrategy[Properties]:
    """Draws properties that a packet of this type may have."""
    fields: dict[str, st.SearchStrategy[object]] = {}
    for row in PROPERTIES.values():
        if packet not in row.packets or row.name == "auth_data":
            continue
        if row.name == "user":
            fields[row.name] = pairs
        elif row.name == "subscription_ids":
            most = 3 if packet == codec.PUBLISH else 1
            fields[row.name] = st.lists(st.integers(1, 2**28 - 1), max_size=most).map(tuple)
        elif row.name == "response_topic":
            fields[row.name] = st.none() | names.map(bytes.decode)
        else:
            fields[row.name] = st.none() | _values(row.kind, row.least)
    return st.builds(Properties, **fields)


def _values(kind: int, least: int) -> st.SearchStrategy[object]:
    ranges = {1: 1, 2: 2**16 - 1, 3: 2**32 - 1, 4: 2**28 - 1}
    if kind in ranges:
        return st.integers(least, ranges[kind])
    return blobs if kind == 5 else texts


def filled(version: int, packet: int) -> st.SearchStrategy[Properties]:
    return properties_of(packet) if version == V5 else st.just(NONE)


@st.composite
def packets(draw: st.DrawFn) -> tuple[int, Packet]:
    version = draw(st.sampled_from((V311, V5)))
    kinds = [codec.CONNECT, codec.CONNACK, codec.PUBLISH, codec.PUBACK, codec.PUBREC, codec.PUBREL]
    kinds += [codec.PUBCOMP, codec.SUBSCRIBE, codec.SUBACK, codec.UNSUBSCRIBE, codec.UNSUBACK]
    kinds += [codec.DISCONNECT] + ([codec.AUTH] if version == V5 else [])
    kind = draw(st.sampled_from(kinds))
    properties = draw(filled(version, kind))
    return version, draw(_packet(version, kind, properties))


def _packet(version: int, kind: int, properties: Properties) -> st.SearchStrategy[Packet]:
    given_properties = st.just(properties)
    if kind == codec.CONNECT:
        will = st.builds(Will, names, blobs, st.integers(0, 2), st.booleans(), filled(version, 0))
        secret = st.tuples(st.none() | texts, st.none() | blobs)
        if version == V311:
            secret = secret.map(lambda both: both if both[0] is not None else (None, None))
        return secret.flatmap(
            lambda both: st.builds(
                Connect,
                st.just(version),
                texts,
                st.booleans(),
                st.integers(0, 65535),
                st.none() | will,
                st.just(both[0]),
                st.just(both[1]),
                given_properties,
            )
        )
    if kind == codec.CONNACK:
        return st.builds(Connack, st.booleans(), st.integers(0, 255), given_properties)
    if kind == codec.PUBLISH:
        return _publishes(given_properties)
    if kind <= codec.PUBCOMP:
        return st.builds(Ack, st.just(kind), ids, st.just(0), given_properties)
    if kind == codec.SUBSCRIBE:
        flags = (st.booleans(), st.booleans(), st.integers(0, 2)) if version == V5 else ()
        requests = st.builds(FilterRequest, names, st.integers(0, 2), *flags)
        return st.builds(Subscribe, ids, st.lists(requests, min_size=1).map(tuple), given_properties)
    if kind == codec.UNSUBSCRIBE:
        return st.builds(Unsubscribe, ids, st.lists(names, min_size=1).map(tuple), given_properties)
    if kind in (codec.SUBACK, codec.UNSUBACK):
        reasons = st.just(b"") if version == V311 and kind == codec.UNSUBACK else blobs
        return st.builds(Suback, st.just(kind), ids, reasons, given_properties)
    if kind == codec.AUTH:
        return st.builds(Auth, st.sampled_from((0, 0x18, 0x19)), given_properties)
    reason = st.integers(0, 255) if version == V5 else st.just(0)
    return st.builds(Disconnect, reason, given_properties)


def _publishes(properties: st.SearchStrategy[Properties]) -> st.SearchStrategy[Packet]:
    plain = st.builds(Publish, names, blobs, st.just(0), st.booleans(), properties=properties)
    numbered = st.builds(
        Publish, names, blobs, st.integers(1, 2), st.booleans(), st.booleans(), ids, properties
    )
    return plain | numbered


@given(packets())
@settings(max_examples=100)
def test_what_is_written_is_read_again(both: tuple[int, Packet]) -> None:
    version, packet = both
    first, body = taken_apart(encode(packet, version))
    assert decode(first, body, version) == packet


@given(packets())
@settings(max_examples=100)
def test_a_packet_that_ends_early_is_refused(both: tuple[int, Packet]) -> None:
    version, packet = both
    first, body = taken_apart(encode(packet, version))
    for size in range(len(body)):
        try:
            found = decode(first, body[:size], version)
        except MqttError:
            continue
        assert found != packet or body[size:] == b""


@given(packets(), st.binary(min_size=1, max_size=4).filter(lambda more: more[0] != 0))
@settings(max_examples=100)
def test_trailing_data_never_goes_unseen(both: tuple[int, Packet], more: bytes) -> None:
    version, packet = both
    first, body = taken_apart(encode(packet, version))
    assert attempt(first, body + more, version) != packet


@given(st.integers(0, 255), st.binary(max_size=80), st.sampled_from((V311, V5)))
@settings(max_examples=100)
def test_any_bytes_give_a_packet_or_a_protocol_error(first: int, body: bytes, version: int) -> None:
    error = attempt(first, body, version)
    if isinstance(error, MqttError):
        assert error.reason >= 0x80
        assert f"[{error.rule}]" in str(error)


@given(properties_of(codec.PUBLISH))
@settings(max_examples=100)
def test_the_hot_reader_of_properties_agrees_with_the_plain_one(properties: Properties) -> None:
    data = write_properties(properties)
    size, begin = read_length(data, -1, len(data))
    if properties.subscription_ids:
        with pytest.raises(MqttError, match=r"MQTT-3.3.4-6"):
            read_publish_properties(data, begin, begin + size)
        return
    found = read_publish_properties(data, begin, begin + size)
    assert found.alias == (properties.topic_alias or 0)
    assert found.expiry == (-1 if properties.message_expiry is None else properties.message_expiry)
    rest = Reader(varint_bytes(len(found.passed_on)) + found.passed_on, 0, 0)
    rest.end = len(rest.data)
    from msgspec.structs import replace

    from treecast.shims.mqtt.codec_properties import read_properties

    assert read_properties(rest, codec.PUBLISH) == replace(properties, topic_alias=None, message_expiry=None)


@given(st.integers(0, 2**28 - 1))
def test_variable_byte_integers(value: int) -> None:
    data = varint_bytes(value)
    assert Reader(data, 0, len(data)).varint() == value
    assert read_length(b"\0" + data, 0, 1 + len(data)) == (value, 1 + len(data))


# --- broken rules


BROKEN = [
    (V5, "00 ", "MQTT-2.1.3-1", 0x81),
    (V5, "60 0001", "MQTT-3.6.1-1", 0x81),
    (V5, "80 0001 00 0001 61 00", "MQTT-3.8.1-1", 0x81),
    (V5, "a0 0001 00 0001 61", "MQTT-3.10.1-1", 0x81),
    (V5, "e1 ", "MQTT-3.14.1-1", 0x81),
    (V5, "f1 ", "MQTT-3.15.1-1", 0x81),
    (V5, "10 0004 4d515455 05 02 0000 00 0000", "MQTT-3.1.2-1", 0x84),
    (V5, "10 0004 4d515454 06 02 0000 00 0000", "MQTT-3.1.2-2", 0x84),
    (V5, "10 0004 4d515454 85 02 0000 00 0000", "MQTT-3.1.2-2", 0x84),
    (V5, "10 0006 4d5149736470 03 02 0000 0000", "MQTT-3.1.2-2", 0x84),
    (V5, "10 0004 4d515454 05 03 0000 00 0000", "MQTT-3.1.2-3", 0x81),
    (V5, "10 0004 4d515454 05 0a 0000 00 0000", "MQTT-3.1.2-11", 0x81),
    (V5, "10 0004 4d515454 05 22 0000 00 0000", "MQTT-3.1.2-13", 0x81),
    (V5, "10 0004 4d515454 05 1e 0000 00 0000 00 0001 61 0000", "MQTT-3.1.2-12", 0x81),
    (V311, "10 0004 4d515454 04 42 0000 0000 0001 61", "MQTT-3.1.2-22", 0x81),
    (V5, "10 0004 4d515454 05 02 0000 05 1100000001 0002 c328", "MQTT-1.5.4-1", 0x81),
    (V5, "10 0004 4d515454 05 02 0000 00 0003 eda080", "MQTT-1.5.4-1", 0x81),
    (V5, "10 0004 4d515454 05 02 0000 00 0001 00", "MQTT-1.5.4-2", 0x81),
    (V5, "10 0004 4d515454 05 02 0000 8000 0000", "MQTT-1.5.5-1", 0x81),
    (V5, "10 0004 4d515454 05 02 0000 0a 1100000001 1100000001 0000", "2.2.2.2", 0x82),
    (V5, "10 0004 4d515454 05 02 0000 03 210000 0000", "3.1.2.11.3", 0x82),
    (V5, "10 0004 4d515454 05 02 0000 05 2700000000 0000", "3.1.2.11.4", 0x82),
    (V5, "10 0004 4d515454 05 02 0000 02 1702 0000", "3.1.2.11.7", 0x82),
    (V5, "10 0004 4d515454 05 02 0000 04 160001 61 0000", "3.1.2.11.10", 0x82),
    (V5, "10 0004 4d515454 05 02 0000 02 0101 0000", "2.2.2.2", 0x81),
    (V5, "36 0001 61 0001 00", "MQTT-3.3.1-4", 0x81),
    (V5, "38 0001 61 00", "MQTT-3.3.1-2", 0x81),
    (V5, "32 0001 61 0000 00", "MQTT-2.2.1-3", 0x82),
    (V5, "30 0003 612f2b 00", "MQTT-3.3.2-2", 0x90),
    (V5, "30 0000 00", "MQTT-4.7.3-1", 0x90),
    (V5, "30 0001 61 03 230000", "MQTT-3.3.2-8", 0x94),
    (V5, "30 0001 61 04 080001 2b", "MQTT-3.3.2-14", 0x82),
    (V5, "30 0001 61 02 0102", "3.3.2.3.2", 0x82),
    (V5, "40 0001 05", "MQTT-3.4.2-1", 0x81),
    (V5, "62 0001 10", "MQTT-3.6.2-1", 0x81),
    (V311, "82 0001", "MQTT-3.8.3-2", 0x82),
    (V311, "82 0001 0001 61 04", "MQTT-3.8.3-5", 0x81),
    (V5, "82 0001 00 0001 61 03", "3.8.3.1", 0x81),
    (V5, "82 0001 00 0001 61 30", "3.8.3.1", 0x82),
    (V5, "82 0001 02 0b00 0001 61 00", "3.8.2.1.2", 0x82),
    (V311, "a2 0001", "MQTT-3.10.3-2", 0x82),
    (V311, "f0 ", "MQTT-2.2.2-1", 0x81),
    (V5, "f0 01", "MQTT-3.15.2-1", 0x81),
    (V311, "e0 00", "2.1.4", 0x81),
]


@pytest.mark.parametrize(("version", "packet", "rule", "reason"), BROKEN)
def test_each_broken_rule_is_named(version: int, packet: str, rule: str, reason: int) -> None:
    data = bytes.fromhex(packet)
    with pytest.raises(MqttError) as caught:
        decode(data[0], data[1:], version)
    assert (caught.value.rule, caught.value.reason) == (rule, reason)


@pytest.mark.parametrize(
    ("filter", "rule"),
    [
        (b"", "MQTT-4.7.3-1"),
        (b"a/#/b", "MQTT-4.7.1-1"),
        (b"a#", "MQTT-4.7.1-1"),
        (b"a+/b", "MQTT-4.7.1-2"),
        (b"a/+b", "MQTT-4.7.1-2"),
    ],
)
def test_filters_that_no_one_may_have(filter: bytes, rule: str) -> None:
    with pytest.raises(MqttError) as caught:
        check_filter(filter)
    assert caught.value.rule == rule


@pytest.mark.parametrize("filter", [b"#", b"+", b"/", b"+/+/#", b"a//b", b"$SYS/#", b"a b/\xc3\xa4"])
def test_filters_that_are_fine(filter: bytes) -> None:
    check_filter(filter)


def test_share_names() -> None:
    assert split_share(b"$share/g/a/#") == (b"g", b"a/#")
    assert split_share(b"$shared/g") == (b"", b"$shared/g")
    for wrong in (
        b"$share",
        b"$share/",
        b"$share//a",
        b"$share/g",
        b"$share/g/",
        b"$share/+/a",
        b"$share/g#/a",
    ):
        with pytest.raises(MqttError, match=r"MQTT-4\.8\.2"):
            split_share(wrong)


def test_clauses_have_the_numbers_of_the_version_that_is_spoken() -> None:
    assert codec.clause("MQTT-1.5.4-1", V311) == "MQTT-1.5.3-1"
    assert codec.clause("MQTT-1.5.4-1", V5) == "MQTT-1.5.4-1"
