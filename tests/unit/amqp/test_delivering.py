"""Message flow: publishing, consuming, getting, settling."""

from __future__ import annotations

import pytest
from pamqp import commands
from tests.unit.amqp.face import Basic, Channel, Client, MemoryHost, Message, Queue, came, publish
from tests.unit.script import Like

from treecast.shims.amqp import AmqpSettings

Exchange = commands.Exchange
Tx = commands.Tx
Confirm = commands.Confirm


def test_a_message_comes_out_as_it_went_in(client: Client) -> None:
    client.declare()
    properties = {"content_type": "text/plain", "delivery_mode": 2, "message_id": "7", "headers": {"a": 1}}
    client.publish("q", b"hello", **properties)
    (found,) = client.consume(no_ack=True)
    assert isinstance(found, Message)
    assert found.body == b"hello"
    assert isinstance(found.method, Basic.Deliver)
    method = found.method
    assert (method.consumer_tag, method.delivery_tag, method.redelivered) == ("t", 1, False)
    assert (method.exchange, method.routing_key) == ("", "q")
    for name, value in properties.items():
        assert getattr(found.properties, name) == value


def test_bodies_are_cut_to_what_each_client_takes(host: MemoryHost) -> None:
    sender, taker = host.client(), host.client(frame_max=8192)
    sender.declare()
    sender.publish("q", bytes(20_000), b"", bytes(8184), piece=9000)
    large, empty, exact = taker.consume()
    assert isinstance(large, Message)
    assert isinstance(empty, Message)
    assert isinstance(exact, Message)
    assert large.body == bytes(20_000)
    assert large.pieces == [8184, 8184, 3632]
    assert (empty.body, empty.pieces, exact.pieces) == (b"", [], [8184])


def test_prefetch_holds_back_and_an_ack_makes_room(client: Client) -> None:
    client.declare()
    client.ask(Basic.Qos(prefetch_count=2), Basic.QosOk)
    client.publish("q", *[b"%d" % n for n in range(5)])
    client << Basic.Consume(queue="q") >> [Basic.ConsumeOk, *came(b"0", b"1")]
    client << Basic.Ack(1) >> came(b"2")
    client << Basic.Ack(3, True) >> came(b"3", b"4")
    client << Basic.Ack(0, True) >> []
    assert client.session.channels.by_number[1].settling.unsettled.count == 0


def test_global_prefetch_is_taken_for_each_consumer(client: Client) -> None:
    """RabbitMQ 4.3 does this while the deprecated feature is not permitted."""
    client.declare()
    client.ask(Basic.Qos(prefetch_count=1, global_=True), Basic.QosOk)
    client.publish("q", b"1", b"2", b"3")
    assert len(client.consume(tag="a")) == 1
    assert len(client.consume(tag="b")) == 1


def test_acks_in_a_row_out_of_order_and_of_ranges(client: Client) -> None:
    client.declare()
    client.publish("q", *[b"%d" % n for n in range(10)])
    assert len(client.consume()) == 10
    client.send(*[Basic.Ack(tag) for tag in (1, 2, 3, 7, 5, 8)])
    assert client.session.channels.by_number[1].settling.unsettled.count == 4
    client << [Basic.Nack(9, False, True), Basic.Reject(4, True)]
    client >> came(b"3", b"8", redelivered=True)
    client.drop()
    assert client.host.vhost.router.queue(b"q").ready == 4


def test_what_a_lost_client_had_goes_back_in_order(host: MemoryHost) -> None:
    first, second = host.client(), host.client()
    first.declare()
    first.publish("q", *[b"%d" % n for n in range(6)])
    assert len(first.consume()) == 6
    first.send(Basic.Ack(3))
    first.drop()
    second << Basic.Consume(queue="q")
    found = second >> [Basic.ConsumeOk, *came(b"0", b"1", b"3", b"4", b"5", redelivered=True)]
    assert [one.delivery_tag for one in found[1:]] == [1, 2, 3, 4, 5]


def test_recover_gives_all_back(client: Client) -> None:
    client.declare()
    client.publish("q", b"1", b"2")
    assert len(client.consume()) == 2
    client << Basic.Recover(True) >> [Basic.RecoverOk, *came(b"1", b"2")]


def test_getting_one_by_one(client: Client) -> None:
    client.declare()
    client << Basic.Get(queue="q") >> Basic.GetEmpty
    client.publish("q", b"1", b"2")
    client << Basic.Get(queue="q") >> came(b"1", message_count=1, delivery_tag=1)
    client << Basic.Get(queue="", no_ack=True) >> came(b"2")
    client << [Basic.Reject(1, True), Basic.Get(queue="q")] >> came(b"1", redelivered=True, delivery_tag=3)


