"""A stalled host's samples of the round trip measure its own stall, and do not count."""

from __future__ import annotations

import random

from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.wire.segment import Kind, Segment, control
from treecast.middleware.wire.segment_bodies import Heartbeat, Report

KEY = (1, 7, 1)
PATH = 0.02  # seconds


def reports(receiver: Receiver, now: float) -> list[int]:
    """Returns the stamps of the reports that are sent now."""
    sent = [segment for out in receiver.to_send(now) for segment in out.segments()]
    return [Report.decode(one.payload).stamp for one in sent if one.kind is Kind.REPORT]


def echo(stamp: int) -> Segment:
    return control(Kind.HEARTBEAT, *KEY, 1, Heartbeat(0, 0, stamp).encode())


def measured(receiver: Receiver, now: float, count: int) -> float:
    """Echoes `count` reports, each one path delay later. Returns the time then."""
    for _ in range(count):
        now = max(now, receiver.next_deadline(now))
        for stamp in reports(receiver, now):
            receiver.receive(echo(stamp), now + PATH)
        now += PATH
    return now


def new() -> Receiver:
    return Receiver(2, KEY, StreamSettings(), random.Random(1), 0.0, progress=Progress(0, 0))


def test_an_echo_that_waited_for_a_host_that_stood_still_is_no_sample() -> None:
    receiver = new()
    now = measured(receiver, 0.0, 10)
    before = receiver.round_trip.timeout
    now = max(now, receiver.next_deadline(now))
    (stamp,) = reports(receiver, now)
    receiver.receive(echo(stamp), now + 1.5)
    assert receiver.round_trip.timeout == before
    measured(receiver, now + 1.5, 1)
    assert receiver.round_trip.timeout < before


def test_a_path_that_takes_longer_while_the_host_works_is_a_sample() -> None:
    receiver = new()
    now = measured(receiver, 0.0, 10)
    before = receiver.round_trip.timeout
    now = max(now, receiver.next_deadline(now))
    (stamp,) = reports(receiver, now)
    for _ in range(15):
        now += 0.1
        reports(receiver, now)
    receiver.receive(echo(stamp), now)
    assert receiver.round_trip.timeout > before + 0.5
