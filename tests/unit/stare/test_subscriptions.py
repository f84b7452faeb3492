"""The table of subscriptions with the switch: every pair of state and event, and its timers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treecast.middleware.fabric.stare.settings import StareSettings
from treecast.middleware.fabric.stare.subscriptions import TRANSITIONS, SubEvent, Subscriptions, SubState
from treecast.middleware.wire.stare import StareHeader, StareKind

SETTINGS = StareSettings(resend_tries=3, refresh=30.0)


def test_every_pair_is_listed() -> None:
    assert set(TRANSITIONS) == set(SubState)
    for row in TRANSITIONS.values():
        assert set(row) == set(SubEvent)


def made(settings: StareSettings = SETTINGS) -> Subscriptions:
    return Subscriptions(settings, random.Random(1))


def ack(of: StareHeader) -> StareHeader:
    return StareHeader(StareKind.SUB_ACK, of.state, 0, of.update)


def test_a_request_is_sent_again_with_its_number_until_it_is_acknowledged() -> None:
    subs = made()
    subs.want(300, 0.0)
    for _ in range(2):
        subs.work(subs.next_deadline())
    assert len(subs.requests) == 3
    assert len({header.update for header in subs.requests}) == 1
    assert subs.acknowledged(ack(subs.requests[0]), 3.0)
    assert subs.state(300) is SubState.REGISTERED
    assert subs.next_deadline() >= 33.0  # the refresh


def test_a_late_acknowledgement_of_another_request_says_nothing() -> None:
    subs = made()
    subs.want(300, 0.0)
    [register] = subs.requests
    subs.unwant(300, 1.0)
    assert not subs.acknowledged(ack(register), 1.1)
    assert subs.state(300) is SubState.REMOVING
    assert subs.acknowledged(ack(subs.requests[-1]), 1.2)
    assert subs.state(300) is None
    assert not len(subs)


def test_where_nobody_answers_it_asks_on_once_per_refresh() -> None:
    subs = made()
    subs.want(300, 0.0)
    while subs.state(300) is SubState.REGISTERING:
        subs.work(subs.next_deadline())
    assert len(subs.requests) == 3
    assert subs.state(300) is SubState.UNANSWERED
    at = subs.next_deadline()
    subs.work(at)
    assert len(subs.requests) == 4
    assert subs.next_deadline() >= at + 30.0
    assert subs.acknowledged(ack(subs.requests[-1]), at + 1)  # a switch has appeared
    assert subs.state(300) is SubState.REGISTERED


def test_a_removal_that_nobody_answers_ends() -> None:
    subs = made(StareSettings(resend_tries=3, refresh=0.0))
    subs.want(300, 0.0)
    assert subs.acknowledged(ack(subs.requests[0]), 0.1)
    assert subs.next_deadline() == float("inf")  # no refresh
    subs.unwant(300, 1.0)
    for _ in range(4):
        subs.work(subs.next_deadline())
    assert subs.state(300) is None
    assert [header.kind for header in subs.requests] == [StareKind.SUB_REGISTER] + [StareKind.SUB_REMOVE] * 3


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["want", "unwant", "ack", "old ack", "time"]), st.integers(0, 2))))
def test_what_the_switch_was_told_last_is_what_is_wanted(steps: list[tuple[str, int]]) -> None:
    """The switch gets every request, and acknowledges when the schedule says so."""
    subs, now, wanted, last = made(), 0.0, set(), dict[int, StareHeader]()
    at_switch: set[int] = set()
    for step, which in steps:
        state = 300 + which
        now += 0.01
        match step:
            case "want":
                subs.want(state, now)
                wanted.add(state)
            case "unwant":
                subs.unwant(state, now)
                wanted.discard(state)
            case "ack" if state in last:
                subs.acknowledged(ack(last[state]), now)
            case "old ack" if state in last:
                old = StareHeader(StareKind.SUB_ACK, state, 0, (last[state].update - 1) % 16384)
                assert not subs.acknowledged(old, now)
            case "time":
                now += 0.5
                subs.work(now)
        for header in subs.requests:
            last[header.state] = header
            register = header.kind is StareKind.SUB_REGISTER
            (at_switch.add if register else at_switch.discard)(header.state)
        subs.requests.clear()
        subs.check_invariants()
        assert at_switch == wanted


@pytest.mark.parametrize("event", SubEvent)
def test_no_event_leaves_a_request_without_a_timer(event: SubEvent) -> None:
    for state in SubState:
        then, _ = TRANSITIONS[state][event]
        assert then in SubState


def test_who_only_repeats_does_not_wait() -> None:
    subs = made()
    subs.want(300, 0.0)
    assert subs.waiting
    subs.acknowledged(ack(subs.requests[-1]), 0.1)
    subs.work(subs.next_deadline())
    assert subs.state(300) is SubState.REGISTERING
    assert not subs.waiting
    subs.unwant(300, 100.0)
    assert subs.waiting
    subs.want(300, 100.1)
    assert subs.waiting
    subs.acknowledged(ack(subs.requests[-1]), 100.2)
    assert not subs.waiting