def test_confirms_of_a_chunk_are_one_and_returns_come_before(client: Client) -> None:
    client.declare()
    client.ask(Confirm.Select(), Confirm.SelectOk)
    client << [publish("q", b"x")] * 50 >> Like(Basic.Ack, delivery_tag=50, multiple=True)
    (
        client
        << publish("nobody", b"back", mandatory=True)
        >> [
            *came(b"back", reply_code=312, reply_text="NO_ROUTE", routing_key="nobody"),
            Like(Basic.Ack, delivery_tag=51, multiple=False),
        ]
    )


def test_a_smaller_message_may_fit_behind_one_that_is_refused(client: Client) -> None:
    client.declare(max_length_bytes=10, overflow="reject-publish")
    client.ask(Confirm.Select(), Confirm.SelectOk)
    client << [publish("q", one) for one in (b"1234", b"12345678", b"12345", b"12", b"1")]
    kinds = enumerate((Basic.Ack, Basic.Nack, Basic.Ack, Basic.Nack, Basic.Ack), 1)
    client >> [Like(kind, delivery_tag=tag, multiple=False) for tag, kind in kinds]


def test_what_a_full_queue_refuses_is_nacked(client: Client) -> None:
    client.declare(max_length=3, overflow="reject-publish")
    client.ask(Confirm.Select(), Confirm.SelectOk)
    client << [publish("q", b"x")] * 5
    client >> [
        Like(Basic.Ack, delivery_tag=3, multiple=True),
        Like(Basic.Nack, delivery_tag=5, multiple=True),
    ]


def test_dead_letters_say_where_they_were(client: Client) -> None:
    client.declare("dead")
    client.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    client.publish("q", b"1", expiration="60000", headers={"mine": "x"})
    assert len(client.consume()) == 1
    client.send(Basic.Reject(1, False))
    (found,) = client.consume("dead", "d")
    assert isinstance(found, Message)
    assert found.properties.expiration is None
    (death,) = found.headers["x-death"]  # type: ignore[misc]
    assert death["reason"] == "rejected"
    assert (death["queue"], death["exchange"], death["routing-keys"]) == ("q", "", ["q"])
    assert (death["count"], death["original-expiration"]) == (1, "60000")
    assert death["time"].timestamp() == 1_700_000_000
    assert found.headers["mine"] == "x"
    assert found.headers["x-first-death-queue"] == "q"
    assert found.headers["x-last-death-reason"] == "rejected"


@pytest.mark.parametrize("expiration", ["+10", "10", "0010"])
def test_an_expiration_is_a_whole_number(client: Client, expiration: str) -> None:
    client.declare()
    client.publish("q", b"1", expiration=expiration)
    assert client.count() == 1
    client.host.wait(0.011)
    assert client.count() == 0


def test_failed_deliveries_of_quorum_queues_are_shown(client: Client) -> None:
    client.declare(queue_type="quorum")
    client.publish("q", b"1")
    client.send(Basic.Get(queue="q"))
    assert "x-delivery-count" not in client.messages()[0].headers
    client.send(Basic.Reject(1, True), Basic.Get(queue="q"))
    assert client.messages()[0].headers["x-delivery-count"] == 1


