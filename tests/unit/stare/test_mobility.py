"""The mobility tracking example without a network: four communicating trackers find the true positions."""

from __future__ import annotations

import pytest
from examples.mobility_tracking import emulation
from examples.mobility_tracking.city import LEAST, MOST, PERIOD, PLACES, City
from examples.mobility_tracking.results import Found, judge
from examples.mobility_tracking.tracker import Tracker, read_report, write_report

REPORTS = 15


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_way_is_found_and_none_that_was_not(seed: int) -> None:
    city = City(seed, REPORTS, 100)
    trackers = {place: Tracker(place) for place in PLACES}
    for number in range(REPORTS):
        for place, tracker in trackers.items():
            line = write_report(city.report(place, number))
            value = tracker.report(read_report(line))
            for other in trackers.values():
                if other is not tracker:
                    other.shared(value)
    assert len(city.trips) > 20
    for place, tracker in trackers.items():
        judged = judge(Found(place, REPORTS, 0, 0, tracker.movements()), city)
        assert (judged.right, judged.wrong) == (judged.trips, 0)
        assert judged.error < 0.05


def test_a_report_has_10_to_50_addresses_of_its_period() -> None:
    city = City(4, REPORTS, 100)
    for place in PLACES:
        for number in range(REPORTS):
            report = city.report(place, number)
            assert LEAST <= len(report) <= MOST
            assert len({one.address for one in report}) == len(report)
            assert all(number * PERIOD <= one.time <= (number + 1) * PERIOD for one in report)


def test_without_the_others_nothing_is_found() -> None:
    city = City(1, REPORTS, 100)
    tracker = Tracker("b")
    for number in range(REPORTS):
        tracker.report(city.report("b", number))
    assert tracker.movements() == []


@pytest.mark.parametrize("design", ["register", "embedded"])
def test_the_emulation_finds_all_over_links_that_lose(design: str) -> None:
    city = City(2, 6, 40)
    found, counts = emulation.run(design, city, 2)
    judged = [judge(one, city) for one in found]
    assert sum(one.right for one in judged) > 10
    assert [(one.right, one.wrong) for one in judged] == [(one.trips, 0) for one in judged]
    assert [(one.published, one.updates) for one in found] == [(6, 18)] * 4
    assert counts["replicas"] > 200
