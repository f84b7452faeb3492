"""Repeated data is sent at most a turn's share at a time, however large its messages are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fabric.edges import KEYS

from treecast.middleware.fabric.core.outgoing import Outgoing, OutgoingMessage, Slices
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.streams import Streams
from treecast.middleware.fabric.core.turn import OF_MESSAGE
from treecast.middleware.wire.segment import Kind, Message, control
from treecast.middleware.wire.segment_bodies import Gap, Mode, Nak, Report, Totals

KEY = (1, 7, 1)
SETTINGS = StreamSettings(
    replay_first=1 << 20, retain_bytes=64 << 20, report_replayed=1, live_first=4 << 20, buffer_bytes=64 << 20
)
NOW = 0.1
MOST = SETTINGS.replay_at_once + SETTINGS.mtu
AGAIN = (Kind.REPLAY, Kind.REPAIR)


def outgoing(size: int, to: int | None = 2, only: range | None = None) -> OutgoingMessage:
    return OutgoingMessage(Message(0, 1, bytes(size)), SETTINGS.mtu, KEY, 1, Kind.REPLAY, only, to)


def origin(size: int, count: int, behind: bool) -> Sender:
    """Makes a sender that has sent `count` messages to a host that reports none of them."""
    sender = Sender(*KEY, SETTINGS, 0.0)
    if not behind:
        sender.add_receiver(2, 0.0, 0)
    for _ in range(count):
        sender.publish(bytes(size), 1, 0.0)
        while sender.live.waits():
            sender.to_send(0.0)
    if behind:
        sender.add_receiver(2, NOW, 0)
    report(sender, Mode.CATCHING_UP if behind else Mode.LIVE, 0, NOW)
    return sender


def report(sender: Sender, mode: Mode, next_: int, now: float, host: int = 2) -> None:
    body = Report(mode, 0, next_, 8 << 20, int(now * 1e6), Totals(next_))
    sender.receive(control(Kind.REPORT, *sender.key, host, body.encode()), now)


def turns(sender: Sender, now: float) -> list[list[Outgoing]]:
    """Returns the repeated messages of each turn, until a turn has none."""
    found = []
    while True:
        out = [one for one in sender.to_send(now) if one.kind in AGAIN]
        if not out:
            return found
        found.append(out)
        assert len(found) < 1000


def sizes(found: list[list[Outgoing]]) -> list[int]:
    return [sum(one.size for one in out) for out in found]


@given(
    st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 5), st.integers(1, 30)), max_size=8),
    st.lists(st.integers(0, 40_000), max_size=20),
)
def test_slices_are_the_segments_of_the_whole_in_their_order(
    messages: list[tuple[int, int, int]], budgets: list[int]
) -> None:
    slices, out = Slices(), list[Outgoing]()
    whole = [outgoing(size, only=range(start, start + count)) for size, start, count in messages]
    for one in whole:
        slices.add(one)
    for budget in [*budgets, *[1 << 20] * 2]:
        before = len(out)
        left = slices.give(out, budget)
        given_bytes = sum(one.size for one in out[before:])
        assert given_bytes <= budget + SETTINGS.mtu
        assert left <= 0 or slices.empty
    assert [s for one in out for s in one.segments()] == [s for one in whole for s in one.segments()]


def test_what_was_for_a_host_that_left_is_dropped() -> None:
    slices, out = Slices(), list[Outgoing]()
    for to in (2, None, 3, 2):
        slices.add(outgoing(100, to))
    slices.drop(2)
    slices.give(out, 1 << 20)
    assert [one.to for one in out] == [None, 3]


@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_one_turn_sends_no_more_of_a_replay_than_live_data_may_wait_for(size: int) -> None:
    sender = origin(size, 4_000_000 // size, behind=True)
    found = sizes(turns(sender, NOW))
    assert len(found) > 10, "one turn sent it all"
    assert max(found) <= MOST
    assert sum(found) <= SETTINGS.replay_first + size, "more than its window"


def test_a_turn_has_few_messages_however_small_they_are() -> None:
    counts = [len(out) for out in turns(origin(10, 1000, behind=True), NOW)]
    assert sum(counts) == 1000
    assert max(counts) == SETTINGS.replay_at_once // OF_MESSAGE


def streams_behind(count: int, size: int) -> Streams:
    """Makes streams with messages of `size` bytes, each with a host that has none of them."""
    found = Streams(1, SETTINGS, KEYS, Random(1), refused, assembly_bytes=1 << 20)
    for number in range(count):
        sender = Sender(1, 7 + number, 1, SETTINGS, 0.0, turn=found.turn)
        for _ in range(4_000_000 // size):
            sender.publish(bytes(size), 1, 0.0)
        sender.to_send(0.0)
        sender.add_receiver(2, NOW, 0)
        report(sender, Mode.CATCHING_UP, 0, NOW)
        found.add(sender)
    return found


def refused(reason: object) -> None:
    raise AssertionError(reason)


@pytest.mark.parametrize("size", [1000, 300_000])
def test_streams_share_a_turn_and_take_turns(size: int) -> None:
    streams = streams_behind(5, size)
    senders = [served.sender for served in streams.served()]
    for turn in range(1, 51):
        streams.serve(NOW)
        sent = [sender.counters.sent_bytes for sender in senders]
        assert sum(sent) <= turn * MOST
        assert max(sent) - min(sent) <= MOST, "one stream is ahead of the others"
        assert streams.next_deadline(NOW) <= NOW
    assert min(sent) > 5 * SETTINGS.mtu


def test_hosts_that_a_stream_is_replayed_to_take_turns() -> None:
    sender = origin(300_000, 12, behind=True)
    hosts = [2, 3, 4]
    for host in hosts[1:]:
        sender.add_receiver(host, NOW, 0)
        report(sender, Mode.CATCHING_UP, 0, NOW, host)
    sent = dict.fromkeys(hosts, 0)
    for turn in range(40):
        out = [one for one in sender.to_send(NOW + turn / 1000) if one.kind in AGAIN]
        for one in out:
            assert one.to is not None
            sent[one.to] += one.size
        assert sizes([out])[0] <= MOST
        assert max(sent.values()) - min(sent.values()) <= 2 * MOST, "one host is ahead of the others"
    assert min(sent.values()) > 12 * SETTINGS.replay_at_once


def test_live_data_goes_first_in_the_middle_of_a_replayed_message() -> None:
    sender = origin(1_000_000, 4, behind=True)
    sender.add_receiver(3, NOW)
    report(sender, Mode.CATCHING_UP, 0, NOW)
    first = sender.to_send(NOW)
    assert [one.kind for one in first if one.kind in (*AGAIN, Kind.DATA)] == [Kind.REPLAY]
    sender.publish(b"live", 1, NOW)
    assert sender.next_deadline(NOW) <= NOW
    sent = [one.kind for one in sender.to_send(NOW) if one.kind in (*AGAIN, Kind.DATA)]
    assert sent == [Kind.DATA, Kind.REPLAY]


def test_who_is_replayed_to_is_live_once_the_last_part_is_on_its_way() -> None:
    sender = origin(300_000, 1, behind=True)
    while any(one.kind is Kind.REPLAY for one in sender.to_send(NOW)):
        if sender.peers.live:
            break
        assert sender.next_deadline(NOW) <= NOW
    assert sender.peers.live == [2]
    assert not turns(sender, NOW)


@pytest.mark.parametrize("parts", [0, 600])
def test_one_turn_sends_no_more_repairs_than_live_data_may_wait_for(parts: int) -> None:
    sender = origin(1_000_000, 3, behind=False)
    sender.receive(control(Kind.NAK, *KEY, 2, Nak((Gap(0, 2, 0, parts),), 1000).encode()), NOW)
    found = sizes(turns(sender, NOW + 0.001))
    assert max(found) <= MOST
    asked = 2_000_000 if not parts else sum(found)
    assert sum(found) == asked > 1_000_000


def test_what_is_sent_again_after_a_stall_gives_way_too() -> None:
    sender = origin(1_000_000, 4, behind=True)
    assert SETTINGS.replay_first <= sum(sizes(turns(sender, NOW))) <= SETTINGS.replay_first + SETTINGS.mtu
    again = sizes(turns(sender, NOW + 1.0))
    assert 1_000_000 <= sum(again) <= SETTINGS.replay_first + SETTINGS.mtu
    assert max(again) <= MOST


def test_nothing_more_is_sent_to_a_host_that_left() -> None:
    sender = origin(1_000_000, 2, behind=False)
    sender.receive(control(Kind.NAK, *KEY, 2, Nak((Gap(0, 1, 0, 0),), 1000).encode()), NOW)
    assert sizes([sender.to_send(NOW + 0.001)])[0] > 0
    sender.remove_receiver(2)
    assert not turns(sender, NOW + 0.002)
