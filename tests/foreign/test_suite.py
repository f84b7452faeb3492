"""The allow list: expected failures, flaky tests, and news."""

from __future__ import annotations

from pathlib import Path

from . import franz_go, librdkafka
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


PRINTED = """\
[0081_admin                  / 11.234s] TEST FAILURE
### Test "0081_admin (do_test_CreateAcls:1539)" failed at 0081-admin.c:1622:do_test() at Mon Nov 23: ###
Test assertion failed: "!error": no authorizer is configured on this broker
#==================================================================#
| 0031_get_offsets                         |     PASSED |   0.311s |
| 0031_get_offsets_mock                    |    SKIPPED |   0.000s | Filtered due to negative test flags
| 0031_other                               |    SKIPPED |   0.000s | needs TLS
| 0081_admin                               |     FAILED |  11.234s |
"""


def told(state: str) -> dict[str, object]:
    return {"state": state, "duration": 0.3}


def test_of_librdkafka_a_test_is_named_with_its_protocol_and_one_that_needs_no_broker_is_left_out():
    tests = {
        "0031_get_offsets": told("PASSED"),
        "0031_get_offsets_mock": told("SKIPPED"),
        "0031_other": told("SKIPPED"),
        "0031_silent": told("SKIPPED"),
        "0081_admin": told("FAILED"),
    }
    found = librdkafka.read_report(tests, PRINTED, librdkafka.Asked("consumer", "0031"))
    assert found.passed == ["consumer/0031_get_offsets"]
    assert found.skipped == {
        "consumer/0031_other": "needs TLS",
        "consumer/0031_silent": librdkafka.OTHERWISE,
    }
    assert found.failed == {}
    asked = librdkafka.Asked("classic", "0081", "do_test_CreateAcls")
    failed = librdkafka.read_report(tests, PRINTED, asked).failed
    assert failed == {
        "classic/0081_admin/do_test_CreateAcls": 'Test assertion failed: "!error": '
        "no authorizer is configured on this broker"
    }
    assert librdkafka.asked_for(next(iter(failed))) == asked


def test_of_librdkafka_a_test_that_still_runs_when_the_report_is_written_has_failed():
    found = librdkafka.read_report({"0001_a": told("RUNNING")}, "", librdkafka.Asked("classic", "0001"))
    assert found.failed == {"classic/0001_a": "running"}


def test_what_one_scenario_skips_another_may_run():
    whole = Outcome(passed=["a"], skipped={"b": "of another scenario", "c": "no TLS"})
    librdkafka.add(whole, Outcome(passed=["b"], skipped={"a": "of another scenario", "c": "no TLS"}))
    assert (whole.passed, whole.skipped) == (["a", "b"], {"c": "no TLS"})
