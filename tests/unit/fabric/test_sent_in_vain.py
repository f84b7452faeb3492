"""Nothing is sent again that is on its way, and nothing to who does not listen yet."""

from __future__ import annotations

import pytest
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network
from tests.unit.fabric.test_corners import KEY, asked, data, receiver

from treecast.middleware.fabric.core.outcomes import Progress
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import ReceiverState
from treecast.middleware.wire.segment import Kind, control
from treecast.middleware.wire.segment_bodies import Gap, Heartbeat

RETRY = 0.03  # the time-out before a round trip is measured; the first nak of a gap comes within 0.0075


def heartbeat(end: int, echo: int = 0):
    return control(Kind.HEARTBEAT, *KEY, 1, Heartbeat(end, 0, echo).encode())


def test_the_rest_of_a_message_that_still_comes_in_is_not_asked_for() -> None:
    one = receiver()
    for number in range(4):
        one.receive(data(0, number=number, total=5), number * RETRY * 0.8)
        assert asked(one, number * RETRY * 0.8 + RETRY * 0.7) == []
    assert asked(one, 10.0) == [Gap(0, 1, 4, 1)]  # in the end it is lost


@pytest.mark.parametrize(
    "following",
    [heartbeat(1), data(1), data(1, total=3)],
    ids=["a heartbeat", "a message", "a part of a message"],
)
def test_what_came_after_it_shows_that_the_rest_is_missing(following) -> None:
    one = receiver()
    one.receive(data(0, total=2), 0.0)
    one.receive(following, 0.001)
    assert asked(one, 0.001) == []  # it may have overtaken it
    assert [Gap(0, 1, 1, 1)] in (asked(one, 0.01), asked(one, 0.04))


def test_the_echo_of_a_report_comes_another_way_and_shows_nothing_of_the_rest() -> None:
    one = receiver()
    one.receive(data(0, total=2), 1.0)
    one.receive(heartbeat(1, echo=999_000), 1.001)
    assert asked(one, 1.0012) == []


def test_a_part_that_is_left_out_is_asked_for_soon() -> None:
    one = receiver()
    one.receive(data(0, number=0, total=4), 0.0)
    one.receive(data(0, number=2, total=4), 0.001)
    assert asked(one, 0.01) == [Gap(0, 1, 1, 1)]  # what is behind it may not have been sent yet
    assert asked(one, 0.07) == [Gap(0, 1, 1, 1), Gap(0, 1, 3, 1)]


def test_a_path_that_lets_a_burst_through_slowly_repairs_nothing() -> None:
    """Messages of 64 KiB whose 48 packets take forty round trips to come in."""
    network = Network(1, Weather(delay=0.0003, jitter=0.0, rate=2.5e6), StreamSettings())
    network.join_all(2)
    network.run(1.0)
    for _ in range(20):
        network.publish(bytes(65_536))
        network.run(0.05)
    network.run(1.0)
    network.assert_exactly_once(2)
    assert "REPAIR" not in network.sender.counters.sent
    assert network.sender.row(2).live == 20


def test_who_begins_behind_is_replayed_to_once_and_asks_for_nothing() -> None:
    network = Network(1, Weather(delay=0.001, jitter=0.0), StreamSettings(retain_bytes=1 << 30))
    for _ in range(500):
        network.publish(bytes(1000))
    network.run(1.0)
    network.sender.add_receiver(3, network.now, 0)
    network.run(0.3)  # it does not listen yet
    assert "REPLAY" not in network.sender.counters.sent
    late = network.join(3, Progress(0, 0))
    assert late.state is ReceiverState.LIVE
    network.run(2.0)
    network.assert_exactly_once(3)
    assert late.counters.sent.get("NAK", 0) == 0
    assert network.sender.counters.sent["REPLAY"] == 500
    assert network.sender.row(3).replayed == 500


def test_who_never_hears_the_announcement_asks_for_what_it_lacks() -> None:
    one = receiver()
    one.receive(heartbeat(5, echo=1), 0.0)
    assert asked(one, 5.0) == [Gap(0, 5)]
