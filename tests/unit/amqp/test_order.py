"""Messages return to a queue: others get them in order, and the next method sees the queue with them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import base, commands, frame
from tests.unit.amqp.face import Basic, Channel, Client, Connection, MemoryHost, Message, Queue, publish

NUMBERS = [b"%d" % number for number in range(8)]
SINGLE = {"single_active_consumer": True}


def close_channel(client: Client) -> None:
    client.send(Channel.Close(200, "", 0, 0))


def close_connection(client: Client) -> None:
    client.send(Connection.Close(200, "", 0, 0), channel=0)


def cancel_first(client: Client) -> None:
    """As pika closes a channel."""
    client.send(Basic.Cancel("t"))
    client.send(Channel.Close(200, "", 0, 0))


def break_a_rule(client: Client) -> None:
    client.send(Queue.Declare(queue="not there", passive=True))


def close_by_server(client: Client) -> None:
    client.session.close(client.host.now)


ENDS = [close_channel, close_connection, cancel_first, break_a_rule, close_by_server, Client.drop]


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_next_single_active_consumer_gets_all_in_order(
    host: MemoryHost, ends: Callable[[Client], None], kind: str
) -> None:
    first, second = host.client(), host.client()
    first.declare(queue_type=kind, **SINGLE)
    first.ask(Basic.Qos(prefetch_count=3), Basic.QosOk)
    first.consume()
    second.consume()
    second.publish("q", *NUMBERS)
    assert first.bodies() == NUMBERS[:3]
    ends(first)
    found = second.messages()
    assert [one.body for one in found] == NUMBERS
    assert [one.method.redelivered for one in found] == [True] * 3 + [False] * 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("ends", [close_connection, close_by_server, Client.drop])
def test_no_channel_of_a_connection_that_ends_gets_what_another_one_returns(
    host: MemoryHost, ends: Callable[[Client], None]
) -> None:
    first, second = host.client(1, 2, 3), host.client()
    first.declare(queue_type="quorum", delivery_limit=1, **SINGLE)
    for channel in (1, 2, 3):
        first.consume(tag="t", channel=channel)
    second.consume()
    second.publish("q", *NUMBERS)
    assert first.bodies() == NUMBERS
    ends(first)
    found = second.messages()
    assert [one.body for one in found] == NUMBERS
    assert {one.headers["x-delivery-count"] for one in found} == {1}


def test_other_consumers_get_what_a_channel_closed_by_the_server_had(host: MemoryHost) -> None:
    first, second = host.client(), host.client()
    first.declare()
    first.consume()
    second.publish("q", *NUMBERS)
    second.consume()
    close_by_server(first)
    assert second.bodies() == NUMBERS


def in_one_chunk(client: Client, *methods: base.Frame) -> list[object]:
    client.send_bytes(b"".join(frame.marshal(one, 1) for one in methods))
    return client.got()


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_full_queue_drops_its_head_before_the_next_method(client: Client, length: int) -> None:
    client.declare(max_length=length)
    numbers = [b"%d" % number for number in range(2 * length)]
    client.publish("q", *numbers[:length])
    for _ in range(length):
        client.ask_for_one()
    client.publish("q", *numbers[length:])
    (declared,) = in_one_chunk(client, Basic.Nack(length, True, True), Queue.Declare(queue="q", passive=True))
    assert isinstance(declared, Queue.DeclareOk)
    assert declared.message_count == length
    got = in_one_chunk(client, Basic.Get(queue="q"))[0]
    assert isinstance(got, Message)
    assert got.body == numbers[length]


def test_what_is_dropped_cannot_be_got(client: Client) -> None:
    client.declare(max_length=1)
    client.publish("q", b"old")
    client.ask_for_one()
    client.publish("q", b"new")
    (got,) = in_one_chunk(client, Basic.Nack(1, False, True), Basic.Get(queue="q"))
    assert isinstance(got, Message)
    assert got.body == b"new"


def test_a_count_knows_what_an_acknowledgement_has_made_room_for(host: MemoryHost) -> None:
    client = host.client()
    client.declare()
    client.ask(Basic.Qos(prefetch_count=1), Basic.QosOk)
    client.consume()
    client.send_bytes(publish("q", b"1") + publish("q", b"2"))
    assert client.bodies() == [b"1"]
    delivered, declared = in_one_chunk(client, Basic.Ack(1), Queue.Declare(queue="q", passive=True))
    assert isinstance(delivered, Message)
    assert isinstance(declared, Queue.DeclareOk)
    assert declared.message_count == 0


@pytest.mark.parametrize("passive", [True, False])
def test_a_declaration_renews_a_queue_that_expires(host: MemoryHost, passive: bool) -> None:
    client = host.client()
    client.declare(expires=4000)
    for _ in range(4):
        host.wait(2)
        arguments = {} if passive else {"x-expires": 4000}
        method = Queue.Declare(queue="q", passive=passive, durable=True, arguments=arguments)  # type: ignore[arg-type]
        client.ask(method, Queue.DeclareOk)
    for _ in range(3):
        host.wait(2)
        client.send(Basic.Get(queue="q"))
        assert isinstance(client.got()[0], commands.Basic.GetEmpty)
    host.wait(2)
    client.publish("q", b"does not renew it")
    host.wait(2.5)
    client.send(Queue.Declare(queue="q", passive=True))
    assert client.closed() == (1, 404)
