"""Shared subscriptions on one host: what a member leaves goes to another, over kills too (MQTT 5, 4.8.2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.mqtt.face import Client, MemoryHost

from treecast.middleware.broker.pubsub import PubSubSettings
from treecast.shims.mqtt import codec
from treecast.shims.mqtt.codec_packets import Publish, Unsubscribe

FILTER = "$share/g/t"


@pytest.fixture
def host(tmp_path: Path) -> MemoryHost:
    """A host with a journal."""
    return MemoryHost(data=tmp_path / "journal")


def member(host: MemoryHost, name: str, *, lasting: bool = False, window: int = 2, qos: int = 2) -> Client:
    expiry = 100 if lasting else 0
    client = host.connected(name, clean=not lasting, session_expiry=expiry, receive_maximum=window)
    if host.sessions._states["", name].subscriptions == {}:
        client.subscribe(FILTER, qos=qos)
    return client


def publish(host: MemoryHost, count: int, qos: int, first: int = 0) -> None:
    publisher = host.connected("p")
    for number in range(first, first + count):
        publisher.publish("t", b"%d" % number, qos)
    publisher.leave()


def read(client: Client) -> list[int]:
    """Returns the new messages, all acknowledged, until no more come."""
    found: list[int] = []
    while packets := client.got():
        for packet in packets:
            if isinstance(packet, Publish):
                found.append(int(packet.payload))
                if packet.qos == 1:
                    client.ack(codec.PUBACK, packet.packet_id)
                elif packet.qos == 2:
                    client.ack(codec.PUBREC, packet.packet_id)
                    client.ack(codec.PUBCOMP, packet.packet_id)
    return found


def unsubscribe(client: Client) -> None:
    client.send(Unsubscribe(50, (FILTER.encode(),)))


def waits(host: MemoryHost) -> int:
    return sum(group.waiting for group in host.hub.shares.all())


ENDS: dict[str, Callable[[MemoryHost, Client], object]] = {
    "disconnects": lambda host, client: client.leave(),
    "is lost": lambda host, client: client.drop(),
    "starts clean": lambda host, client: host.connected("goes"),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_a_session_has_not_received_when_it_ends_goes_to_another_member(
    host: MemoryHost, how: str, qos: int
) -> None:
    stays, goes = member(host, "stays"), member(host, "goes")
    for client in (stays, goes):
        client.session.output.congest(qos == 0)
    publish(host, 20, qos)
    sent = read_sent(goes)
    assert len(sent) == (2 if qos else 0)  # its window; the other eight wait
    ENDS[how](host, goes)
    stays.session.output.congest(False)
    state = stays.state
    assert state is not None
    state.pump()
    expected = set(range(20)) - (set(sent) if qos == 2 else set())
    assert sorted(read(stays)) == sorted(expected)
    assert host.counters.handed_on == (8 if qos == 2 else 10)


def test_a_lasting_session_that_expires_or_starts_clean_leaves_its_queue_to_others(host: MemoryHost) -> None:
    first = member(host, "first", lasting=True)
    publish(host, 10, 1)
    first.drop()
    stays = member(host, "stays", window=100)
    assert read(stays) == []  # they wait for the client
    host.pass_time(101)
    assert read(stays) == list(range(10))
    again = member(host, "again", lasting=True)
    unsubscribe(stays)
    publish(host, 10, 1, 10)
    again.drop()
    stays.subscribe(FILTER, qos=2)
    host.connected("again", clean=True)
    assert read(stays) == list(range(10, 20))


def test_a_client_that_disconnects_leaves_what_it_was_not_sent_to_a_connected_member(
    host: MemoryHost,
) -> None:
    stays = member(host, "stays")
    goes = member(host, "goes", lasting=True)
    publish(host, 20, 2)
    sent = read_sent(goes)
    goes.drop()
    assert (len(sent), host.counters.handed_on) == (2, 8)
    assert sorted(read(stays)) == sorted(set(range(20)) - set(sent))
    assert read(member(host, "goes", lasting=True)) == sent  # delivery to this client is completed


def test_a_client_that_unsubscribes_leaves_what_it_was_not_sent_to_another_member(host: MemoryHost) -> None:
    stays, goes = member(host, "stays"), member(host, "goes")
    publish(host, 20, 1)
    unsubscribe(goes)
    got = read(goes)
    assert (len(got), host.counters.handed_on) == (2, 8)
    assert sorted(got + read(stays)) == list(range(20))


def test_the_only_member_keeps_what_waits_for_it_when_it_unsubscribes(host: MemoryHost) -> None:
    alone = member(host, "alone")
    publish(host, 10, 1)
    unsubscribe(alone)
    assert read(alone) == list(range(10))
    alone.leave()
    assert host.hub.shares.all() == []


def test_messages_for_nobody_wait_in_the_journal_for_the_first_member_that_returns(host: MemoryHost) -> None:
    for name in ("a", "b"):
        member(host, name, lasting=True).drop()
    publish(host, 10, 2)
    publish(host, 10, 0, 10)  # QoS 0 is not kept
    assert waits(host) == 10
    host.crash()
    assert waits(host) == 10
    assert read(member(host, "b", lasting=True)) == list(range(10))
    host.crash()
    assert read(member(host, "a", lasting=True)) == []
    assert waits(host) == 0


def test_messages_that_wait_are_bounded_like_a_queue(tmp_path: Path) -> None:
    bounds = PubSubSettings(queue_messages=5)
    host = MemoryHost(hub_settings=bounds, data=tmp_path / "journal")
    member(host, "a", lasting=True).drop()
    publish(host, 8, 1)
    assert (waits(host), host.counters.dropped_full) == (5, 3)
    assert read(member(host, "a", lasting=True, window=10)) == list(range(5))


def test_messages_that_wait_are_dropped_with_the_last_session(host: MemoryHost) -> None:
    member(host, "a", lasting=True).drop()
    publish(host, 5, 1)
    host.pass_time(101)
    assert (host.hub.shares.all(), host.counters.shares_gone) == ([], 5)
    host.crash()
    assert read(member(host, "a", lasting=True)) == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_kill_leaves_what_a_clean_session_was_not_sent_to_a_lasting_one(host: MemoryHost, qos: int) -> None:
    """The clean session ends with the process. QoS 2 that was sent to it goes to nobody else."""
    lasting, clean = member(host, "lasting", lasting=True), member(host, "clean")
    publish(host, 20, qos)
    sent = read_sent(clean)
    got = read(lasting)
    assert (len(sent), len(got)) == (2, 10)
    host.crash()
    got += read(member(host, "lasting", lasting=True, window=100))
    assert sorted(got) == sorted(set(range(20)) - (set(sent) if qos == 2 else set()))
    host.crash()
    assert read(member(host, "lasting", lasting=True, window=100)) == []


def test_a_kill_while_messages_are_handed_on_loses_and_doubles_none(host: MemoryHost) -> None:
    """The turn that hands them on is stored or not; either way each has one owner."""
    for stored in (False, True):
        goes = member(host, "goes", lasting=True)
        first = host.counters.published
        publish(host, 10, 2, first)
        kept = member(host, "kept", lasting=True, window=100)
        sent = read_sent(goes)
        goes.drop()  # what it was not sent is handed on
        host.crash(store=stored)
        got = read(member(host, "kept", lasting=True, window=100)) + read(member(host, "goes", lasting=True))
        assert sorted(got) == list(range(first, first + 10)), (stored, sent)
        assert kept.session is not None
        host.connected("goes", clean=True).leave()


def read_sent(client: Client) -> list[int]:
    return [int(packet.payload) for packet in client.publishes()]


def test_a_message_that_a_member_also_subscribes_to_plainly_is_settled_twice(host: MemoryHost) -> None:
    client = member(host, "both", lasting=True, window=10)
    client.subscribe("t", qos=1)
    publish(host, 1, 1)
    first, second = client.publishes()
    client.ack(codec.PUBACK, first.packet_id)
    host.end_turn()
    host.crash()
    assert [packet.payload for packet in member(host, "both", lasting=True).publishes()] == [second.payload]


def test_a_member_that_refuses_a_message_ends_it(host: MemoryHost) -> None:
    """No other member is sent it [MQTT-4.8.2-6]."""
    one = member(host, "one")
    publish(host, 1, 2)
    (packet,) = one.publishes()
    other = member(host, "other")
    one.ack(codec.PUBREC, packet.packet_id, 0x97)
    one.leave()
    assert read(other) == []


def test_a_message_that_comes_back_to_a_client_in_one_turn_is_still_owed_to_it(host: MemoryHost) -> None:
    """It is settled for the client and owed to it again: the journal keeps this order."""
    back = member(host, "back", lasting=True)
    publish(host, 10, 1)
    between = member(host, "between")
    host.end_turn()
    back.drop()
    between.drop()
    assert waits(host) == 8
    back = member(host, "back", lasting=True)
    host.crash()
    assert sorted(read(member(host, "back", lasting=True))) == list(range(10))


def test_a_message_that_the_journal_has_dropped_is_written_again_for_its_next_receiver(
    tmp_path: Path,
) -> None:
    """A lasting session was owed it, then one that the journal does not know, then a lasting one."""
    bounds = PubSubSettings(segment_bytes=2000)
    host = MemoryHost(hub_settings=bounds, data=tmp_path / "journal")
    for name, lasting in (("first", True), ("second", False)):
        member(host, name, lasting=lasting)
    publish(host, 8, 1)
    host.connected("first", clean=True).leave()
    other = host.connected("other", clean=False, session_expiry=100, receive_maximum=1)
    other.subscribe("u", qos=1)
    filler = host.connected("filler")
    for _ in range(20):
        filler.publish("u", bytes(1000), 1)
        for packet in other.publishes():
            other.ack(codec.PUBACK, packet.packet_id)
        host.end_turn()
    member(host, "third", lasting=True)
    host.connected("second").leave()
    host.crash()
    assert sorted(read(member(host, "third", lasting=True))) == list(range(8))
