"""Samples of a host that was stopped measure its own stop, and do not count."""

from __future__ import annotations

import random

import pytest
from tests.unit.fabric.links import Weather
from tests.unit.fabric.stations import Group, Stations

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


# --- an origin that is stopped


def stopped(seconds: float) -> tuple[Stations, Group]:
    """Stops an origin while it sends to three hosts. Then a tenth of the packets are lost."""
    net = Stations(1, Weather(delay=0.001), StreamSettings(), 4)
    group = net.group(1, 7, [2, 3, 4])
    flow(net, group, 2.0)
    net.publish(group, 1000, 20)
    net.run(0.0005)  # it has sent them, and no report has arrived
    net.stall(1, seconds)
    net.run(seconds)
    net.weather.loss = 0.1
    return net, group


def flow(net: Stations, group: Group, seconds: float) -> None:
    for _ in range(round(seconds / 0.01)):
        net.publish(group, 1000, 2)
        net.run(0.01)


@pytest.mark.parametrize("seconds", [1.0, 9.0])
def test_an_origin_that_was_stopped_does_not_take_that_time_for_its_paths(seconds: float) -> None:
    net, group = stopped(seconds)
    began = len(net.took[group.key])
    flow(net, group, 3.0)
    net.weather.loss = 0.0
    net.run(1.0)
    assert net.complete(group)
    assert max(net.took[group.key][began + 60 :]) < 0.5  # without the messages from before