def test_copies_go_to_their_keys_and_hidden_ones_are_not_shown(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.declare(name)
    client.publish("a", b"1", headers={"CC": ["b"], "BCC": ["c"], "x": 1})
    for name in ("a", "b", "c"):
        client.send(Basic.Get(queue=name, no_ack=True))
        (found,) = client.messages()
        assert found.headers == {"CC": ["b"], "x": 1}


def test_headers_decide_message_by_message(client: Client) -> None:
    client.declare("red")
    arguments = {"colour": "red"}
    client.ask(Queue.Bind(queue="red", exchange="amq.headers", arguments=arguments), Queue.BindOk)
    colours = ["red", "blue", "red", "red"]
    client.send_bytes(
        b"".join(
            publish("", b"%d" % number, "amq.headers", headers={"colour": colour})
            for number, colour in enumerate(colours)
        )
    )
    assert [one.body for one in client.consume("red")] == [b"0", b"2", b"3"]  # type: ignore[attr-defined]


def test_a_transaction_is_all_or_nothing(client: Client) -> None:
    client.declare()
    client.publish("q", b"before")
    assert len(client.consume()) == 1
    client.ask(Tx.Select(), Tx.SelectOk)
    client.publish("q", b"1", b"2")
    client.send(Basic.Ack(1))
    client.ask(Tx.Rollback(), Tx.RollbackOk)
    assert client.session.channels.by_number[1].settling.unsettled.count == 1
    client.publish("q", b"3")
    client.send(Basic.Ack(1), Tx.Commit())
    delivered, answer = client.got()
    assert isinstance(delivered, Message)
    assert delivered.body == b"3"
    assert isinstance(answer, Tx.CommitOk)
    assert client.session.channels.by_number[1].settling.unsettled.count == 1


def test_what_is_not_committed_is_bounded() -> None:
    host = MemoryHost(AmqpSettings(max_transaction_bytes=10_000))
    client = host.client(1, 2)
    client.declare()
    for channel in (1, 2):
        client.ask(Tx.Select(), Tx.SelectOk, channel)
    for _ in range(3):  # what was committed or rolled back does not count
        client.publish("q", bytes(8000))
        client.ask(Tx.Rollback(), Tx.RollbackOk)
        client.publish("q", bytes(8000))
        client.ask(Tx.Commit(), Tx.CommitOk)
    client.publish("q", bytes(8000))
    client.publish("q", bytes(1000), channel=2)
    client.publish("q", bytes(1000), channel=2)
    assert client.closed() == (2, 406)
    client.ask(Tx.Commit(), Tx.CommitOk)
    assert client.count() == 4
    assert client.session.state.uncommitted == 0


def test_what_is_not_committed_is_bounded_however_many_channels_and_messages_hold_it() -> None:
    host = MemoryHost(AmqpSettings(max_transaction_bytes=10_000))
    client = host.client(1, 2)
    client.declare()
    for channel in (1, 2):
        client.ask(Tx.Select(), Tx.SelectOk, channel)
    client.publish("q", bytes(8000))
    client.publish("q", bytes(8000), channel=2)
    assert client.closed() == (2, 406)
    client.ask(Tx.Rollback(), Tx.RollbackOk)
    for _ in range(30):  # an empty message takes memory, too
        client.publish("q", b"")
    assert client.closed() == (1, 406)


def test_direct_replies(host: MemoryHost) -> None:
    asker, answerer = host.client(), host.client()
    answerer.declare("rpc")
    assert asker.consume("amq.rabbitmq.reply-to", "r", no_ack=True) == []
    asker.publish("rpc", b"question", reply_to="amq.rabbitmq.reply-to")
    (question,) = answerer.consume("rpc", no_ack=True)
    assert isinstance(question, Message)
    reply_to = question.properties.reply_to
    assert reply_to is not None
    assert reply_to.startswith("amq.rabbitmq.reply-to.g1")
    answerer.publish(reply_to, b"answer")
    assert asker.bodies() == [b"answer"]
    asker.ask(Basic.Cancel("r"), Basic.CancelOk)
    answerer.publish(reply_to, b"late", mandatory=True)
    (returned,) = answerer.messages()
    assert returned.body == b"late"


def test_the_queue_of_direct_replies_is_always_there(host: MemoryHost) -> None:
    """FastStream declares it at the start, before any consumer."""
    client = host.client()
    for passive in (True, False):
        asked = Queue.Declare(queue="amq.rabbitmq.reply-to", passive=passive)
        declared = client.ask(asked, Queue.DeclareOk)
        assert (declared.queue, declared.message_count, declared.consumer_count) == (asked.queue, 0, 1)


def test_direct_replies_are_for_the_channel_that_asked(host: MemoryHost) -> None:
    asker, answerer = host.client(), host.client()
    answerer.declare("rpc")
    asker.consume("amq.rabbitmq.reply-to", "r", no_ack=True)
    asker.publish("rpc", b"question", reply_to="amq.rabbitmq.reply-to")
    (question,) = answerer.consume("rpc", no_ack=True)
    assert isinstance(question, Message)
    reply_to = question.properties.reply_to
    assert reply_to is not None
    declared = answerer.ask(Queue.Declare(queue=reply_to, passive=True), Queue.DeclareOk)
    assert (declared.message_count, declared.consumer_count) == (0, 1)
    assert answerer.ask(Queue.Delete(queue=reply_to), Queue.DeleteOk).message_count == 0
    for taking in (Basic.Get(queue=reply_to), Basic.Consume(queue=reply_to), Queue.Purge(queue=reply_to)):
        assert host.client().ask(taking, Channel.Close).reply_code == 404
    answerer.publish(reply_to, b"answer")
    assert asker.bodies() == [b"answer"]


def test_consumers_are_told_that_their_queue_is_gone(host: MemoryHost) -> None:
    taker, other = host.client(), host.client()
    taker.declare()
    taker.consume()
    other.ask(Queue.Delete(queue="q"), Queue.DeleteOk)
    (cancel,) = taker.got()
    assert isinstance(cancel, Basic.Cancel)
    assert (cancel.consumer_tag, cancel.nowait) == ("t", True)
    taker.consume(other.declare("r"), "t")


def test_a_client_that_does_not_read_gets_no_more_until_it_does(host: MemoryHost) -> None:
    sender, taker = host.client(), host.client()
    sender.declare()
    assert taker.consume(no_ack=True) == []
    taker.session.output.congest(True)
    sender.publish("q", b"1", b"2")
    assert sender.count() == 2
    taker.session.output.congest(False)
    taker.session.resume(host.now)
    assert taker.bodies() == [b"1", b"2"]


def test_a_turn_sends_about_a_megabyte_and_the_rest_later(host: MemoryHost) -> None:
    client = host.client()
    client.declare()
    for _ in range(40):
        client.publish("q", bytes(100_000))
    client.send(Basic.Consume(queue="q", no_ack=True))
    first = len(client.got()) - 1
    assert 10 <= first < 20
    rest = 0
    while rest + first < 40:
        client.session.resume(host.now)
        rest += len(client.got())
    assert client.count() == 0


def test_exclusive_queues_go_with_their_connection(host: MemoryHost) -> None:
    mine, other = host.client(), host.client()
    name = mine.ask(Queue.Declare(queue="", exclusive=True), Queue.DeclareOk).queue
    assert name.startswith("amq.gen-")
    other.send(Basic.Consume(queue=name))
    assert other.closed() == (1, 405)
    mine.drop()
    assert host.vhost.queues == {}


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic"])
def test_exchanges_are_declared_bound_and_deleted(client: Client, kind: str) -> None:
    client.ask(Exchange.Declare(exchange="x", exchange_type=kind, durable=True), Exchange.DeclareOk)
    client.ask(Exchange.Declare(exchange="y", exchange_type="fanout", durable=True), Exchange.DeclareOk)
    client.ask(Exchange.Bind(destination="y", source="x", routing_key="k"), Exchange.BindOk)
    client.declare()
    client.bind("y", "q")
    client.publish("k", b"1", exchange="x")
    assert client.count() == 1
    client.ask(Exchange.Unbind(destination="y", source="x", routing_key="k"), Exchange.UnbindOk)
    client.publish("k", b"2", exchange="x")
    client.ask(Queue.Unbind(queue="q", exchange="y"), Queue.UnbindOk)
    client.ask(Exchange.Delete(exchange="y"), Exchange.DeleteOk)
    assert client.ask(Queue.Purge(queue="q"), Queue.PurgeOk).message_count == 1
    assert client.ask(Queue.Delete(queue="q"), Queue.DeleteOk).message_count == 0


def test_a_channel_is_closed_and_its_number_used_again(client: Client) -> None:
    client.declare()
    client.publish("q", b"1")
    assert len(client.consume()) == 1
    client.ask(Channel.Close(200, "bye", 0, 0), Channel.CloseOk)
    client.ask(Channel.Open(), Channel.OpenOk)
    assert client.count() == 1


def test_only_what_is_stored_makes_an_answer_depend_on_the_disk(client: Client) -> None:
    client.declare()
    client.ask(Confirm.Select(), Confirm.SelectOk)
    client.publish("q", b"1", delivery_mode=1)
    assert not client.session.output.depends
    client.publish("q", b"1", delivery_mode=2)
    assert client.session.output.depends
    client.got()
    assert not client.session.output.depends


@pytest.mark.parametrize(("product", "more"), [("py-amqp", [b"2", b"3", b"4"]), ("pika", [])])
def test_celerys_client_raises_the_prefetch_of_the_consumers_that_it_has(
    host: MemoryHost, monkeypatch: pytest.MonkeyPatch, product: str, more: list[bytes]
) -> None:
    monkeypatch.setattr(Client, "product", product)
    client = host.client()
    client.declare()
    client.ask(Basic.Qos(prefetch_count=2), Basic.QosOk)
    client.publish("q", *[b"%d" % number for number in range(9)])
    assert len(client.consume()) == 2
    client.send(Basic.Qos(prefetch_count=5))
    answer, *found = client.got()
    assert isinstance(answer, Basic.QosOk)
    assert [one.body for one in found if isinstance(one, Message)] == more
    client.ask(Basic.Qos(prefetch_count=1), Basic.QosOk)
    client.send(Basic.Ack(1))
    assert client.bodies() == ([] if more else [b"2"])
