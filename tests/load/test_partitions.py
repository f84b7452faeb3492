"""The short form of `tests.load.partitions`. Only the command judges times."""

from __future__ import annotations

import json

import pytest

from tests.load import partitions

FEW_FILES = 600  # logs keep at most 512 files open


@pytest.mark.parametrize("count", [1000, pytest.param(4000, marks=pytest.mark.nightly)])
def test_many_partitions_take_few_files_and_bounded_metrics(
    capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """More of them than files that logs keep open."""
    partitions.main(["--count", str(count), "--records", "1", "--idle", "0.5", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [(row["shape"], row["partitions"]) for row in rows] == [("topics", count), ("partitions", count)]
    for row in rows:
        assert row["open_files"] < FEW_FILES
        assert row["metrics_bytes"] < partitions.MOST_METRICS_BYTES
        assert row["metrics_left_out"] == 0


def test_topics_of_joined_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    count = ("--count", "300", "--batch", "100", "--idle", "0.5")
    partitions.main([*count, "--hosts", "2", "--shape", "topics", "--json", "--flag=--metrics-listed=10"])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["partitions"] == 300
    assert row["metrics_left_out"] == 290
    assert row["open_files"] < FEW_FILES
