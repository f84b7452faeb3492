"""The batch form of the pipeline on executors in processes of their own gives the tables that it gives in one
process: their Python finds the packages, and no part needs what another process has."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.clients.test_spark_pipeline import run, spark_there

from treecast.spark_connectors.pipeline import tables as t

__all__ = ["spark_there"]  # a fixture
HOSTS, PUBLISHERS, ROWS = 20, 20, 8_000  # of 200 intervals of each host: half an hour
SPAN = ["--step", "600", "--length", "1800"]  # few windows: each is a folder of each table
SMALL = ["--at-once", "2500"]  # two parts or more


def command(folder: Path, name: str, *given: str) -> None:
    run(folder, "-m", "treecast.middleware.cli", "pipeline", name, "--data", str(folder / "pipe"), *given)


def content(folder: Path) -> dict[str, list[str]]:
    found = {}
    for table in (*t.BY_SLOT, *t.BY_WINDOW):
        paths = sorted(Path(t.Tables(folder / "pipe").path(table)).glob("*=*/*.parquet"))
        rows: list[Any] = []
        for path in paths:
            part = path.parent.name
            rows += [(part, str(sorted(row.items()))) for row in pq.ParquetFile(path).read().to_pylist()]
        found[table] = sorted(rows)
    return found


@pytest.mark.nightly
def test_executors_in_processes_of_their_own_make_the_same_tables(spark_there: None, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    size = ["--rows", str(ROWS), "--hosts", str(HOSTS), "--publishers", str(PUBLISHERS)]
    command(one, "generate", *size, "--master", "local[1]")
    shutil.copytree(one, other)
    command(one, "measure", "--master", "local[1]", *SPAN)
    command(other, "measure", "--master", "local-cluster[2,1,1024]", *SPAN, *SMALL)
    tables = content(one)
    assert all(tables[table] for table in (t.MINUTES, t.STREAM_MINUTES, t.TRAFFIC, t.CHURN, t.TALKERS))
    assert content(other) == tables
