"""Runs of deliveries to the fabric and back: what leaves one server enters the other byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter
from pamqp import commands, frame, header

from treecast.agents.rabbitmq import hops
from treecast.agents.rabbitmq.codec import BadPayload, PublishWriter, names_of, packets_of, payload_at
from treecast.agents.rabbitmq.inbound import parts_of
from treecast.middleware.broker.pubsub import messages_in, run_of
from treecast.middleware.wire.mqtt_publish import WITH_PROPERTIES
from treecast.shims.amqp.codec import END, AmqpError
from treecast.shims.amqp.codec_client import DeliveryScan, publish_head, write_publishes
from treecast.shims.amqp.codec_deliver import Destination, write_deliveries

FRAME = 8192
OWN = hops.entry("cluster1", "lisbon")
START = hops.start("cluster1")
HEADERS = st.dictionaries(st.sampled_from(["a", "b", "CC "]), st.text(max_size=5), max_size=2)
MESSAGES = st.lists(
    st.tuples(
        st.builds(
            lambda headers, priority: {"headers": headers, "priority": priority}, HEADERS, st.integers(0, 9)
        ),
        st.one_of(st.binary(max_size=40), st.just(b"x" * 20_000)),
    ),
    min_size=1,
    max_size=5,
)


def layout(messages: list[tuple[dict[str, object], bytes]]) -> bytes:
    out = b""
    for wanted, body in messages:
        properties = commands.Basic.Properties(**wanted).marshal()
        out += len(properties).to_bytes(4, "big") + len(body).to_bytes(4, "big") + properties + body
    return out


def deliveries(data: bytes, first: int = 1, exchange: bytes = b"e", key: bytes = b"k") -> bytes:
    out = BytesWriter()
    write_deliveries(out, Destination(1, b"tag", FRAME), data, first, False, exchange, key)
    return out.getvalue()


def scan_of() -> DeliveryScan:
    scan = DeliveryScan(hops.MARK, START)
    scan.frame_max = FRAME
    return scan


def method_end(data: bytes, at: int = 0) -> int:
    return at + int.from_bytes(data[at + 3 : at + 7], "big") + 8


@given(MESSAGES, st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_messages_with_the_same_properties_are_as_they_are_alone(
    messages: list[tuple[dict[str, object], bytes]], order: list[int]
) -> None:
    """A run takes the properties of the message before where they are the same."""
    run = [messages[number % len(messages)] for number in order]
    hop = hops.field(OWN)
    alone = [packets_of(b"topic", names_of(b"e", b"k"), layout([one]), hop) for one in run]
    assert packets_of(b"topic", names_of(b"e", b"k"), layout(run), hop) == b"".join(alone)


@given(MESSAGES, st.integers(1, 1 << 40))
def test_deliveries_are_read_as_they_were_written(
    messages: list[tuple[dict[str, object], bytes]], first: int
) -> None:
    data = layout(messages)
    wire = deliveries(data, first)
    scan = scan_of()
    scan.look(wire, 0, len(wire), method_end(wire))
    assert (scan.count, scan.stop, scan.first) == (len(messages), len(wire), first)
    assert (scan.channel, scan.exchange, scan.key, scan.data) == (1, b"e", b"k", data)
    assert parts_of(scan.data)[0][1] == messages[0][1]


@given(MESSAGES, st.data())
def test_an_incomplete_delivery_is_waited_for(
    messages: list[tuple[dict[str, object], bytes]], data: st.DataObject
) -> None:
    wire = deliveries(layout(messages[:1]))
    end = data.draw(st.integers(method_end(wire), len(wire) - 1))
    scan = scan_of()
    scan.look(wire, 0, end, method_end(wire))
    assert scan.count == 0
    assert end < scan.wanted <= len(wire)


def test_a_body_in_small_frames_is_waited_for() -> None:
    out = BytesWriter()
    write_deliveries(out, Destination(1, b"tag", 108), layout([({}, b"y" * 250)]), 1, False, b"e", b"k")
    wire = out.getvalue()
    scan = scan_of()
    for end in range(method_end(wire), len(wire)):
        scan.look(wire, 0, end, method_end(wire))
        assert scan.count == 0
        assert end < scan.wanted <= len(wire)
    scan.look(wire, 0, len(wire), method_end(wire))
    assert scan.count == 1


@pytest.mark.parametrize("other", [(2, b"e", b"k"), (1, b"f", b"k"), (1, b"e", b"l"), (9, b"e", b"k")])
def test_a_run_ends_where_something_differs(other: tuple[int, bytes, bytes]) -> None:
    one, tag = layout([({}, b"1")]), other[0]
    wire = deliveries(one) + deliveries(one, tag, other[1], other[2])
    scan = scan_of()
    scan.look(wire, 0, len(wire), method_end(wire))
    assert scan.count == (2 if other == (2, b"e", b"k") else 1)


def test_marked_messages_are_runs_of_their_own() -> None:
    plain = ({"headers": {"a": "b"}}, b"1")
    other = ({"headers": {"x-treecast-hops": ["cluster2/oslo"]}}, b"2")
    own = ({"headers": {"x-treecast-hops": ["cluster1/oslo"]}}, b"3")
    further = ({"headers": {"CC": ["l"]}}, b"4")
    wire, at, found = deliveries(layout([plain, plain, other, own, own, further])), 0, []
    scan = scan_of()
    while at < len(wire):
        scan.look(wire, at, len(wire), method_end(wire, at))
        found.append((scan.first, scan.count, scan.marked, scan.own, scan.further))
        at = scan.stop
    assert found == [
        (1, 2, False, False, False),
        (3, 1, True, False, False),
        (4, 2, True, True, False),
        (6, 1, False, False, True),
    ]


@given(st.integers(0, 60), st.integers(0, 255))
def test_bytes_that_are_wrong_are_refused_or_waited_for(at: int, byte: int) -> None:
    wire = bytearray(deliveries(layout([({"priority": 1}, b"body")])))
    if at < len(wire):
        wire[at] = byte
    end = method_end(bytes(wire))
    scan = scan_of()
    if end > len(wire) or wire[end - 1] != END or at < 7:
        return
    try:
        scan.look(bytes(wire), 0, len(wire), end)
    except AmqpError:
        return
    assert scan.count <= 1
    assert scan.count == 1 or scan.wanted > len(wire)


@given(MESSAGES)
def test_what_leaves_one_server_enters_the_other(messages: list[tuple[dict[str, object], bytes]]) -> None:
    topic, names = b"$agents/rabbitmq/%2F/e/k", names_of(b"e", b"k")
    packets = packets_of(topic, names, layout(messages), hops.field(OWN))
    run = run_of(WITH_PROPERTIES, packets)
    assert run is not None
    assert run.count == len(messages)
    assert {one.topic for one in run.messages()} == {topic}
    writer, out = writer_of(b"other"), BytesWriter()
    writer.write_run(out, packets)
    assert (writer.written, writer.own, writer.unknown, writer.bad) == (len(messages), 0, 0, 0)
    assert read_publishes(out.getvalue()) == [
        ("e", "k", {**wanted["headers"], "x-treecast-hops": ["cluster1/lisbon"]}, wanted["priority"], body)
        for wanted, body in messages
    ]


def test_single_messages_are_written_as_runs_are() -> None:
    messages: list[tuple[dict[str, object], bytes]] = [({"priority": 1}, b"1"), ({"user_id": "anna"}, b"2")]
    packets = packets_of(b"t", names_of(b"e", b"k"), layout(messages), b"")
    together, apart = BytesWriter(), BytesWriter()
    writer_of(b"other").write_run(together, packets)
    writer = writer_of(b"other")
    for message in messages_in(run_of(WITH_PROPERTIES, packets), 1, 0, len(packets)):  # type: ignore[arg-type]
        assert writer.write(apart, message.payload, 0, len(message.payload))
    assert together.getvalue() == apart.getvalue()
    assert b"x-treecast-user-id" in apart.getvalue()


def test_own_messages_and_those_of_unknown_exchanges_are_left_out() -> None:
    mine = packets_of(b"t", names_of(b"e", b"k"), layout([({}, b"1")]), hops.field(OWN))
    unknown = packets_of(b"t", names_of(b"f", b"k"), layout([({}, b"1")]), b"")
    writer, out = writer_of(OWN), BytesWriter()
    writer.write_run(out, mine + unknown)
    assert (writer.written, writer.own, writer.unknown, writer.bad) == (0, 1, 1, 0)
    assert out.getvalue() == b""


@given(st.binary(max_size=60))
def test_other_payloads_are_counted_as_bad(payload: bytes) -> None:
    writer = writer_of(b"other")
    written = writer.write(BytesWriter(), payload, 0, len(payload))
    assert written or writer.bad + writer.unknown + writer.own == 1


def test_a_cut_off_publish_is_refused() -> None:
    packets = packets_of(b"t", names_of(b"e", b"k"), layout([({}, b"1")]), b"")
    for end in range(len(packets)):
        with pytest.raises(BadPayload):
            payload_at(packets, 0, end)


def test_publishes_are_written_from_a_layout() -> None:
    out = BytesWriter()
    assert (
        write_publishes(out, 1, FRAME - 8, publish_head(1, b"e", b"k"), layout([({"priority": 3}, b"1")]))
        == 1
    )
    assert read_publishes(out.getvalue()) == [("e", "k", {}, 3, b"1")]


def writer_of(own: bytes) -> PublishWriter:
    writer = PublishWriter(1, FRAME - 8, own, False)
    writer.use_exchanges({b"e"})
    return writer


def read_publishes(data: bytes) -> list[tuple[object, ...]]:
    """Reads publishes with pamqp."""
    found: list[tuple[object, ...]] = []
    exchange = key = ""
    properties, left, body = None, 0, b""
    while data:
        size, channel, value = frame.unmarshal(data)
        assert channel == 1
        data = data[size:]
        if isinstance(value, commands.Basic.Publish):
            assert not value.mandatory
            exchange, key = value.exchange, value.routing_key
        elif isinstance(value, header.ContentHeader):
            properties, left, body = value.properties, value.body_size, b""
        else:
            body += value.value
            left -= len(value.value)
        if properties is not None and left == 0:
            found.append((exchange, key, properties.headers or {}, properties.priority, body))
            properties = None
    return found
