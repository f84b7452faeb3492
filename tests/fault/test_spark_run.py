"""The Spark fault run, short; and that it finds what it is there to find."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = Path(__file__).with_name("spark_run.py")


def test_kills_of_daemon_worker_and_driver_and_a_record_that_is_there_twice(
    tmp_path: Path, require_tool: Callable[[str], str], require: Callable[[bool, str], None]
) -> None:
    """One run for both, as a session takes long to start."""
    require_tool("java")
    require(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path), "--json", "--seed", "3"]
    command += ["--count", "3", "--drivers", "1", "--life", "4", "--damage"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-3000:]
    state = json.loads(done.stdout)
    (problem,) = state["problems"]
    assert "more than once: 1, such as" in problem
    assert (done.returncode, state["done"]) == (1, 4)
    assert state["records"] > 0
