"""The MQTT crash run, short; and a test that it detects errors."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = "mqtt_crash_run.py"


@pytest.mark.parametrize("kills", [3, pytest.param(8, marks=pytest.mark.nightly)])
def test_kills_in_two_sessions(fault_run, tmp_path, kills):
    code, first, said = fault_run(SCRIPT, tmp_path, "--count", "2", "--seed", "11")
    assert (code, first["problems"], first["done"]) == (0, [], 2), said
    code, both, said = fault_run(SCRIPT, tmp_path, "--count", str(kills), "--seed", "11")
    assert (code, both["problems"], both["done"]) == (0, [], kills), said
    assert both["kills"] >= kills
    assert both["lives"] == 2
    assert both["counts"]["acked"] > 0
    assert both["counts"]["seen"] >= 2 * both["counts"]["acked"]


def test_a_journal_that_is_cut_is_found_out(fault_run, tmp_path):
    arguments = ("--count", "2", "--seed", "12", "--damage", "1", "--patience", "20")
    code, state, _ = fault_run(SCRIPT, tmp_path, *arguments)
    assert code == 1
    found = [problem for problem in state["problems"] if " lost " in problem or problem.endswith(" 2 times")]
    assert found, state["problems"]
