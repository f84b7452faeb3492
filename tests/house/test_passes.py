"""The first pass of `make test` leaves out what the second pass runs, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from tests import passes

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("before", "after"), [(100, 25), (24, 10), (6, 6)])
def test_a_property_has_a_quarter_of_its_examples(before: int, after: int) -> None:
    seen = []

    @settings(max_examples=before, database=None, deadline=None)
    @given(st.integers())
    def prove(number: int) -> None:
        seen.append(number)

    passes.fewer_examples(prove)
    prove()
    assert len(seen) == after


def test_a_state_machine_has_a_quarter_of_its_runs() -> None:
    runs = []

    class Machine(RuleBasedStateMachine):
        @initialize(number=st.integers())
        def begin(self, number: int) -> None:
            runs.append(number)

        @rule()
        def go_on(self) -> None:
            pass

    case = Machine.TestCase
    case.settings = settings(max_examples=80, stateful_step_count=1, database=None, deadline=None)
    passes.fewer_examples(case)
    case("runTest").runTest()
    assert len(runs) == 20


class Item:
    """A collected test without markers."""

    def __init__(self, path: str, *markers: str) -> None:
        self.path = ROOT / "tests" / path
        self._markers = markers

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self._markers else None


def test_only_tests_that_run_again_are_left_out() -> None:
    again, plain = Item("unit/fabric/test_a.py", "compiled_suffices"), Item("unit/fabric/test_b.py")
    cold, server = Item("unit/p4/frontend/test_c.py", "compiled_suffices"), Item("fault/test_d.py")
    assert passes.leave_to_the_second_pass([again, plain, cold, server], ["p4/frontend"]) == [again]


def test_both_passes_name_the_same_folders() -> None:
    """A folder that only the second pass left out would be tested by nobody in full."""
    makefile = (ROOT / "Makefile").read_text()
    (cold,) = re.findall(r"^COLD := ((?:.+\\\n)*.+)$", makefile, re.MULTILINE)
    assert all((passes.UNIT / name).exists() for name in cold.replace("\\\n", "").split())
    assert '--first-pass "$(COLD)"' in makefile
    assert "$(addprefix --ignore tests/unit/,$(COLD)) --compiled" in makefile


def test_no_test_is_left_out_by_both_passes() -> None:
    """A test of interpreted code only, left to the compiled pass, would never run."""
    for path in passes.UNIT.rglob("test_*.py"):
        text = path.read_text()
        if "pytestmark = pytest.mark.compiled_suffices" in text:
            assert ".skipif(" not in text, path
        assert not re.search(r"compiled_suffices\n@\S*(of_interpreted|skipif)", text), path
