"""Whether what a carrier sends to all arrives at a host: the rule by itself, beside a plain reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treecast.middleware.fabric.core.evidence import Evidence, Sightings, spacing
from treecast.middleware.fabric.core.pacing import Quickest

HOST = 7
APART = 0.1  # seconds between findings while no turnaround is known

# A step: seconds that pass, segments sent to all, and segments that arrive; then the host reports.
STEP = st.tuples(st.sampled_from((0.0, 0.03, 0.1, 0.4, 1.0)), st.integers(0, 2), st.integers(0, 1))


def stream(evidence: Evidence, *, named: bool = False) -> Sightings:
    part = Sightings(evidence, named=named)
    part.reaches(frozenset({HOST}))
    return part


class Reference:
    """The rule in words: three reports, each at least `APART` after an earlier one without an arrival by
    which something had been sent, and nothing has arrived between them."""

    def __init__(self) -> None:
        self.misses = 0
        self.last_miss = -1e9
        self.news = False  # something was sent since the last finding
        self.since: float | None = None

    def report(self, arrived: bool, now: float) -> bool:
        if arrived:
            self.__init__()  # type: ignore[misc]
            return False
        if self.since is not None and now - self.since >= APART:
            self.since = None
            if now - self.last_miss >= APART:
                self.misses, self.last_miss = self.misses + 1, now
        if self.misses == 3:
            return True
        if self.since is None and self.news:
            self.since, self.news = now, False
        return False


@given(st.lists(STEP, max_size=40))
def test_it_decides_as_the_rule_says(steps: list[tuple[float, int, int]]) -> None:
    part, plain, way = stream(Evidence()), Reference(), Quickest()
    now, arrived = 50.0, 0
    part.report(HOST, arrived, way, now, live=True)
    for passed, sent, came in steps:
        now += passed
        part.sent += sent
        plain.news = plain.news or sent > 0
        arrived += came
        doubted = part.report(HOST, arrived, way, now, live=True)
        expected = plain.report(came > 0, now)
        assert bool(part.cut_off) == expected
        if expected:
            assert part.cut_off == [HOST]
            return
        assert doubted == (plain.since is not None or plain.misses > 0)


@given(st.lists(STEP, max_size=60))
def test_who_gets_one_of_three_is_never_cut_off(steps: list[tuple[float, int, int]]) -> None:
    part, way = stream(Evidence()), Quickest()
    now, arrived = 50.0, 0
    for number, (passed, sent, _) in enumerate(steps):
        now += passed
        part.sent += sent
        arrived += number % 3 == 0
        part.report(HOST, arrived, way, now, live=True)
    assert part.cut_off == []


@given(st.lists(st.sampled_from((0.0, 0.03, 0.4, 1.0)), max_size=60))
def test_nothing_sent_is_no_evidence(pauses: list[float]) -> None:
    part, way, now = stream(Evidence()), Quickest(), 50.0
    for pause in pauses:
        now += pause
        assert not part.report(HOST, 0, way, now, live=True)
    assert part.cut_off == []


def test_idle_streams_decide_by_three_heartbeats() -> None:
    part, way, now = stream(Evidence()), Quickest(), 50.0
    part.report(HOST, 9, way, now, live=True)
    heartbeats = 0
    while not part.cut_off:
        part.sent += 1
        heartbeats += 1
        now += 1.0
        part.report(HOST, 9, way, now, live=True)
    assert heartbeats == 4  # the fourth report says that the third heartbeat has not arrived either


def test_many_streams_of_a_group_decide_no_sooner_and_one_arrival_is_enough() -> None:
    group, way, now = Evidence(), Quickest(), 50.0
    parts = [stream(group) for _ in range(100)]
    for turn in range(3):
        for part in parts:
            now += 0.001
            part.sent += 1
            part.report(HOST, 0, way, now, live=True)
        assert not any(part.cut_off for part in parts), turn
    parts[5].report(HOST, 1, way, now, live=True)
    assert not group.doubts(HOST)


def test_who_is_not_live_is_sent_nothing_by_a_carrier_that_names_its_receivers() -> None:
    for named, cut_off in ((True, []), (False, [HOST])):
        part, way, now = stream(Evidence(), named=named), Quickest(), 50.0
        for _ in range(10):
            part.sent += 1
            now += 1.0
            part.report(HOST, 0, way, now, live=False)
        assert part.cut_off == cut_off


def test_a_host_that_was_taken_out_begins_anew() -> None:
    part, way, now = stream(Evidence()), Quickest(), 50.0
    for _ in range(3):
        part.sent += 1
        now += 1.0
        part.report(HOST, 0, way, now, live=True)
    part.reaches(frozenset())
    part.sent += 1
    assert not part.report(HOST, 0, way, now + 1, live=True)
    part.reaches(frozenset({HOST}))
    part.report(HOST, 0, way, now + 2, live=True)
    part.report(HOST, 0, way, now + 3, live=True)
    assert part.cut_off == []


def test_findings_are_as_far_apart_as_the_path_is_long() -> None:
    way = Quickest()
    assert (spacing(way, named=False), spacing(way, named=True)) == (APART, 2.0)
    way.sample(0.6, 1.0)
    assert (spacing(way, named=False), spacing(way, named=True)) == (1.2, 2.0)
    way = Quickest()
    way.sample(60.0, 1.0)
    assert spacing(way, named=False) == 2.0
