"""A replay over a path that loses, doubles and reorders: a loss costs round trips, not time-outs."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from tests.unit.fabric.replays import MOST, SHARES, SIZES, own_time, replayed
from tests.unit.fabric.test_corners import SETTINGS, asked, data, receiver
from tests.unit.fabric.test_sent_in_vain import heartbeat

from treecast.middleware.fabric.core.receiver import Receiver
from treecast.middleware.fabric.core.repairs import Repairs
from treecast.middleware.fabric.core.states import ReceiverState
from treecast.middleware.wire.segment import Kind
from treecast.middleware.wire.segment_bodies import Gap, Report

ROUND_TRIP = 0.001


def echo(at: float):
    """Makes the echo of the report sent at `at`; the stream's end is far ahead of the receiver."""
    return heartbeat(500, echo=int(at * 1e6))


def reported(one: Receiver, now: float) -> list[int]:
    """Returns the position in each report that is sent now."""
    sent = [segment for out in one.to_send(now) for segment in out.segments()]
    return [Report.decode(segment.payload).next for segment in sent if segment.kind is Kind.REPORT]


def behind(first: float) -> Receiver:
    """Makes a receiver that catches up, knows its round trip, and has reported; `first`: now."""
    one = receiver()
    assert reported(one, first)
    one.receive(echo(first), first + ROUND_TRIP)
    assert one.state is ReceiverState.CATCHING_UP
    assert reported(one, first + ROUND_TRIP) == [0]
    one.receive(echo(first + ROUND_TRIP), first + 2 * ROUND_TRIP)
    return one


def reports_until(one: Receiver, begin: float, end: float) -> list[tuple[float, int]]:
    found, now = [], begin
    while (now := max(one.next_deadline(now), now + 1e-6)) < end:
        found += [(now, next_) for next_ in reported(one, now)]
    return found


def test_what_a_replay_waits_for_is_reported_until_the_origin_has_heard_it() -> None:
    one = behind(1.0)
    one.receive(data(0, Kind.REPLAY), 2.0)
    one.take(2.0)
    first, *again = reports_until(one, 2.0, 2.5)
    assert first[1] == 1
    assert [next_ for _, next_ in again] == [1] * len(again)
    assert again[0][0] - first[0] < 10 * ROUND_TRIP
    pauses = [after[0] - before[0] for before, after in pairwise([first, *again])]
    assert all(after > 1.2 * before for before, after in pairwise(pauses))  # each pause is longer
    last = again[-1][0]
    one.receive(echo(last), 2.5)
    assert reports_until(one, 2.5, 2.5 + SETTINGS.report_idle * 0.9) == []


def test_an_echo_of_an_earlier_report_says_nothing_of_the_last_one() -> None:
    one = behind(1.0)
    now, stamps = 2.0, []
    for sequence in range(2):
        one.receive(data(sequence, Kind.REPLAY), now)
        one.take(now)
        while not reported(one, now):
            now = one.next_deadline(now)
        stamps.append(now)
    one.receive(echo(stamps[0]), now)
    assert len(reports_until(one, now, now + SETTINGS.report_idle * 0.9)) > 1


def test_live_records_are_reported_once() -> None:
    one = receiver()
    assert reported(one, 1.0)
    one.receive(heartbeat(0, echo=1_000_000), 1.0 + ROUND_TRIP)
    one.receive(data(0), 2.0)
    one.take(2.0)
    assert len(reports_until(one, 2.0, 2.5)) == 1


def test_a_gap_is_asked_for_every_time_out_while_others_are_answered_and_else_more_rarely() -> None:
    one = behind(1.0)
    for sequence in range(1, 41, 2):
        one.receive(data(sequence, Kind.REPLAY), 2.0)
    now, times = 2.0, []
    while len(times) < 6:
        now = max(one.next_deadline(now), now + 1e-6)
        if any(gap.first == 0 for gap in asked(one, now)):
            times.append(now)
            one.receive(data(38 - 2 * len(times), Kind.REPLAY), now + ROUND_TRIP)
    pauses = [after - before for before, after in pairwise(times)]
    assert max(pauses) < 4 * ROUND_TRIP
    silent = []
    while len(silent) < 6:
        now = max(one.next_deadline(now), now + 1e-6)
        if any(gap.first == 0 for gap in asked(one, now)):
            silent.append(now)
    assert silent[-1] - silent[-2] > 8 * max(pauses)


def test_who_is_replayed_to_does_not_wait_for_others_that_may_ask() -> None:
    repairs = Repairs(aggregation=0.5)
    assert repairs.ask(2, 7, 8, None, 0.01, 1.0, alone=True)
    request = repairs.pop(1.0)
    assert request is not None
    assert not repairs.ask(2, 7, 8, None, 0.01, 1.009, alone=True)  # the answer may be under way
    assert repairs.ask(2, 7, 8, None, 0.01, 1.011, alone=True)


@pytest.mark.parametrize("size", SIZES, ids=["one packet", "five packets", "45 packets"])
def test_a_replay_over_two_bad_links_is_many_times_as_fast_as_what_is_published(size: int) -> None:
    """Each of two links loses a tenth, both ways: 19 % in all."""
    took = [replayed(0.19, size, seed)[0] for seed in range(5)]
    assert statistics.median(took) < 1.0, took


def test_what_a_replay_passes_over_is_asked_for_when_it_is_late_and_not_after_a_pause() -> None:
    one = behind(1.0)
    one.receive(data(0, Kind.REPLAY), 2.0)
    assert asked(one, 2.0) == []  # the rest is under way: a request waits six round trips
    one.receive(data(5, Kind.REPLAY), 2.001)
    assert asked(one, 2.001) == []  # it may have been overtaken
    assert asked(one, 2.001 + 1.5 * ROUND_TRIP) == [Gap(1, 5)]


def test_answers_to_what_was_asked_for_do_not_show_that_a_replay_goes_on() -> None:
    """The end of the replay is lost. Only its farthest record shows its progress."""
    one = behind(1.0)
    for sequence in range(1, 490):
        one.receive(data(sequence, Kind.REPLAY), 2.0)
    one.take(2.0)
    now = 2.0
    while one.state is ReceiverState.CATCHING_UP:
        assert asked(one, now) in ([], [Gap(0, 1)])
        now += ROUND_TRIP
        one.receive(data(0, Kind.REPLAY), now)
        one.take(now)
    asked_at = None
    while asked_at is None:
        now += ROUND_TRIP
        one.receive(data(488, Kind.REPLAY), now)  # a repeat, as if its request was repeated
        if any(gap.first == 490 for gap in asked(one, now)):
            asked_at = now
        assert now < 2.0 + 20 * ROUND_TRIP


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("size", SIZES, ids=["one packet", "five packets", "45 packets"])
def test_a_replay_over_a_long_way_takes_at_most_three_times_the_lines_own_time(
    share: float, size: int
) -> None:
    """The round trip takes 40 to 80 ms, at 12.5 MB/s with a queue of 20 ms."""
    took = [replayed(share, size, seed, 0.02, 0.02, 12.5e6)[0] for seed in range(3)]
    assert statistics.median(took) < MOST * own_time(share, size, 0.02, 0.02, 12.5e6), took


def test_the_lines_own_time() -> None:
    assert own_time(0.0, 6000, 0.02, 0.02, 12.5e6) == pytest.approx(0.32 + 0.06)
    once = own_time(0.5, 60_000, 0.02, 0.02, 12.5e6) - 0.64
    assert once > 20 * 0.06  # half of 3,000 packets are lost, and three of four rounds for each fail
