"""The notebook on the pipeline's tables runs from its first cell to its last, and each statement of the page
of SQL has an answer on its data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.clients.test_spark_pipeline import ROOT, run, spark_there

__all__ = ["spark_there"]  # a fixture

NOTEBOOK, PAGE = ROOT / "examples/spark/pipeline/tables.ipynb", ROOT / "docs/pipeline-sql.md"
MINUTES = 6  # of a phase


@pytest.fixture(scope="module")
def found(spark_there: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("notebook")
    said = run(folder, str(ROOT / "tests/clients/spark/notebook.py"), str(NOTEBOOK), str(PAGE))
    (line,) = [line for line in said.splitlines() if line.startswith("FOUND ")]
    results: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return results


def test_labels_rise_with_each_shift_and_fall_as_trees_follow(found: dict[str, Any]) -> None:
    labels = found["labels"]
    assert len(labels) == 3 * MINUTES
    for shift in (MINUTES, 2 * MINUTES):
        assert labels[shift] > labels[shift - 1]
        assert min(labels[shift : shift + MINUTES]) < labels[shift]


def test_the_filter_that_passes_least_would_save_most(found: dict[str, Any]) -> None:
    first, second = found["filters"]
    assert (first["filter"], second["filter"]) == ("price > 100", 'unit == "EUR"')
    assert first["saved_bytes"] > second["saved_bytes"] > 0
    assert first["messages"] == second["messages"] == 3 * MINUTES * 6 * 10


def test_the_silent_host_is_named_and_no_other(found: dict[str, Any]) -> None:
    (missing,) = found["missing"]
    assert missing["host"]
    assert tuple(found["heard"]) == (10, 3 * MINUTES)


def test_each_statement_of_the_page_has_an_answer(found: dict[str, Any]) -> None:
    empty = [text for text, rows in found["sql"] if not rows]
    assert len(found["sql"]) == 11
    tables_without_rows = ("gold_repairs", "gold_moves", "by = 'zone'", "abs(min(clock_s))")
    for text in empty:  # nothing of this kind happens in these minutes
        assert any(part in text for part in tables_without_rows), text
