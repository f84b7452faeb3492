"""Data in flight is not sent again, and nothing is sent to a receiver that does not listen yet."""

from __future__ import annotations

import pytest
from tests.unit.fabric.links import Weather
from tests.unit.fabric.network import Network
from tests.unit.fabric.test_corners import KEY, asked, data, receiver

from treecast.middleware.fabric.core.reorder import Progress
from treecast.middleware.fabric.core.sender import Sender
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.states import ReceiverState
from treecast.middleware.wire.segment import Kind, control, part_size
from treecast.middleware.wire.segment_bodies import Gap, Heartbeat, Mode, Nak, Report, Totals

RETRY = 0.03  # the time-out before a round trip is measured; the first nak of a gap comes within 0.0075


def heartbeat(end: int, echo: int = 0):
    return control(Kind.HEARTBEAT, *KEY, 1, Heartbeat(end, 0, echo).encode())


def test_the_rest_of_a_message_that_still_comes_in_is_not_asked_for() -> None:
    one = receiver()
    for number in range(4):
        one.receive(data(0, number=number, total=5), number * RETRY * 0.8)
        assert asked(one, number * RETRY * 0.8 + RETRY * 0.7) == []
    assert asked(one, 10.0) == [Gap(0, 1, 4, 1)]  # at last it counts as lost


@pytest.mark.parametrize(
    "following",
    [heartbeat(1), data(1), data(1, total=3)],
    ids=["a heartbeat", "a message", "a part of a message"],
)
def test_what_came_after_it_shows_that_the_rest_is_missing(following) -> None:
    one = receiver()
    one.receive(data(0, total=2), 0.0)
    one.receive(following, 0.001)
    assert asked(one, 0.001) == []  # the rest may have been overtaken
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
    assert asked(one, 0.01) == [Gap(0, 1, 1, 1)]  # later parts may not have been sent yet
    assert asked(one, 0.07) == [Gap(0, 1, 1, 1), Gap(0, 1, 3, 1)]


def repaired(sender: Sender, now: float) -> list[int]:
    """Returns the parts that are sent again."""
    sent = [segment for out in sender.to_send(now) for segment in out.segments()]
    return [segment.number for segment in sent if segment.kind is Kind.REPAIR]


def hears(sender: Sender, now: float, parts: int) -> None:
    """Reports that the receiver has the first `parts` parts of message 0."""
    report = Report(Mode.LIVE, 0, 0, 1 << 20, int(now * 1e6), Totals(0), 0, parts)
    sender.receive(control(Kind.REPORT, *KEY, 2, report.encode()), now)


def asks(sender: Sender, now: float, first: int, parts: int) -> None:
    nak = Nak((Gap(0, 1, first, parts),), 100_000)
    sender.receive(control(Kind.NAK, *KEY, 2, nak.encode()), now)


def test_what_was_sent_less_than_a_round_trip_ago_is_not_sent_again() -> None:
    sender = Sender(*KEY, StreamSettings(live_first=1 << 20), 0.0)
    sender.add_receiver(2, 0.0)
    sender.publish(bytes(20 * part_size(sender.mtu)), 20, 0.0)
    sender.to_send(0.0)
    asks(sender, 0.05, 5, 15)  # the receiver reports a round trip of 0.1 s
    assert repaired(sender, 0.06) == []
    assert sender.counters.refused == {"EARLY": 1}
    asks(sender, 0.11, 5, 15)
    assert repaired(sender, 0.12) == [*range(5, 20)]


def test_what_lies_before_a_part_that_has_arrived_is_sent_again_at_once() -> None:
    sender = Sender(*KEY, StreamSettings(live_first=1 << 20), 0.0)
    sender.add_receiver(2, 0.0)
    sender.publish(bytes(20 * part_size(sender.mtu)), 20, 0.0)
    sender.to_send(0.0)
    hears(sender, 0.02, 10)
    asks(sender, 0.02, 5, 15)
    assert repaired(sender, 0.03) == [*range(5, 10)]


def test_a_path_that_lets_a_burst_through_slowly_repairs_nothing() -> None:
    """The 48 packets of a 64 KiB message take forty round trips to arrive."""
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
    network.run(0.3)  # the receiver does not listen yet
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
