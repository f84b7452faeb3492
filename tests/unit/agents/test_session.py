"""A connection at the client's end, as scripts: what arrives, and what must leave."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pamqp import base, commands, frame
from pamqp.commands import Basic, Channel, Connection, Queue
from tests.unit.agents.test_codec import deliveries, layout

from treecast.agents.rabbitmq import session_table as table
from treecast.agents.rabbitmq.session import (
    Blocked,
    ChannelClosed,
    ClientSession,
    Closed,
    Confirmed,
    Delivered,
    Event,
    LogIn,
    Opened,
    Replied,
)
from treecast.shims.amqp import codec
from treecast.shims.amqp.codec_methods import write_method

NOW = 1000.0
START = Connection.Start(0, 9, {"product": "RabbitMQ", "version": "3.10.8"}, "PLAIN AMQPLAIN", "en_US")
TUNE = Connection.Tune(2047, 131_072, 60)


def session_of(**changes: object) -> ClientSession:
    log_in: dict[str, object] = {"user": "u", "password": "p", "vhost": "/", "name": "n", **changes}
    return ClientSession(LogIn(**log_in), NOW)  # type: ignore[arg-type]


def sent(session: ClientSession) -> list[base.Frame]:
    """Returns the methods that were written since the last call."""
    data, found = session.take_output(NOW), []
    data = data.removeprefix(codec.PROTOCOL_HEADER)
    while data:
        size, _, method = frame.unmarshal(data)
        data = data[size:]
        found.append(method)
    return found


def opened(**changes: object) -> ClientSession:
    session = session_of(**changes)
    for method in (START, TUNE, Connection.OpenOk()):
        session.receive(write_method(0, method), NOW)
    session.take_output(NOW)
    return session


def test_a_connection_opens() -> None:
    session = session_of()
    assert session.receive(write_method(0, START), NOW) == []
    [start_ok] = sent(session)
    assert isinstance(start_ok, Connection.StartOk)
    assert (start_ok.mechanism, start_ok.response) == ("PLAIN", "\0u\0p")
    assert session.receive(write_method(0, TUNE), NOW) == []
    tune_ok, opening = sent(session)
    assert isinstance(tune_ok, Connection.TuneOk)
    assert (tune_ok.frame_max, tune_ok.heartbeat) == (131_072, 10)
    assert isinstance(opening, Connection.Open)
    assert session.receive(write_method(0, Connection.OpenOk()), NOW) == [Opened("RabbitMQ", "3.10.8")]
    assert session.phase == table.OPEN


def test_a_server_without_the_mechanism_is_refused() -> None:
    session = session_of(mechanism="EXTERNAL", password="")
    [end] = session.receive(write_method(0, START), NOW)
    assert isinstance(end, Closed)
    assert "no log-in by EXTERNAL, but PLAIN, AMQPLAIN" in end.text


def test_another_version_of_the_protocol_is_refused() -> None:
    [end] = session_of().receive(b"AMQP\x00\x01\x00\x00", NOW)
    assert isinstance(end, Closed)
    assert "another version" in end.text


@pytest.mark.parametrize(("code", "refused"), [(320, False), (501, True), (505, True)])
def test_an_end_by_the_server_says_whether_something_sent_was_wrong(code: int, refused: bool) -> None:
    end = opened().receive(write_method(0, Connection.Close(code, "why", 0, 0)), NOW)
    assert end == [Closed(code, "why", refused)]


def test_a_refused_log_in_is_told() -> None:
    session = session_of()
    session.receive(write_method(0, START), NOW)
    end = session.receive(write_method(0, Connection.Close(403, "ACCESS_REFUSED", 0, 0)), NOW)
    assert end == [Closed(403, "ACCESS_REFUSED", refused=True)]
    assert isinstance(sent(session)[-1], Connection.CloseOk)
    assert session.receive(b"more", NOW) == []


@pytest.mark.parametrize(
    ("method", "event"),
    [
        (Channel.OpenOk(), None),
        (Queue.DeclareOk("q", 1, 2), None),
        (Channel.Close(404, "NOT_FOUND", 0, 0), ChannelClosed(1, 404, "NOT_FOUND")),
        (Basic.Ack(7, True), Confirmed(1, 7, True, True)),
        (Basic.Nack(8, False, False), Confirmed(1, 8, False, False)),
    ],
)
def test_methods_of_channels_become_events(method: base.Frame, event: Event | None) -> None:
    [found] = opened().receive(write_method(1, method), NOW)
    if event is None:
        assert isinstance(found, Replied)
        assert (found.channel, found.method.name) == (1, method.name)
    else:
        assert found == event


def test_blocked_and_unblocked() -> None:
    session = opened()
    wire = write_method(0, Connection.Blocked("low on memory")) + write_method(0, Connection.Unblocked())
    assert session.receive(wire, NOW) == [Blocked("low on memory"), Blocked("")]


def test_heartbeats_are_sent_and_expected() -> None:
    session = opened(heartbeat=10)
    assert session.tick(NOW + 4) is None
    assert session.take_output(NOW + 4) == b""
    assert session.tick(NOW + 5) is None
    assert session.take_output(NOW + 5) == codec.HEARTBEAT_FRAME
    assert session.receive(codec.HEARTBEAT_FRAME, NOW + 15) == []
    assert session.tick(NOW + 34) is None
    end = session.tick(NOW + 35)
    assert end is not None
    assert "silent for 20 s" in end.text
    assert session.phase == table.CLOSED


def test_an_orderly_end() -> None:
    session = opened()
    session.close()
    [close] = sent(session)
    assert isinstance(close, Connection.Close)
    assert session.receive(write_method(1, Basic.Ack(1)), NOW) == [Confirmed(1, 1, False, True)]
    assert session.receive(write_method(0, Connection.CloseOk()), NOW) == [Closed(0, "")]


SCRIPT = (
    write_method(1, Queue.DeclareOk("q", 0, 0))
    + deliveries(layout([({"priority": 1}, b"1"), ({}, b"x" * 20_000), ({}, b"")]))
    + write_method(2, Basic.Ack(3, True))
    + deliveries(layout([({}, b"last")]), 4)
)


def shown(events: list[Event]) -> list[object]:
    """Returns events with deliveries one by one, however they were cut into runs."""
    found: list[object] = []
    for event in events:
        if isinstance(event, Delivered):
            at = 0
            for number in range(event.count):
                size = int.from_bytes(event.data[at : at + 4], "big") + int.from_bytes(
                    event.data[at + 4 : at + 8], "big"
                )
                found.append(
                    (event.first + number, event.exchange, event.key, event.data[at : at + 8 + size])
                )
                at += 8 + size
        else:
            found.append(event.method.name if isinstance(event, Replied) else event)
    return found


@settings(max_examples=50)
@given(st.lists(st.integers(1, len(SCRIPT) - 1), max_size=12))
def test_chunks_may_be_cut_anywhere(cuts: list[int]) -> None:
    whole = shown(opened().receive(SCRIPT, NOW))
    assert len(whole) == 6
    session, events = opened(), []
    places = [0, *sorted(set(cuts)), len(SCRIPT)]
    for begin, end in itertools.pairwise(places):
        events += session.receive(SCRIPT[begin:end], NOW)
    assert shown(events) == whole


def test_byte_by_byte() -> None:
    session, events = opened(), []
    for byte in SCRIPT:
        events += session.receive(bytes((byte,)), NOW)
    assert shown(events) == shown(opened().receive(SCRIPT, NOW))


@given(st.binary(max_size=200))
def test_other_bytes_only_end_the_connection(noise: bytes) -> None:
    for session in (session_of(), opened()):
        events = session.receive(noise, NOW)
        assert all(isinstance(event, Closed) for event in events[-1:]) or session.phase != table.CLOSED


@pytest.mark.parametrize(
    "wire",
    [
        b"\x01\x00\x01\x7f\xff\xff\xff",
        b"\x03\x00\x01\x00\x00\x00\x01x\xce",
        write_method(1, Basic.Ack(1))[:-1] + b"\x00",
        write_method(0, Connection.OpenOk()),
        write_method(0, commands.Connection.TuneOk(1, 2, 3)),
    ],
)
def test_what_a_server_must_not_send_ends_the_connection(wire: bytes) -> None:
    session = opened()
    [end] = session.receive(wire, NOW)
    assert isinstance(end, Closed)
    assert end.code >= 500
    assert isinstance(sent(session)[-1], Connection.Close)


def test_every_step_of_the_table_is_between_phases() -> None:
    assert all(before in table.PHASES and after in table.PHASES for (before, _), after in table.STEPS.items())
    assert not any(before == table.CLOSED for before, _ in table.STEPS)
