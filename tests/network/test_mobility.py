"""The mobility tracking example, short, on the embedded design, as `python -m` runs it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_all_ways_are_found(tmp_path: Path, require: Callable[[object, str], None]) -> None:
    for module in ("finsy", "matplotlib"):
        require(importlib.util.find_spec(module), f"{module} is not installed")
    command = [sys.executable, "-m", "examples.mobility_tracking", "--design", "embedded", "--json"]
    command += ["--period", "0.4", "--reports", "5", "--devices", "30", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert sum(one["right"] for one in found["vnfs"]) > 10
    assert [one["found"]["updates"] for one in found["vnfs"]] == [15] * 4
    assert Path(found["picture"]).stat().st_size > 20_000
