"""Formats that Spark has no package for are refused before it starts, and the package is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from treecast.middleware.cli.app import app
from treecast.spark_connectors.pipeline.formats import why_not


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("delta", "io.delta:delta-spark_4.3_2.13"),
        ("iceberg", "org.apache.iceberg:iceberg-spark-runtime-4.3_2.13"),
    ],
)
def test_what_would_be_needed_is_named(name: str, package: str) -> None:
    assert package in why_not(name, "4.3.0")
    assert "leave --format out" in why_not(name, "4.3.0")


def test_parquet_is_there_and_other_words_are_no_formats() -> None:
    assert why_not("parquet", "4.3.0") == ""
    assert why_not("csv", "4.3.0") == "there is no format csv; there are parquet, delta, iceberg"


@pytest.mark.parametrize("command", ["run", "measure"])
def test_commands_refuse_before_they_touch_the_folder(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "pipe"
    found = CliRunner().invoke(app, ["pipeline", command, "--data", str(folder), "--format", "delta"])
    assert found.exit_code != 0
    text = str(found.exception)
    assert "tables in delta need io.delta:delta-spark_" in text or "PySpark is not installed" in text
    assert not folder.exists()
