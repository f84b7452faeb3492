"""Spark over lab hosts, short: executors read from their own hosts' daemons; other reads are detected."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.slow]

ROWS, SIZE = 40_000, 100


@pytest.mark.nightly
def test_each_executor_reads_from_its_own_hosts_daemon(
    tmp_path: Path, require_tool: Callable[[str], str], require: Callable[[object, str], None]
) -> None:
    require(sys.platform == "linux" and os.geteuid() == 0, "network namespaces need root")
    require(importlib.util.find_spec("pyroute2"), "pyroute2 is not installed")
    require(importlib.util.find_spec("pyspark"), "pyspark is not installed")
    require_tool("java")
    from tests.fault.spark_hosts.__main__ import GIVEN, OWN, run

    outcome = run(tmp_path, hosts=2, rows=ROWS, size=SIZE)
    assert not outcome.problems, "\n".join(outcome.problems)
    for read in outcome.reads.values():
        assert sorted(read.executors) == ["h1", "h2"]
        assert sum(count for _, count in read.executors.values()) == ROWS
    own, given = outcome.reads[OWN], outcome.reads[GIVEN]
    assert own.counts["h2"].replica >= own.executors["h2"][1] * SIZE
    assert given.counts["h2"].given < given.executors["h2"][1] * SIZE
