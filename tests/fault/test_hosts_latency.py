"""The hosts runs' judgement of an outage's effects: it finds an effect and ignores noise."""

from __future__ import annotations

import math
import random

import pytest
from tests.fault.hosts.__main__ import chosen, parsed
from tests.fault.hosts.latency import HEAD, Sample, Watched, Window, percentile, within
from tests.fault.hosts.result import Result

NAMES = ("all is well", "catching up", "load")
EACH = 10.0  # seconds of a window


def windows(begin: float) -> list[Window]:
    return [Window(name, begin + at * EACH, begin + (at + 1) * EACH) for at, name in enumerate(NAMES)]


def watched(*, slower: float = 1.0, noise: float = 1.0, rounds: int = 3) -> Watched:
    """Returns rounds with an outage, in which the catch-up makes latencies `slower` times as long, each with
    a control. In the second control all latencies are `noise` times as long."""
    rng = random.Random(5)
    samples: list[Sample] = []
    outages, controls = [], []
    for number in range(2 * rounds):
        made = windows(number * len(NAMES) * EACH)
        (outages, controls)[number % 2].append(made)
        for window in made:
            factor = slower if number % 2 == 0 and window.name == "catching up" else 1.0
            factor *= noise if number == 3 and window.name != NAMES[0] else 1.0
            factor *= 20.0 if window.name == "load" and number % 2 == 0 else 1.0
            for tick in range(1000):
                samples.append((window.begin + tick * EACH / 1000, factor * rng.lognormvariate(0, 0.3)))
    return Watched("h1", samples, outages, controls)


def test_what_makes_others_slower_is_found() -> None:
    found = watched(slower=1.5).effects(but=("load",))
    assert len(found) == 3  # at each percentile
    assert all("catching up" in line for line in found)


def test_what_makes_nobody_slower_is_not() -> None:
    assert watched().effects(but=("load",)) == []


def test_what_is_no_more_than_the_machine_does_by_itself_is_not() -> None:
    assert watched(slower=1.5, noise=1.8).effects(but=("load",)) == []


def test_every_window_is_looked_at_unless_it_is_named() -> None:
    assert any("load" in line for line in watched().effects())


def test_a_window_in_which_little_was_sent_says_nothing_and_that_is_said() -> None:
    few = watched()
    few.samples = [sample for number, sample in enumerate(few.samples) if number % 50 == 0]
    assert any("only" in line for line in few.effects())


def test_the_table_has_a_row_for_each_kind_of_window() -> None:
    rows = list(watched(slower=1.5).rows())
    assert [row[0] for row in rows[::2]] == list(NAMES)
    assert {len(row) for row in rows} == {len(HEAD)}
    assert rows[0][1] == rows[1][1] == "3,000"
    assert float(rows[2][-1]) == pytest.approx(1.5, rel=0.2)
    assert float(rows[3][-1]) == pytest.approx(1.0, rel=0.2)
    result = Result()
    result.table("latency", HEAD, rows)
    assert result.tables[0].rows[0] == list(rows[0])


def test_percentiles() -> None:
    ordered = [float(value) for value in range(100)]
    assert [percentile(ordered, percent) for percent in (0, 50, 99, 100)] == [0, 50, 99, 99]
    assert math.isnan(percentile([], 50))


def test_samples_belong_to_the_window_in_which_they_were_sent() -> None:
    samples = [(0.0, 3.0), (1.0, 2.0), (2.0, 1.0), (3.0, 9.0)]
    assert within(samples, [Window("", 1.0, 3.0)]) == [1.0, 2.0]
    assert within(samples, [Window("", 0.0, 1.0), Window("", 3.0, 4.0)]) == [3.0, 9.0]


@pytest.mark.parametrize("words", [["outage", "--behind", "5"], ["all"], ["loss", "--loss", "0.1"]])
def test_the_command_takes_its_options(words: list[str]) -> None:
    (_, options), *_ = chosen(parsed(words), print)
    assert options.judged
    assert options.rounds == 3
