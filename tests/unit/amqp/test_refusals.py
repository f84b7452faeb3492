"""Refusals: their codes, and whether they close the channel or the connection, as in RabbitMQ 4.3."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pamqp import commands, frame
from tests.unit.amqp.face import Basic, Channel, Client, Connection, MemoryHost, Queue, content, publish
from tests.unit.script import Like

from treecast.middleware.broker.queues import QueueSettings, Reason
from treecast.shims.amqp import AmqpSettings, codec, session_table
from treecast.shims.amqp.codec import PROTOCOL_HEADER
from treecast.shims.amqp.session_channels import CODES
from treecast.shims.amqp.session_host import OpenAccess
from treecast.shims.passwords import Secret

Exchange = commands.Exchange


def method(channel: int, index: int, fields: bytes = b"") -> bytes:
    return codec.frame(codec.METHOD, channel, index.to_bytes(4, "big") + fields)


def marshal(one: object, channel: int = 1) -> bytes:
    return frame.marshal(one, channel)  # type: ignore[arg-type]


def header(size: int, kind: int = 60, weight: int = 0) -> bytes:
    payload = kind.to_bytes(2, "big") + weight.to_bytes(2, "big") + size.to_bytes(8, "big") + b"\0\0"
    return codec.frame(codec.HEADER, 1, payload)


PUBLISH = marshal(Basic.Publish(routing_key="q"))
BODY = codec.frame(codec.BODY, 1, b"abcde")
NESTED = b"S\0\0\0\1x"
for _ in range(100):
    NESTED = b"F" + (2 + len(NESTED)).to_bytes(4, "big") + b"\1a" + NESTED
DEEP = (2 + len(NESTED)).to_bytes(4, "big") + b"\1a" + NESTED
BOTTOMLESS = b"".join(
    b"F" + size.to_bytes(4, "big") + b"\1a" for size in range(120_000, 0, -7)
)  # each inside the one before


@pytest.mark.parametrize(
    ("sent", "channel", "code"),
    [
        # closes the channel
        (marshal(Basic.Ack(1)), 1, 406),
        (marshal(Basic.Nack(7, True)), 1, 406),
        (marshal(Basic.Reject(1)), 1, 406),
        (marshal(Basic.Ack(0)), 1, 406),
        (marshal(Queue.Declare(queue="no", passive=True)), 1, 404),
        (marshal(Queue.Declare(queue="amq.no", durable=True)), 1, 403),
        (marshal(Queue.Declare(queue="q", durable=True, arguments={"x-max-length": 5})), 1, 406),
        (marshal(Queue.Declare(queue="x", durable=True, arguments={"x-expires": "a"})), 1, 406),
        (marshal(Queue.Bind(queue="q", exchange="no")), 1, 404),
        (marshal(Queue.Bind(queue="q", exchange="")), 1, 403),
        (marshal(Exchange.Bind(destination="", source="amq.topic")), 1, 403),
        (marshal(Exchange.Unbind(destination="", source="amq.topic")), 1, 403),
        (marshal(Queue.Purge(queue="no")), 1, 404),
        (marshal(Queue.Delete(queue="q", if_empty=True)), 1, 406),
        (marshal(Exchange.Declare(exchange="amq.topic", exchange_type="direct", durable=True)), 1, 406),
        (marshal(Exchange.Declare(exchange="x", exchange_type="odd")), 1, 406),
        (marshal(Exchange.Delete(exchange="amq.topic")), 1, 403),
        (marshal(Exchange.Declare(exchange="no", passive=True)), 1, 404),
        (marshal(Basic.Get(queue="no")), 1, 404),
        (marshal(Basic.Get(queue="")) + b"", 1, 0),  # the last declared queue
        (marshal(Basic.Consume(queue="no")), 1, 404),
        (marshal(Basic.Consume(queue="amq.rabbitmq.reply-to")), 1, 406),
        (marshal(commands.Tx.Commit()), 1, 406),
        (publish("q", b"x", "no"), 1, 404),
        (publish("q", b"x", "amq.rabbitmq.trace"), 1, 403),
        (publish("q", b"x", expiration="soon"), 1, 406),
        (publish("q", b"x", expiration="10.0"), 1, 406),
        (publish("q", b"x", expiration="-1"), 1, 406),
        (publish("q", b"x", expiration=" 1"), 1, 406),
        (publish("q", b"x", expiration="315360000001"), 1, 406),
        (publish("q", b"x", headers={"CC": ["k" * 70_000]}), 1, 406),
        (publish("q", b"x", user_id="somebody"), 1, 406),
        (publish("q", b"x", reply_to="amq.rabbitmq.reply-to"), 1, 406),
        (publish("q", b"x", headers={"CC": "q"}), 1, 406),
        (PUBLISH + header((16 << 20) + 1), 1, 406),
        # closes the connection
        (marshal(Basic.Qos(prefetch_size=1)), 0, 540),
        (marshal(Basic.Recover(False)), 0, 540),
        (marshal(Channel.Flow(False)), 0, 540),
        (marshal(Queue.Declare(queue="transient")), 0, 541),
        (marshal(Channel.Open()), 0, 504),
        (marshal(Basic.Ack(1), 2), 0, 504),
        (publish("q", b"x", channel=2), 0, 504),
        (marshal(Channel.Open(), 3000), 0, 530),
        (marshal(Channel.Open(), 0), 0, 504),
        (marshal(Connection.Open("/"), 0), 0, 504),
        (marshal(Connection.Close(200, "", 0, 0), 1), 0, 503),
        (method(1, 99 << 16 | 1), 0, 503),
        (marshal(Basic.QosOk()), 0, 503),
        (method(1, 50 << 16 | 10, b"\0"), 0, 502),
        (method(1, 50 << 16 | 10, b"\0\0\1q\2" + DEEP), 0, 502),
        (method(1, 50 << 16 | 10, b"\0\0\1q\2" + len(BOTTOMLESS).to_bytes(4, "big") + BOTTOMLESS), 0, 502),
        (method(1, codec.PUBLISH, b"\0\0\5ab"), 0, 502),
        (method(1, codec.PUBLISH, b"\0\0\0\0\2") + header(0), 0, 540),  # with the immediate flag
        (codec.frame(codec.METHOD, 1, b"\0"), 0, 502),
        (header(1), 0, 505),
        (BODY, 0, 505),
        (PUBLISH + BODY, 0, 505),
        (PUBLISH + PUBLISH, 0, 505),
        (PUBLISH + header(5, kind=50), 0, 505),
        (PUBLISH + header(5) + header(5), 0, 505),
        (PUBLISH + header(5) + marshal(Basic.Ack(1)), 0, 505),
        (PUBLISH + header(4) + BODY, 0, 501),
        (PUBLISH + codec.frame(codec.HEADER, 1, b"\0\x3c"), 0, 501),
        (PUBLISH + codec.frame(codec.HEADER, 1, header(0)[7:-1] + b"x"), 0, 502),
        (PUBLISH + codec.frame(codec.HEADER, 1, header(0)[7:-3] + b"\x80\x00\5ab"), 0, 502),
        (codec.frame(4, 1, b"x"), 0, 501),
        (codec.frame(codec.HEARTBEAT, 1, b""), 0, 505),
        (BODY[:-1] + b"\0", 0, 501),
        (b"\1\0\1" + (131072).to_bytes(4, "big") + b"x" * 9, 0, 501),
        (b"\1\0\1\xff\xff\xff\xff" + b"x", 0, 501),
    ],
)
@pytest.mark.parametrize("bytewise", [False, True])
def test_each_refusal_has_its_code(
    client: Client, sent: bytes, channel: int, code: int, bytewise: bool
) -> None:
    client.declare()
    client.publish("q", b"there")
    client.got()
    for piece in [bytes((byte,)) for byte in sent[:3000]] + [sent[3000:]] if bytewise else [sent]:
        client.send_bytes(piece)
    if code == 0:
        assert len(client.messages()) == 1
        return
    assert client.closed() == (channel, code)
    if channel:
        client.send(Channel.CloseOk())
        client.ask(Channel.Open(), Channel.OpenOk)
        client.ask(Channel.Open(), Channel.OpenOk, 2)
    else:
        assert client.session.state.failure.startswith(codec.NAMES[code])
        client << PUBLISH >> []
        client.send(Connection.CloseOk(), channel=0)
        assert client.session.state.phase == session_table.CLOSED
        assert client.session.output.closing


def test_words_are_rabbitmqs(client: Client) -> None:
    for asked, text in (
        (Basic.Ack(9), "PRECONDITION_FAILED - unknown delivery tag 9"),
        (Queue.Declare(queue="no", passive=True), "NOT_FOUND - no queue 'no' in vhost '/'"),
        (
            Exchange.Declare(exchange="x", exchange_type="odd"),
            "PRECONDITION_FAILED - unknown exchange type 'odd'",
        ),
    ):
        closed = client.ask(asked, Channel.Close)
        assert closed.reply_text == text
        assert closed.class_id << 16 | closed.method_id == asked.index
        client.send(Channel.CloseOk())
        client.ask(Channel.Open(), Channel.OpenOk)


@pytest.mark.parametrize(
    ("sent", "index"),
    [
        (header(1), 0),
        (BODY, 0),
        (PUBLISH + header(5) + BODY + BODY, 0),
        (PUBLISH + BODY, Basic.Publish.index),
        (PUBLISH + header(5) + header(5), Basic.Publish.index),
    ],
)
def test_unexpected_content_names_the_publish_that_it_interrupts(
    client: Client, sent: bytes, index: int
) -> None:
    client.declare()
    (close,) = client << sent >> Like(Connection.Close, reply_code=505)
    assert close.class_id << 16 | close.method_id == index


def test_what_still_comes_on_a_channel_that_ends_is_not_looked_at(client: Client) -> None:
    client.declare()
    client.send_bytes(publish("q", b"1", "no") + publish("q", b"2") * 3 + marshal(Basic.Ack(99)))
    assert client.closed() == (1, 404)
    client << [publish("q", b"3"), Channel.CloseOk(), Channel.Open()] >> Channel.OpenOk
    assert client.count() == 0


def test_confirms_are_said_before_the_channel_ends(client: Client) -> None:
    client.declare()
    client.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
    client << publish("q", b"1") * 3 + publish("q", b"2", "no")
    client >> [Like(Basic.Ack, delivery_tag=3), Channel.Close]


def test_a_consumer_tag_is_used_once(client: Client) -> None:
    client.declare()
    client.consume()
    client.send(Basic.Consume(queue="q", consumer_tag="t"))
    assert client.closed() == (0, 530)


def test_a_second_exclusive_consumer_is_refused(client: Client) -> None:
    client.declare()
    client.consume(exclusive=True)
    other = client.host.client()
    other.send(Basic.Consume(queue="q", consumer_tag="o"))
    assert other.closed() == (1, 403)


def test_modes_exclude_each_other(client: Client) -> None:
    client.ask(commands.Tx.Select(), commands.Tx.SelectOk)
    client.send(commands.Confirm.Select())
    assert client.closed() == (1, 406)


def test_any_name_of_utf_8_may_be_used(client: Client) -> None:
    name = "früh & spät!\t*"
    data = name.encode()
    fields = b"\0\0" + codec.short(data) + b"\2" + b"\0\0\0\0"
    client.send_bytes(method(1, 50 << 16 | 10, fields))
    answer = client.got_bytes()
    assert codec.short(data) in answer
    client.send_bytes(method(1, codec.PUBLISH, b"\0\0\0" + codec.short(data) + b"\0") + content(1, b"x"))
    client.send_bytes(method(1, 60 << 16 | 70, b"\0\0" + codec.short(data) + b"\1"))
    assert b"x\xce" in client.got_bytes()


def test_transient_queues_where_they_are_permitted() -> None:
    host = MemoryHost(queues=QueueSettings(transient_queues=True))
    assert host.client().declare(durable=False) == "q"


def test_every_reason_has_a_code_and_every_state_its_refusals() -> None:
    assert set(CODES) == set(Reason)
    assert set(session_table.CONNECTION) == set(session_table.CONNECTION_REFUSED)
    assert set(session_table.CONNECTION) == set(session_table.CONNECTION_STATES)
    assert (
        set(session_table.CHANNEL) == set(session_table.CHANNEL_REFUSED) == set(session_table.CHANNEL_STATES)
    )


def test_every_action_of_a_channel_is_one_of_its_methods(client: Client) -> None:
    channel = client.session.channels.by_number[1]
    for part, name in session_table.CHANNEL[session_table.RUNNING].values():
        assert callable(getattr(getattr(channel, part), name))


# --- before the connection is open


def test_another_protocol_is_told_which_is_spoken(host: MemoryHost) -> None:
    for sent in (
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"GET / HTTP/1.1\r\n",
        b"AMQP\x00\x00\x09\x00",
    ):
        client = Client(host)
        client.send_bytes(sent)
        assert client.got_bytes() == PROTOCOL_HEADER
        assert client.session.output.closing
    assert "another protocol" in client.session.state.failure


class OneUser(OpenAccess):
    """Knows `guest`, who may write to `mine` only."""

    def secret(self, user: str) -> Secret:
        return Secret(lambda password: (user, password) == ("guest", b"right"), cheap=True)

    def may(self, user: str, vhost: str, permission: str, name: bytes) -> bool:
        return permission != "write" or name == b"mine"

    def renewed(self, user: str, secret: bytes) -> bool:
        return secret == b"good"


def test_a_wrong_password_is_refused_as_each_client_understands_it() -> None:
    host = MemoryHost(access=OneUser())
    client = Client(host)
    client.log_in(password="wrong")
    assert client.closed() == (0, 403)
    old = Client(host)
    old.log_in(password="wrong", authentication_failure_close=False)
    assert old.got_bytes() == b""
    assert old.session.output.closing
    assert old.session.state.failure.startswith("ACCESS_REFUSED - Login was refused using")


def open_with(settings: AmqpSettings, tune: Connection.TuneOk, vhost: str = "/") -> tuple[int, int]:
    client = Client(MemoryHost(settings))
    client.log_in()
    client.got()
    client.send(tune, Connection.Open(vhost), channel=0)
    return client.closed()


@pytest.mark.parametrize(
    "tune",
    [
        Connection.TuneOk(2048, 131072, 0),
        Connection.TuneOk(0, 131072, 0),
        Connection.TuneOk(10, 131073, 0),
        Connection.TuneOk(10, 0, 0),
        Connection.TuneOk(10, 4096, 0),
    ],
)
def test_limits_that_are_not_the_servers(tune: Connection.TuneOk) -> None:
    assert open_with(AmqpSettings(), tune) == (0, 530)


def test_a_virtual_host_that_is_not_there() -> None:
    assert open_with(AmqpSettings(), Connection.TuneOk(10, 131072, 0), "no") == (0, 530)


def test_an_unknown_mechanism(host: MemoryHost) -> None:
    client = Client(host)
    client.send_bytes(PROTOCOL_HEADER)
    client.got()
    client.send(Connection.StartOk({}, "SECRET", "x"), channel=0)
    assert client.closed() == (0, 503)


def test_no_method_of_a_channel_before_the_connection_is_open(host: MemoryHost) -> None:
    client = Client(host)
    client.log_in()
    client.got()
    client.send(Channel.Open())
    assert client.closed() == (0, 504)


def logged_in(access: OneUser) -> Client:
    client = Client(MemoryHost(access=access))
    client.log_in(password="right")
    client.got()
    client.send(Connection.TuneOk(10, 131072, 0), Connection.Open("/"), channel=0)
    client.got()
    client.ask(Channel.Open(), Channel.OpenOk)
    return client


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: publish("q", b"x", "amq.topic"),
        lambda: publish("q", b"x"),
        lambda: publish("q", b"x", "amq.topic", headers={"CC": ["r"]}),
        lambda: marshal(Queue.Bind(queue="theirs", exchange="amq.topic")),
    ],
)
def test_who_may_not_write(attempt: Callable[[], bytes]) -> None:
    client = logged_in(OneUser())
    (close,) = client << attempt() >> Like(Channel.Close, reply_code=403)
    assert "refused for user 'guest'" in close.reply_text


def test_a_secret_is_renewed_or_refused() -> None:
    client = logged_in(OneUser())
    client.ask(Connection.UpdateSecret("good", "it expires"), Connection.UpdateSecretOk, 0)
    client.send(Connection.UpdateSecret("bad", "it expires"), channel=0)
    assert client.closed() == (0, 530)
