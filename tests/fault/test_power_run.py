"""The power run, short, where there is a LazyFS; and a test that it detects a loss. Each store's promise has
tests that need no FUSE: `docs/ordering.md` names them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from power import facts
from power.lazyfs import missing

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = "power_run.py"
needs_lazyfs = pytest.mark.skipif(bool(missing()), reason=missing())


@needs_lazyfs
def test_a_loss_under_each_policy(fault_run, tmp_path):
    code, state, said = fault_run(SCRIPT, tmp_path, "--count", "3", "--life", "1", "--seed", "11")
    assert (code, state["problems"], state["done"]) == (0, [], 3), said
    for policy in ("batch", "interval", "never"):
        assert state["counts"][f"{policy}: power losses"] == 1
        assert state["counts"][f"{policy}: Kafka records kept"] > 0
    assert not [name for name, lost in state["counts"].items() if lost and "batch" in name and "lost" in name]


@needs_lazyfs
def test_what_is_cut_off_is_found_out(fault_run, tmp_path):
    arguments = ("--count", "1", "--seed", "12", "--damage", "0")
    code, state, _ = fault_run(SCRIPT, tmp_path, *arguments)
    assert code == 1
    assert [problem for problem in state["problems"] if " are gone" in problem], state["problems"]


def test_without_lazyfs_it_says_why_it_is_skipped(fault_run, tmp_path, monkeypatch):
    monkeypatch.setenv("LAZYFS", str(tmp_path / "nothing"))
    code, state, _ = fault_run(SCRIPT, tmp_path, "--count", "1")
    assert code == 0
    assert state == {"skipped": f"LAZYFS={tmp_path / 'nothing'} is no program"}


def test_a_fact_is_due_once_it_was_on_the_disk_and_only_an_old_one_before(monkeypatch):
    times = iter([1.0, 5.0])
    monkeypatch.setattr(facts.time, "monotonic", lambda: next(times))
    known = facts.Facts()
    known.add("records", "old")
    known.add("records", "young")
    outcome = known.settle("records", 3.0, lambda key, _: False)
    assert (outcome.kept, outcome.young, outcome.missing) == (0, 1, [("old", None)])
    assert outcome.problems() == ["1 of records are gone, such as [('old', None)]"]
    monkeypatch.setattr(facts.time, "monotonic", lambda: 9.0)
    known.add("records", "seen")
    assert known.settle("records", 3.0, lambda key, _: True).problems() == []
    assert known.settle("records", 3.0, lambda key, _: False).missing == [("seen", None)]
