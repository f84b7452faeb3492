"""The allow list: what may fail, what may fail at times, and what is news."""

from __future__ import annotations

from .suite import Known, Outcome

KNOWN = [Known("m::known", "not served"), Known("m::at_times", "a race of the client's", flaky=True)]


def test_a_flaky_test_may_pass_at_once():
    outcome = Outcome(passed=["m::at_times"], failed={"m::known": "no"})
    assert outcome.failed_flaky(KNOWN) == []
    assert outcome.news(KNOWN) == []


def test_one_pass_in_a_further_run_is_enough_for_a_flaky_test():
    outcome = Outcome(failed={"m::known": "no", "m::at_times": "got 0"})
    assert outcome.failed_flaky(KNOWN) == ["m::at_times"]
    outcome.take_again(Outcome(passed=["m::at_times"]))
    assert outcome.failed_flaky(KNOWN) == []
    assert outcome.passed == ["m::at_times"]
    assert outcome.news(KNOWN) == []


def test_a_flaky_test_that_never_passes_is_news():
    outcome = Outcome(failed={"m::known": "no", "m::at_times": "got 0"})
    outcome.take_again(Outcome(failed={"m::at_times": "got 1"}))
    assert outcome.news(KNOWN) == ["failed: m::at_times: got 1"]


def test_what_is_not_on_the_list_is_news_whichever_way():
    outcome = Outcome(passed=["m::known", "m::at_times"], failed={"m::other": "no"})
    assert outcome.news([*KNOWN, Known("m::gone", "renamed")]) == [
        "failed: m::other: no",
        "passes now, take it off the allow list: m::known",
        "on the allow list, but did not run: m::gone",
    ]
