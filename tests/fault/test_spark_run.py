"""The Spark fault run, short; and a test that it detects errors."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]


def test_kills_copies_topics_made_anew_and_a_record_that_is_there_twice(
    fault_run: Callable[..., tuple[int, dict[str, Any], str]],
    tmp_path: Path,
    require_tool: Callable[[str], str],
    require: Callable[[bool, str], None],
) -> None:
    """All in one run, as a session takes long to start."""
    require_tool("java")
    require(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")
    arguments = ("--seed", "3", "--count", "3", "--drivers", "1", "--life", "4", "--damage")
    arguments += ("--green", "1", "--anew", "0.5")
    code, state, said = fault_run("spark_run.py", tmp_path, *arguments)
    assert len(state["problems"]) == 1, said
    assert "more than once: 1, such as" in state["problems"][0]
    assert (code, state["done"]) == (1, 4)
    assert state["records"] > 0
    kills = state["kills"]
    anew = kills["of these, after which the input topic was made anew"]
    assert kills["input topics made anew: the query failed and said so"] == anew > 0
    assert kills["of these, after which a copied checkpoint went on elsewhere"] == 1
