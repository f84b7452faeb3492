"""The crash run, short; and that it finds what it is there to find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("crash_run.py")


def crash_run(out: Path, *arguments: str) -> tuple[int, dict, str]:
    """The exit code, the summary, and what was said."""
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def test_five_kills_in_two_sessions(tmp_path):
    code, first, said = crash_run(tmp_path, "--count", "2", "--seed", "11")
    assert (code, first["problems"], first["done"]) == (0, [], 2), said
    code, both, said = crash_run(tmp_path, "--count", "5", "--seed", "11")
    assert (code, both["problems"], both["done"]) == (0, [], 5), said
    assert both["kills"] >= 5
    assert both["lives"] == 2
    tally = both["tally"]
    assert set(tally["acked"]) == {"plain", "idempotent", "transactional", "compacted", "librdkafka"}
    assert min(tally["acked"].values()) > 0
    assert tally["verified"] == tally["reread"] > 0
    assert "seed 11" in said


def test_acknowledged_records_that_were_cut_off_are_found(tmp_path):
    code, state, _ = crash_run(tmp_path, "--count", "3", "--seed", "12", "--damage", "1")
    assert code == 1
    assert any("lost idempotent" in problem for problem in state["problems"])
    assert any(path.name.startswith("failed-") for path in (tmp_path / "seed-12").iterdir())
