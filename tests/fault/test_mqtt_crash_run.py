"""The MQTT crash run, short; and that it finds what it is there to find."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("mqtt_crash_run.py")


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
    assert both["counts"]["acked"] > 0
    assert both["counts"]["seen"] >= 2 * both["counts"]["acked"]


def test_a_journal_that_is_cut_is_found_out(tmp_path):
    code, state, _ = crash_run(tmp_path, "--count", "2", "--seed", "12", "--damage", "1")
    assert code == 1
    assert state["problems"]
