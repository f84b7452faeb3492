"""The crash run, short; and a test that it detects errors."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = "crash_run.py"


def test_five_kills_in_two_sessions(fault_run, tmp_path):
    code, first, said = fault_run(SCRIPT, tmp_path, "--count", "2", "--seed", "11")
    assert (code, first["problems"], first["done"]) == (0, [], 2), said
    code, both, said = fault_run(SCRIPT, tmp_path, "--count", "5", "--seed", "11")
    assert (code, both["problems"], both["done"]) == (0, [], 5), said
    assert both["kills"] >= 5
    assert both["lives"] == 2
    tally = both["tally"]
    assert set(tally["acked"]) == {"plain", "idempotent", "transactional", "compacted", "librdkafka"}
    assert min(tally["acked"].values()) > 0
    assert tally["verified"] == tally["reread"] > 0
    assert "seed 11" in said


def test_acknowledged_records_that_were_cut_off_are_found(fault_run, tmp_path):
    code, state, _ = fault_run(SCRIPT, tmp_path, "--count", "3", "--seed", "12", "--damage", "1")
    assert code == 1
    assert any("lost idempotent" in problem for problem in state["problems"])
    assert any(path.name.startswith("failed-") for path in (tmp_path / "seed-12").iterdir())
