"""The pipeline's fault run, short; and a test that it detects errors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]

SCRIPT = "pipeline_run.py"


@pytest.fixture(autouse=True)
def spark(require_tool: Callable[[str], str], require: Callable[[bool, str], None]) -> None:
    require_tool("java")
    require(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")


@pytest.mark.nightly
def test_four_kills_leave_counts_exact_and_no_epoch_twice(fault_run, tmp_path):
    code, state, said = fault_run(SCRIPT, tmp_path, "--count", "4", "--life", "4", "--seed", "3")
    assert (code, state["problems"], state["done"]) == (0, [], 4), said
    assert state["kills"] > 0
    assert state["counts"]["epochs"] == 4
    assert state["counts"]["lives replayed"] == 1


@pytest.mark.nightly
def test_an_interval_too_many_is_found_out(fault_run, tmp_path):
    code, state, _ = fault_run(SCRIPT, tmp_path, "--count", "1", "--damage", "0")
    assert code == 1
    assert any(
        problem.startswith("seed 1, life 0, fsync interval: rows of bronze") for problem in state["problems"]
    )
