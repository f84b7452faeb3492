"""The parts of the core by themselves: log, gaps, repairs, buckets, round trip, accounting."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.fabric.core.accounting import Ledger, Verdict
from treecast.middleware.fabric.core.gaps import Gaps
from treecast.middleware.fabric.core.log import Log
from treecast.middleware.fabric.core.repairs import Repairs
from treecast.middleware.fabric.core.settings import StreamSettings
from treecast.middleware.fabric.core.timing import RoundTrip, TokenBucket
from treecast.middleware.model.timers import NEVER
from treecast.middleware.wire.segment import Message
from treecast.middleware.wire.segment_bodies import Expiry, Mode, Rejection, Report, Skipped, Totals


def log_of(*records: int, max_bytes: int = 1 << 20, max_age: float = 10.0) -> Log:
    log = Log(0, max_bytes, max_age)
    for at, count in enumerate(records):
        log.append(Message(log.end, count, b"x" * 100), float(at))
    return log


def spans(log: Log, first: int, end: int) -> list[tuple[int, int, bool]]:
    found = []
    for one in log.entries(first, end):
        first_of = one.first if isinstance(one, Skipped) else one.sequence
        found.append((first_of, one.end, isinstance(one, Message)))
    return found


def test_a_log_finds_messages_by_any_of_their_records() -> None:
    log = log_of(3, 1, 4)
    assert spans(log, 1, 2) == [(0, 3, True)]
    assert spans(log, 2, 4) == [(0, 3, True), (3, 4, True)]
    assert spans(log, 0, 99) == [(0, 3, True), (3, 4, True), (4, 8, True)]
    assert spans(log, 8, 99) == []


def test_a_log_remembers_why_its_bounds_took_something() -> None:
    log = log_of(2, 2, 2, 2, max_bytes=700)  # room for two of 300 bytes each
    assert (log.oldest, len(log)) == (4, 2)
    log.expire(12.5)
    assert log.oldest == 6
    assert list(log.entries(1, 7))[:2] == [Skipped(1, 4, Expiry.SIZE), Skipped(4, 6, Expiry.AGE)]
    assert log.trimmed(3) == {Expiry.SIZE: 1, Expiry.AGE: 2}
    assert log.trimmed(6) == {}


def test_what_all_have_is_trimmed_without_a_reason_down_to_what_is_retained() -> None:
    log = log_of(1, 1, 1, 1)
    log.trim(3, keep_bytes=700)
    assert (log.oldest, log.bytes) == (2, 600)
    log.trim(3)
    assert (log.oldest, log.bytes, log.end) == (3, 300, 4)
    log.trim(4)
    assert (log.bytes, len(log)) == (0, 0)


def test_a_message_whose_time_is_over_leaves_a_hole_that_says_so() -> None:
    log = log_of(1, 1)
    log.append(Message(2, 3, b"x" * 100), 2.0, expires=5.0)
    assert log.next_deadline() == 5.0
    log.expire(5.0)
    assert list(log.entries(2, 5)) == [Skipped(2, 5, Expiry.TIME_TO_LIVE)]
    assert (log.bytes, log.next_deadline()) == (800, 10.0)


@given(st.lists(st.integers(1, 9), max_size=80), st.lists(st.integers(0, 400), max_size=8))
def test_a_log_holds_what_was_appended_and_not_trimmed(counts: list[int], trims: list[int]) -> None:
    log = log_of(*counts)
    for sequence in trims:
        log.trim(sequence)
    held = [one for one in spans(log, log.oldest, log.end) if one[2]]
    assert sum(end - first for first, end, _ in held) == log.end - log.oldest
    assert log.bytes == 300 * len(log) == 300 * len(held)
    assert log.oldest <= max([0, *trims])


@given(st.data())
def test_gaps_are_the_records_that_were_not_filled(data: st.DataObject) -> None:
    """Compared with a set of numbers."""
    gaps, missing, known = Gaps(), set[int](), 0
    for _ in range(data.draw(st.integers(1, 30))):
        if data.draw(st.booleans()) or not missing:
            more = data.draw(st.integers(1, 6))
            gaps.open(known, known + more, due=float(known))
            missing |= set(range(known, known + more))
            known += more
        else:
            first = data.draw(st.sampled_from(sorted(missing)))
            end = first + 1
            while gaps.holding(first, end + 1) is not None and data.draw(st.booleans()):
                end += 1
            action = data.draw(st.sampled_from(["fill", "part", "reschedule"]))
            if action == "fill":
                gaps.fill(first, end)
                missing -= set(range(first, end))
            elif action == "part":
                own = gaps.part(first, end)
                assert (own.first, own.end) == (first, end)
            else:
                for gap in gaps.due(NEVER):
                    gap.attempts = 1
                gaps.reschedule(first, 1.0, 2.0)
        assert {n for gap in gaps for n in range(gap.first, gap.end)} == missing
        assert [g.first for g in gaps] == sorted(g.first for g in gaps)
        for number in range(known):
            assert gaps.touches(number, number + 1) == (number in missing)
            assert (gaps.holding(number, number + 1) is not None) == (number in missing)
        assert {n for low, high in gaps.within(0, known) for n in range(low, high)} == missing


def test_gaps_are_due_when_their_time_comes() -> None:
    gaps = Gaps()
    gaps.open(0, 2, due=5.0)
    gaps.open(4, 6, due=3.0)
    assert gaps.next_deadline() == 3.0
    for gap in gaps.due(3.0):
        assert gap.first == 4
        gap.due = 9.0
    assert gaps.next_deadline() == 5.0
    assert list(gaps.due(4.9)) == []
    gaps.clear()
    assert gaps.next_deadline() == NEVER


def test_a_repair_postpones_what_is_ahead_and_hastens_what_it_passed() -> None:
    gaps = Gaps()
    gaps.open(0, 10, due=5.0)
    for gap in gaps.due(5.0):
        gap.attempts, gap.due = 3, 50.0
    gaps.reschedule(4, passed=6.0, ahead=8.0)
    assert [(gap.first, gap.end, gap.due, gap.attempts) for gap in gaps] == [(0, 4, 6.0, 0), (4, 10, 8.0, 0)]


def test_repairs_gather_askers_and_suppress_what_was_just_answered() -> None:
    repairs = Repairs(aggregation=0.5)
    assert repairs.ask(2, 7, 8, None, round_trip=0.1, now=1.0)
    assert repairs.ask(3, 7, 8, (1, 3), round_trip=0.1, now=1.02)
    assert repairs.next_deadline() == 1.05
    assert repairs.pop(1.04) is None
    request = repairs.pop(1.05)
    assert request is not None
    assert (request.sequence, set(request.hosts), request.parts()) == (7, {2, 3}, [None])
    assert not repairs.ask(2, 7, 8, None, 0.1, 1.1)  # the request was sent before the answer came
    assert repairs.ask(2, 7, 8, None, 0.1, 1.2)
    assert repairs.pop(9.0) is not None
    assert repairs.pop(9.0) is None


def test_requests_for_repair_are_bounded() -> None:
    repairs = Repairs(aggregation=0.5)
    kept = sum(repairs.ask(2, sequence, sequence + 1, None, 0.1, 1.0) for sequence in range(20_000))
    assert kept == 4096


def test_a_bucket_allows_its_rate_and_pays_back_what_was_too_much() -> None:
    bucket = TokenBucket(1000.0, 500, 0.0)
    bucket.spend(1500)
    assert not bucket.ready(0.5)
    assert bucket.ready_at(0.5) == 1.001
    assert bucket.ready(1.001)
    assert not TokenBucket(10.0, 0, 5.0).ready(1.0)  # the clock jumps back
    assert TokenBucket(NEVER, 0, 0.0).ready_at(3.0) == 3.0


def test_the_round_trip_is_smoothed_as_in_rfc_6298() -> None:
    measured = RoundTrip(1.0)
    measured.sample(-5.0)
    assert not measured.measured
    measured.sample(0.1)
    assert (measured.smoothed, measured.variation) == (0.1, 0.05)
    measured.sample(0.18)
    assert abs(measured.smoothed - 0.11) < 1e-12
    assert abs(measured.variation - 0.0575) < 1e-12
    assert abs(measured.timeout - 0.34) < 1e-12


def report(next_: int, totals: Totals, first: int = 0) -> Report:
    return Report(Mode.LIVE, first, next_, 1, 1, totals)


def test_the_equation_of_a_host_at_every_moment() -> None:
    log, ledger = log_of(10, 10, 10, max_bytes=700), Ledger()
    ledger.begin(2, 0)
    row = ledger.row(2, log, silent=False)
    assert (row.addressed, dict(row.expired), row.outstanding) == (30, {}, 30)
    row = ledger.row(2, log, silent=True)
    assert (row.addressed, dict(row.expired), row.outstanding) == (30, {Expiry.SIZE: 10}, 20)
    totals = Totals(5, 3, 4, 6, {Expiry.AGE: 1}, {Rejection.STORAGE: 1})
    assert ledger.report(2, report(20, totals), log.end) is Verdict.TAKEN
    row = ledger.row(2, log, silent=False)
    assert (row.live, row.repaired, row.replayed, row.filtered) == (5, 3, 4, 6)
    assert (dict(row.expired), dict(row.refused)) == ({Expiry.AGE: 1}, {Rejection.STORAGE: 1})
    assert (row.outstanding, row.closed, row.balanced) == (10, False, True)
    ledger.leave(2, log.end)
    row = ledger.row(2, log, silent=False)
    assert (dict(row.expired), row.closed, row.balanced) == ({Expiry.AGE: 1, Expiry.LEFT: 10}, True, True)
    ledger.begin(2, 30)
    assert ledger.row(2, log, silent=False).addressed == 30
    assert ledger.row(2, log, silent=False).balanced


def test_reports_that_contradict_are_not_taken() -> None:
    ledger = Ledger()
    ledger.begin(2, 10)
    assert ledger.report(2, report(20, Totals(20), first=0), 99) is Verdict.INCONSISTENT
    assert ledger.report(2, report(100, Totals(90), first=10), 99) is Verdict.INCONSISTENT
    assert ledger.report(2, report(20, Totals(8, 2), first=10), 99) is Verdict.TAKEN
    assert ledger.report(2, report(15, Totals(5), first=10), 99) is Verdict.STALE
    assert ledger.report(2, report(21, Totals(11), first=10), 99) is Verdict.INCONSISTENT
    assert ledger.next(2) == 20


@pytest.mark.parametrize("wrong", [{"silent_after": 1.0}, {"orphaned_after": 2.0}])
def test_settings_by_which_one_lost_segment_looks_like_silence(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        StreamSettings(**wrong)
