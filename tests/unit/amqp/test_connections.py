"""Connections: heartbeats both ways, alarms, closing, and the announced properties."""

from __future__ import annotations

from tests.unit.amqp.face import Basic, Channel, Client, Connection, MemoryHost, publish

from treecast.shims.amqp.codec import HEARTBEAT_FRAME, PROTOCOL_HEADER


def test_what_the_server_says_of_itself(host: MemoryHost) -> None:
    client = Client(host)
    client.send_bytes(PROTOCOL_HEADER)
    (start,) = client.got()
    assert isinstance(start, Connection.Start)
    assert (start.version_major, start.version_minor, start.mechanisms) == (0, 9, "PLAIN AMQPLAIN")
    capabilities = start.server_properties["capabilities"]  # type: ignore[index]
    for name in ("publisher_confirms", "basic.nack", "consumer_cancel_notify", "connection.blocked"):
        assert capabilities[name] is True  # type: ignore[index, call-overload]


def test_the_header_byte_by_byte(host: MemoryHost) -> None:
    client = Client(host)
    for byte in PROTOCOL_HEADER:
        assert client.got_bytes() == b""
        client.send_bytes(bytes((byte,)))
    (start,) = client.got()
    assert isinstance(start, Connection.Start)


def test_heartbeats_are_sent_while_nothing_else_is(host: MemoryHost) -> None:
    client = host.client(heartbeat=10)
    session = client.session
    assert session.tick(host.now) == host.now + 5
    host.now += 5
    session.tick(host.now)
    assert client.got_bytes() == HEARTBEAT_FRAME
    host.now += 4
    client.send_bytes(HEARTBEAT_FRAME)
    session.tick(host.now)
    assert client.got_bytes() == b""
    host.now += 1
    session.tick(host.now)
    assert client.got_bytes() == HEARTBEAT_FRAME


def test_a_silent_client_is_given_up_after_two_intervals(host: MemoryHost) -> None:
    client, other = host.client(heartbeat=10), host.client()
    client.declare()
    client.publish("q", b"1")
    assert len(client.consume()) == 1
    host.now += 19
    client.send_bytes(HEARTBEAT_FRAME)
    host.now += 19
    client.session.tick(host.now)
    assert client.session.state.failure == ""
    host.now += 1
    assert client.session.tick(host.now) == 0.0
    assert client.session.state.failure == "missed heartbeats from client, timeout: 10s"
    assert other.count() == 1


def test_who_wants_no_heartbeats_is_never_given_up(host: MemoryHost) -> None:
    client = host.client()
    host.now += 10_000
    assert client.session.tick(host.now) == 0.0
    assert client.got_bytes() == b""


def test_an_alarm_is_told_to_who_knows_of_such(host: MemoryHost) -> None:
    client = host.client()
    client.session.opening.block("low on memory")
    client.session.opening.block("low on memory")
    (blocked,) = client.got()
    assert isinstance(blocked, Connection.Blocked)
    assert blocked.reason == "low on memory"
    client.session.opening.unblock()
    (unblocked,) = client.got()
    assert isinstance(unblocked, Connection.Unblocked)
    assert not client.session.publishes
    client.publish("q", b"1")
    assert client.session.publishes


def test_an_alarm_that_is_on_is_told_at_the_beginning(host: MemoryHost) -> None:
    host.amqp.alarm = "low on disk"
    client = Client(host)
    client.log_in()
    client.got()
    client.send(Connection.TuneOk(10, 131072, 0), Connection.Open("/"), channel=0)
    opened, blocked = client.got()
    assert isinstance(opened, Connection.OpenOk)
    assert isinstance(blocked, Connection.Blocked)


def test_a_client_that_leaves_is_answered_last(host: MemoryHost) -> None:
    client = host.client()
    client.declare()
    client.publish("q", b"1")
    assert len(client.consume()) == 1
    client.send(Connection.Close(200, "bye", 0, 0), channel=0)
    (answer,) = client.got()
    assert isinstance(answer, Connection.CloseOk)
    assert client.session.output.closing
    assert host.client().count() == 1


def test_the_server_ends_a_connection(host: MemoryHost) -> None:
    client = host.client()
    client.session.close(host.now)
    assert client.closed() == (0, 320)
    client.send(Connection.CloseOk(), channel=0)
    assert client.session.output.closing


def test_channels_are_apart(host: MemoryHost) -> None:
    client = host.client(1, 2)
    client.declare()
    client.publish("q", b"1", b"2", channel=2)
    assert len(client.consume(channel=2)) == 2
    client.send(Basic.Ack(1))
    assert client.closed() == (1, 406)
    client.send(Basic.Ack(2, True), channel=2)
    assert client.got() == []
    assert host.vhost.router.queue(b"q").unsettled == 0
    client.ask(Channel.Close(200, "", 0, 0), Channel.CloseOk, 2)


def test_contents_of_two_channels_may_come_by_turns(host: MemoryHost) -> None:
    client = host.client(1, 2)
    client.declare()
    one, other = publish("q", b"1" * 20, piece=10), publish("q", b"2" * 20, channel=2, piece=10)
    client.send_bytes(one[:-18] + other[:-18] + one[-18:] + other[-18:])
    assert client.count() == 2


def test_a_session_wakes_the_turn_once_for_all_that_it_gathers(host: MemoryHost) -> None:
    client = host.client()
    host.woken.clear()
    client.send(Basic.Qos(prefetch_count=1), Basic.Qos(prefetch_count=2))
    assert host.woken == [client.session]
    client.got()
    client.send(Basic.Qos(prefetch_count=1))
    assert host.woken == [client.session] * 2
