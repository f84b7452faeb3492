"""Any cut of the bytes has the same effect; runs equal single publishes; no bytes affect other clients."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import commands, frame
from tests.unit.amqp.face import Basic, Client, MemoryHost, Message, publish

from treecast.shims.amqp.codec import PROTOCOL_HEADER

marks = st.fixed_dictionaries(
    {},
    optional={
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 3),
        "expiration": st.sampled_from(["1000", "60000"]),
        "content_type": st.just("text/plain"),
        "headers": st.sampled_from([{"a": 1}, {"CC": ["b"]}, {"BCC": ["b"]}]),
        "correlation_id": st.sampled_from(["1", "2"]),
    },
)
publishes = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "nobody"]),
        st.sampled_from(["", "amq.topic", "amq.headers"]),
        st.binary(max_size=40),
        st.booleans(),
        st.sampled_from([7, 100]),
        marks,
    ),
    max_size=12,
)


def stream(found: list[tuple[str, str, bytes, bool, int, dict[str, object]]]) -> bytes:
    out = b""
    for key, exchange, body, mandatory, piece, properties in found:
        out += publish(key, body, exchange, 1, mandatory, piece, **properties)
    acks = b"".join(frame.marshal(Basic.Ack(tag), 1) for tag in range(1, len(found) + 1))
    return out + acks


def prepared() -> tuple[Client, Client]:
    host = MemoryHost()
    client, taker = host.client(), host.client()
    client.declare("a", max_priority=3, max_length=8, overflow="reject-publish")
    client.declare("b")
    client.bind("amq.topic", "a", "#")
    client.bind("amq.headers", "b")
    client.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
    return client, taker


def outcome(client: Client, taker: Client) -> object:
    """Returns the publisher's confirms and other answers, and the contents of the queues."""
    confirmed: dict[int, bool] = {}
    returned = []
    last = 0
    for one in client.got():
        if isinstance(one, Message):
            returned.append((one.body, one.method.routing_key))  # type: ignore[attr-defined]
        elif isinstance(one, Basic.Ack | Basic.Nack):
            tags = range(last + 1, one.delivery_tag + 1) if one.multiple else [one.delivery_tag]
            for tag in tags:
                assert tag not in confirmed
                confirmed[tag] = isinstance(one, Basic.Ack)
            last = one.delivery_tag
        else:
            returned.append(type(one))
    held = []
    for queue in ("a", "b"):
        for one in taker.consume(queue, queue, no_ack=True):
            assert isinstance(one, Message)
            held.append((queue, one.body, dict(one.properties), one.method.routing_key))  # type: ignore[attr-defined]
    return confirmed, returned, held


def wanted(data: bytes) -> object:
    """Feeds one frame at a time: no publish is whole in its chunk, so there are no runs."""
    client, taker = prepared()
    while data:
        used, _, _ = frame.unmarshal(data)
        client.send_bytes(data[:used])
        data = data[used:]
    return outcome(client, taker)


@given(publishes, st.data())
@settings(max_examples=50, deadline=None)
def test_runs_and_cuts_change_nothing(
    found: list[tuple[str, str, bytes, bool, int, dict[str, object]]], data: st.DataObject
) -> None:
    sent = stream(found)[: -21 * len(found) or None] if found else b""
    expected = wanted(sent)
    client, taker = prepared()
    client.send_bytes(sent)
    assert outcome(client, taker) == expected
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    client, taker = prepared()
    for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        client.send_bytes(sent[begin:end])
    assert outcome(client, taker) == expected


def test_every_split_in_two() -> None:
    sent = publish("a", b"one", piece=2) + publish("a", b"two", delivery_mode=2) * 2 + publish("b", b"")
    expected = wanted(sent)
    for at in range(len(sent) + 1):
        client, taker = prepared()
        client.send_bytes(sent[:at])
        client.send_bytes(sent[at:])
        assert outcome(client, taker) == expected


def test_publishes_that_are_alike_are_one_entry_in_the_queue() -> None:
    client, _ = prepared()
    client.publish("b", *[b"%d" % n for n in range(100)], message_id="x")
    queue = client.host.vhost.router.queue(b"b")
    part = queue._backlogs[0].first
    assert part is not None
    assert part.count == 100


def test_messages_that_differ_in_what_need_not_be_alike_are_one_too() -> None:
    client, _ = prepared()
    client.send_bytes(
        b"".join(publish("b", b"x", message_id=str(n), headers={"traceparent": str(n)}) for n in range(20))
    )
    assert client.host.vhost.router.queue(b"b")._backlogs[0].first.count == 20


def test_acks_in_one_chunk_are_settled_whatever_their_order() -> None:
    for seed in range(20):
        client, _ = prepared()
        client.publish("b", *[b"x"] * 30)
        client.got()
        assert len(client.consume("b")) == 30
        tags = list(range(1, 31))
        if seed:
            random.Random(seed).shuffle(tags)
        client.send(*[Basic.Ack(tag) for tag in tags])
        assert client.got() == []
        assert client.session.channels.by_number[1].settling.unsettled.count == 0
        assert client.host.vhost.router.queue(b"b").unsettled == 0


@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
@settings(max_examples=80, deadline=None)
def test_no_bytes_at_all_do_harm(chunks: list[bytes], opened: bool) -> None:
    host = MemoryHost()
    neighbour = host.client()
    neighbour.declare()
    client = host.client() if opened else Client(host)
    if not opened:
        client.send_bytes(PROTOCOL_HEADER)
    for chunk in chunks:
        client.send_bytes(chunk)
    client.drop()
    neighbour.publish("q", b"steady")
    assert neighbour.count() == 1


mutable = publish("q", b"hello", headers={"a": {"b": [1, "x"]}}, expiration="5", delivery_mode=2) + b"".join(
    frame.marshal(one, 1)  # type: ignore[arg-type]
    for one in (
        Basic.Consume(queue="q", arguments={"x-priority": 5}),
        Basic.Ack(1),
        Basic.Nack(1),
        commands.Queue.Declare(queue="r", durable=True, arguments={"x-max-length": 5}),
        commands.Tx.Select(),
    )
)


@given(st.lists(st.tuples(st.integers(0, len(mutable) - 1), st.integers(0, 255)), max_size=4))
@settings(max_examples=80, deadline=None)
def test_damaged_frames_do_no_harm(changes: list[tuple[int, int]]) -> None:
    host = MemoryHost()
    neighbour, client = host.client(), host.client()
    neighbour.declare("steady")
    client.declare()
    data = bytearray(mutable)
    for at, byte in changes:
        data[at] = byte
    client.send_bytes(bytes(data))
    client.drop()
    neighbour.publish("steady", b"1")
    assert neighbour.count("steady") >= 1
