"""kafka-python's own integration suite against a daemon, compared with the allow list."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.clients

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_fails_but_what_the_allow_list_names_and_all_that_it_names_fails():
    command = [sys.executable, "-m", "tests.foreign", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["news"] == []
    assert len(outcome["passed"]) > 40
    assert done.returncode == 0
