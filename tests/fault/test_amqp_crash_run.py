"""The AMQP crash run, short; and a test that it detects errors."""

from __future__ import annotations

import pytest
from resumable import Patience

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = "amqp_crash_run.py"


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.nightly)])
def test_kills_in_two_sessions(fault_run, tmp_path, kills):
    code, first, said = fault_run(SCRIPT, tmp_path, "--count", "2", "--seed", "11")
    assert (code, first["problems"], first["done"]) == (0, [], 2), said
    code, both, said = fault_run(SCRIPT, tmp_path, "--count", str(kills), "--seed", "11")
    assert (code, both["problems"], both["done"]) == (0, [], kills), said
    assert both["kills"] >= kills
    assert both["lives"] == 2
    assert both["counts"]["confirmed"] > 0
    assert both["counts"]["seen"] >= both["counts"]["confirmed"]
    assert both["counts"]["dead"] > 0


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.nightly)])
def test_kills_of_the_queues_home(fault_run, tmp_path, kills):
    code, state, said = fault_run(SCRIPT, tmp_path, "--hosts", "--count", str(kills), "--seed", "13")
    assert (code, state["problems"], state["done"]) == (0, [], kills), said
    assert state["counts"]["confirmed"] > 0
    assert state["counts"]["seen"] >= state["counts"]["confirmed"]
    assert state["counts"]["dead"] > 0


def test_a_log_that_is_cut_is_found_out(fault_run, tmp_path):
    arguments = ("--count", "2", "--seed", "12", "--damage", "1", "--patience", "20")
    code, state, _ = fault_run(SCRIPT, tmp_path, *arguments)
    assert code == 1
    # The cut removes the end of the log: a message, or the note that it was delivered.
    signs = ("lost", "were not read", "was not said to be redelivered")
    assert [problem for problem in state["problems"] if any(sign in problem for sign in signs)]


def test_patience_counts_from_the_last_progress():
    patience = Patience(90.0)
    calls = [(1600, 0.0), (1550, 80.0), (1600, 100.0), (1550, 170.0), (1500, 170.0), (1500, 260.0)]
    assert not any(patience.ended(left, now) for left, now in calls)
    assert patience.ended(1550, 260.1)  # more than before is no progress
