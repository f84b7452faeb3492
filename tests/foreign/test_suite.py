"""The allow list: what may fail, what may fail at times, and what is news."""

from __future__ import annotations

from pathlib import Path

from . import franz_go
from .suite import Known, Outcome, explained_skips

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


SKIPS = [Known("m::tls", "no TLS"), Known("m::gone", "renamed")]


def test_a_skip_is_news_unless_it_is_explained_and_so_is_an_explanation_without_a_skip():
    outcome = Outcome(skipped={"m::tls": "needs TLS", "m::new": "needs more"})
    assert outcome.news([]) == []
    assert outcome.news([], SKIPS) == [
        "skipped, for no reason on the list: m::new: needs more",
        "listed as skipped, but was not: m::gone",
    ]


def test_one_reason_may_explain_several_skips(tmp_path: Path):
    listed = tmp_path / "list.toml"
    listed.write_text(
        '[[skipped]]\ntests = ["a", "b"]\nreason = "x"\n[[skipped]]\ntest = "c"\nreason = "y"\n'
    )
    assert explained_skips(listed) == [Known("a", "x"), Known("b", "x"), Known("c", "y")]


def go_event(action: str, test: str = "", **more: object) -> franz_go.Event:
    return {"Action": action, "Package": franz_go.PACKAGE, **({"Test": test} if test else {}), **more}


def test_of_go_tests_the_subtest_that_failed_is_named_and_not_those_above_it():
    outcome = franz_go.outcome_of(
        [
            go_event("output", "TestGroup/848", Output="    group_test.go:12: saw a record twice\n"),
            go_event("fail", "TestGroup/848"),
            go_event("pass", "TestGroup/classic"),
            go_event("fail", "TestGroup"),
            go_event("output", "TestShare", Output="    share_test.go:7: not supported\n"),
            go_event("skip", "TestShare"),
            go_event("pass", "TestOne", Elapsed=1.5),
            go_event("fail"),
        ]
    )
    assert outcome.failed == {"TestGroup/848": "saw a record twice"}
    assert outcome.skipped == {"TestShare": "not supported"}
    assert outcome.passed == ["TestGroup/classic", "TestOne"]
    assert outcome.seconds["TestOne"] == 1.5


def test_a_go_test_that_never_ended_and_a_run_that_broke_are_failures():
    never = franz_go.outcome_of([go_event("run", "TestHangs"), go_event("fail")])
    assert never.failed == {"TestHangs": "it did not end"}
    broken = franz_go.outcome_of([go_event("output", Output="panic: no broker\n"), go_event("fail")])
    assert broken.failed == {"(the run)": "panic: no broker"}
    assert franz_go.outcome_of([]).failed == {"(the run)": ""}
