"""Epochs and `after`: the order of delivery across streams and restarts of their origin."""

from __future__ import annotations

import random

from treecast.middleware.fabric.core.outgoing import Outgoing
from treecast.middleware.fabric.core.receivers import Receivers
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.wire.segment import After, Kind, Segment
from treecast.middleware.wire.segment_bodies import Expiry

SETTINGS = StreamSettings(orphaned_after=1.0, give_up_after=10.0, heartbeat_longest=0.45)
START = Progress(0, 0)


def data(stream: int, epoch: int, sequence: int, after: tuple[After, ...] = ()) -> Segment:
    return Segment(Kind.DATA, 1, stream, epoch, sequence, 1, 0, 1, 1, b"%d/%d" % (stream, sequence), after)


def segments(sent: list[Outgoing]) -> list[Segment]:
    return [segment for out in sent for segment in out.segments()]


def host() -> Receivers:
    return Receivers(2, SETTINGS, random.Random(1))


def taken(receivers: Receivers, now: float) -> list[tuple[int, int, int]]:
    return [(key[1], key[2], one.message.sequence) for key, one in receivers.take(now)]


def test_a_message_waits_for_what_it_comes_after_in_another_stream() -> None:
    receivers = host()
    receivers.join(1, 10, 1, 0.0, progress=START)
    receivers.join(1, 20, 1, 0.0, progress=START)
    receivers.receive(data(20, 1, 0, (After(10, 1, 2),)), 0.1)
    receivers.receive(data(20, 1, 1), 0.1)
    receivers.receive(data(10, 1, 0), 0.1)
    assert taken(receivers, 0.1) == [(10, 1, 0)]
    receivers.receive(data(10, 1, 1), 0.2)
    assert taken(receivers, 0.2) == [(10, 1, 1), (20, 1, 0), (20, 1, 1)]


def test_the_order_of_joining_does_not_matter() -> None:
    receivers = host()
    receivers.join(1, 20, 1, 0.0, progress=START)
    receivers.join(1, 10, 1, 0.0, progress=START)
    receivers.receive(data(20, 1, 0, (After(10, 1, 1),)), 0.1)
    receivers.receive(data(10, 1, 0), 0.1)
    assert taken(receivers, 0.1) == [(10, 1, 0), (20, 1, 0)]


def test_streams_that_the_host_is_no_member_of_do_not_hold_it() -> None:
    receivers = host()
    receivers.join(1, 20, 1, 0.0, progress=START)
    receivers.receive(data(20, 1, 0, (After(10, 1, 5), After(11, 9, 5))), 0.1)
    assert taken(receivers, 0.1) == [(20, 1, 0)]


def test_an_expired_predecessor_does_not_hold_it() -> None:
    receivers = host()
    old = receivers.join(1, 10, 1, 0.0, progress=START)
    receivers.join(1, 20, 1, 0.0, progress=START)
    receivers.receive(data(20, 1, 0, (After(10, 1, 2),)), 0.1)
    receivers.receive(data(10, 1, 1), 0.1)
    assert taken(receivers, 0.1) == []
    old.give_up(Expiry.ORIGIN_GONE, 0.2)
    receivers.touch(1, 10)
    assert taken(receivers, 0.2) == [(10, 1, 1), (20, 1, 0)]


def test_an_epoch_that_has_not_begun_holds_it() -> None:
    receivers = host()
    receivers.join(1, 10, 1, 0.0, progress=START)
    receivers.join(1, 20, 1, 0.0, progress=START)
    receivers.receive(data(20, 1, 0, (After(10, 2, 1),)), 0.1)
    assert taken(receivers, 0.1) == []
    receivers.leave(1, 10)
    assert taken(receivers, 0.2) == [(20, 1, 0)]


def test_segments_of_unknown_streams_and_other_epochs_are_counted() -> None:
    receivers = host()
    receivers.join(1, 10, 5, 0.0, progress=START)
    receivers.receive(data(11, 5, 0), 0.1)
    receivers.receive(data(10, 4, 0), 0.1)
    for epoch in range(6, 20):
        receivers.receive(data(10, epoch, 0), 0.1)
    assert receivers.refused == {"OTHER_STREAM": 1, "OLD_EPOCH": 1, "LATER_EPOCH": 14}
    assert [one.key for one in receivers] == [(1, 10, 5)]
    assert taken(receivers, 0.2) == []


def test_a_later_epoch_is_joined_in_the_place_of_the_old_one() -> None:
    receivers = host()
    receivers.join(1, 10, 1, 0.0, progress=START)
    receivers.join(1, 20, 1, 0.0, progress=START)
    receivers.receive(data(10, 1, 1), 0.1)
    receivers.receive(data(20, 1, 0, (After(10, 1, 2),)), 0.1)
    assert taken(receivers, 0.1) == []
    receivers.join(1, 10, 2, 0.2, progress=START)
    receivers.receive(data(10, 2, 0), 0.2)
    assert sorted(taken(receivers, 0.2)) == [(10, 2, 0), (20, 1, 0)]  # the old epoch holds nothing back


def test_a_stream_that_is_left_gives_its_memory_back() -> None:
    receivers = host()
    one = receivers.join(1, 10, 1, 0.0, progress=START)
    other = receivers.join(1, 11, 1, 0.0, progress=START)
    part = Segment(Kind.DATA, 1, 10, 1, 5, 1, 0, 2, 1, bytes(100))
    receivers.receive(part, 0.1)
    receivers.receive(data(10, 1, 9), 0.1)
    assert one.memory > 300
    receivers.leave(1, 10)
    assert (one.memory, other.memory) == (0, 0)
    receivers.leave(1, 10)
    receivers.receive(part, 0.2)
    assert receivers.refused == {"OTHER_STREAM": 1}


def test_a_restarted_origin_with_its_log_loses_nothing() -> None:
    """Its old stream is served from the log and closed; new messages follow on the new one."""
    receivers = host()
    before = Sender(1, 10, 1, SETTINGS, 0.0)
    receivers.join(1, 10, 1, 0.0, progress=START)
    receivers.join(1, 11, 2, 0.0, progress=START)
    for number in range(3):
        before.publish(b"%d" % number, 1, 0.0)  # the origin dies before any of it is sent
    again = Sender(1, 10, 1, SETTINGS, 5.0, log=before.log)
    again.close(5.0)
    new = Sender(1, 11, 2, SETTINGS, 5.0)
    new.add_receiver(2, 5.0, 0)
    again.add_receiver(2, 5.0, 0)
    new.publish(b"new", 1, 5.0, after=(After(10, 1, 3),))
    got: list[tuple[int, int, int]] = []
    now = 5.0
    while now < 8.0:
        for sender in (new, again):
            for segment in segments(sender.to_send(now)):
                receivers.receive(segment, now)
        got += taken(receivers, now)
        for segment in segments(receivers.to_send(now)):
            for sender in (new, again):
                if sender.key[2] == segment.epoch:
                    sender.receive(segment, now)
        now += 0.005
    assert got == [(10, 1, 0), (10, 1, 1), (10, 1, 2), (11, 2, 0)]
    assert again.finished
    assert again.row(2).closed
